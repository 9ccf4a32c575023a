"""The points of a sweep: CSV as `unloader sweep --csv` writes it, or the JSON of a sweep.

Beside parallelism and seconds, rows, their width, cores and CPU seconds count where they are known.
Where a sweep has varied more than the parallelism, the settings with the fastest point count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.nouns import counted
from unloader.sizing.model import Basis, Measured
from unloader.tuning.points import FOR_SIZE, MOST_POINTS, MOST_WORKERS, points_of

_NUMBERS = ("parallelism", "seconds", "rows", "bytes", *FOR_SIZE)
_LARGEST = 1e18
_HOW = "give what unloader sweep --json wrote, or CSV with the head parallelism,seconds"
_DROPPED = {
    "null:": "the sweep wrote to null: - the time of the destination is not in its rates",
    "null:rows": "the sweep wrote to null:rows - its rates are of the source alone: nothing was "
    "encoded, compressed or written",
}


def points_of_csv(path: Path, text: str) -> Basis:
    """Return the points of a CSV file, as `unloader sweep --replay` reads it.

    Raises:
        ConfigError: It has no points, or a figure that is none; the message names the line.
    """
    file = points_of(path, text)
    found = []
    for number, (point, others) in enumerate(zip(file.points, file.others, strict=True), 1):
        settings = {name: cell for name, cell in others.items() if name not in FOR_SIZE}
        own = {"bytes": point.bytes, **others}
        if "row_bytes" in others:
            # A sweep has written it: what it calls bytes may be compressed.
            own["bytes"] = None
        cells = {
            **own,
            "parallelism": point.parallelism,
            "seconds": point.seconds,
            "rows": point.rows,
        }
        place = f"point {number} of {path}"
        found.append((_key(settings), _point(cells, place, settings)))
    return _basis(found, path)


def points_of_json(path: Path, document: object) -> Basis:
    """Return the points of a document that has them as `points` or `levels`, or is their list.

    Raises:
        ConfigError: It is something else.
    """
    whole = document if isinstance(document, dict) else {}
    points = whole.get("points", whole.get("levels")) if whole else document
    if not isinstance(points, list):
        raise ConfigError(
            f"{path} is not a manifest or a file of ceilings, and has no points of a sweep",
            "give one of these files",
        )
    same = {"cores": whole.get("cores"), **_work(whole)}
    found = []
    for number, each in enumerate(points, 1):
        place = f"point {number} of {path}"
        if not isinstance(each, dict):
            raise ConfigError(f"{place} is not an object", _HOW)
        settings = each.get("settings") or {}
        if not isinstance(settings, dict):
            raise ConfigError(f"the settings of {place} are not an object", _HOW)
        for cells in _measurements(each, place):
            found.append((_key(settings), _point({**same, **cells}, place, settings)))
    basis = _basis(found, path)
    dropped = _DROPPED.get(str(whole.get("destination")))
    return replace(
        basis,
        rows=_number(whole.get("whole_rows"), "whole_rows", str(path)),
        notes=(*basis.notes, *((dropped,) if dropped else ())),
    )


def _work(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the seconds of the levels of an analysis are for; nothing for single points."""
    work = document.get("work")
    if "points" in document or not isinstance(work, dict):
        return {}
    return {work["unit"]: work.get("amount")} if work.get("unit") in ("rows", "bytes") else {}


def _measurements(point: Mapping[str, Any], place: str) -> Iterator[Mapping[str, Any]]:
    """Yield the single measurements of a point; one without any is one itself."""
    inner = point.get("measurements")
    if inner is None:
        yield point
        return
    if not isinstance(inner, list) or not all(isinstance(each, dict) for each in inner):
        raise ConfigError(f"the measurements of {place} are not a list of objects", _HOW)
    for each in inner:
        costs = each.get("costs")
        million = costs.get("total") if isinstance(costs, dict) else None
        rows = _number(each.get("rows"), "rows", place)
        cpu = _number(million, "total of the costs", place)
        yield {
            "parallelism": point.get("parallelism"),
            "cpu_seconds": None if cpu is None or rows is None else cpu * rows / 1e6,
            **each,
            # What a sweep has written may be compressed: the width of a row tells its text.
            "bytes": None,
        }


def _key(settings: Mapping[str, Any]) -> str:
    parts = (f"{name} {value}" for name, value in settings.items() if name != "parallelism")
    return ", ".join(parts)


def _basis(found: list[tuple[str, Measured]], path: Path) -> Basis:
    if not found:
        raise ConfigError(f"{path} has no points", _HOW)
    if len(found) > MOST_POINTS:
        raise ConfigError(f"{path} has more than {MOST_POINTS:,} points", "give fewer points")
    fastest, _ = max(found, key=lambda each: (each[1].rows or 1.0) / each[1].seconds)
    measured = tuple(point for key, point in found if key == fastest)
    varied = len({key for key, _ in found}) > 1
    widths = [each.bytes / each.rows for each in measured if each.bytes and each.rows]
    return Basis(
        origins=(f"{counted(len(measured), 'point')} of a sweep in {path}",),
        measured=measured,
        row_bytes=max(widths, default=None),
        notes=(f"of the settings in {path} the fastest: {fastest}",) if varied else (),
    )


def _point(cells: Mapping[str, Any], place: str, settings: Mapping[str, Any]) -> Measured:
    values = {name: _number(cells.get(name), name, place) for name in _NUMBERS}
    workers, seconds, rows = values["parallelism"], values["seconds"], values["rows"]
    if workers is None or seconds is None:
        missing = "parallelism" if workers is None else "seconds"
        raise ConfigError(f"{place} has no {missing}", _HOW)
    if not workers.is_integer() or workers > MOST_WORKERS:
        raise ConfigError(
            f"the parallelism of {place} is not a whole number from 1 to {MOST_WORKERS}", _HOW
        )
    size = None if _is_compressed(settings) else values["bytes"]
    width, cores = values["row_bytes"], values["cores"]
    return Measured(
        workers=int(workers),
        seconds=seconds,
        rows=rows,
        bytes=rows * width if rows is not None and width is not None else size,
        cores=None if cores is None else min(workers, cores),
        cpu_seconds=values["cpu_seconds"],
    )


def _is_compressed(settings: Mapping[str, Any]) -> bool:
    """Return whether the bytes of a point are no text."""
    codec = str(settings.get("compression") or "none").lower()
    return codec != "none" or str(settings.get("format") or "csv").lower() != "csv"


def _number(value: object, name: str, place: str) -> float | None:
    """Return a number above 0; None for a cell without text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        found = float(value)
    except (ValueError, OverflowError):
        raise ConfigError(f"the {name} of {place} is not a number", _HOW) from None
    if not math.isfinite(found) or not 0 < found <= _LARGEST:
        raise ConfigError(f"the {name} of {place} is not a number above 0", _HOW)
    return found
