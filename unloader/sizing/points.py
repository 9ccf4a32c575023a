"""The points of a sweep: CSV with `parallelism,seconds`, or the JSON that a sweep writes.

Of other columns `rows`, `bytes`, `cores` and `cpu_seconds` count where they are there; a cell
without text is a figure that nobody measured. Where a sweep has varied more than the parallelism,
the settings with the fastest point count, as they stand in further columns.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unloader.errors import ConfigError
from unloader.sizing.model import Basis, Measured

_REQUIRED = ("parallelism", "seconds")
_OPTIONAL = ("rows", "bytes", "cores", "cpu_seconds")
_LOADS = ("cpu", "node", "disk", "network", "source", "queued")
"""Columns that say how busy something was, and nothing of the settings."""
_MOST_POINTS = 10_000
_MOST_WORKERS = 65_535
_LARGEST = 1e18
_HOW = "write the head parallelism,seconds and one line for each point; rows and bytes may follow"


def points_of_csv(path: Path, text: str) -> Basis:
    """Return the points of a CSV file; a line that begins with # is a remark.

    Raises:
        ConfigError: It has no points, or a figure that is none; the message names the line.
    """
    lines = [
        (number, line)
        for number, line in enumerate(io.StringIO(text.removeprefix("\ufeff")), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        raise ConfigError(f"{path} is empty", _HOW)
    try:
        heads = [head.strip().lower() for head in next(csv.reader([lines[0][1]], strict=True))]
        rows = [(number, next(csv.reader([line], strict=True))) for number, line in lines[1:]]
    except csv.Error as error:
        raise ConfigError(f"{path} is no CSV: {error}", _HOW) from error
    for name in _REQUIRED:
        if heads.count(name) != 1:
            raise ConfigError(f"{path} has no column {name}, or two of them", _HOW)
    found = []
    for number, row in rows:
        place = f"line {number} of {path}"
        if len(row) != len(heads):
            raise ConfigError(f"{place} has {len(row)} cells and the head {len(heads)}", _HOW)
        cells = dict(zip(heads, row, strict=True))
        settings = {
            name: cell.strip()
            for name, cell in cells.items()
            if name and name not in (*_REQUIRED, *_OPTIONAL, *_LOADS)
        }
        found.append((_key(settings), _point(cells, place, settings)))
    return _basis(found, path)


def points_of_json(path: Path, document: object) -> Basis:
    """Return the points of a document that has them as `points` or `levels`, or is their list.

    Raises:
        ConfigError: It is something else.
    """
    points = document
    if isinstance(document, dict):
        points = next((document[key] for key in ("points", "levels") if key in document), None)
    if not isinstance(points, list):
        raise ConfigError(
            f"{path} is no manifest, no file of ceilings, and has no points of a sweep",
            "give one of those",
        )
    found = []
    for number, each in enumerate(points, 1):
        place = f"point {number} of {path}"
        if not isinstance(each, dict):
            raise ConfigError(f"{place} is no object", _HOW)
        settings = each.get("settings") or {}
        if not isinstance(settings, dict):
            raise ConfigError(f"the settings of {place} are no object", _HOW)
        for cells in _measurements(each, place):
            found.append((_key(settings), _point(cells, place, settings)))
    return _basis(found, path)


def _measurements(point: Mapping[str, Any], place: str) -> list[Mapping[str, Any]]:
    """Return the single measurements of a point; one without any is one itself."""
    inner = point.get("measurements")
    if inner is None:
        return [point]
    if not isinstance(inner, list) or not all(isinstance(each, dict) for each in inner):
        raise ConfigError(f"the measurements of {place} are no list of objects", _HOW)
    # What a sweep has written may be compressed, or nothing: the rows alone count.
    return [{"parallelism": point.get("parallelism"), **{**each, "bytes": None}} for each in inner]


def _key(settings: Mapping[str, Any]) -> str:
    parts = (f"{name} {value}" for name, value in settings.items() if name != "parallelism")
    return ", ".join(parts)


def _basis(found: list[tuple[str, Measured]], path: Path) -> Basis:
    if not found:
        raise ConfigError(f"{path} has no points", _HOW)
    if len(found) > _MOST_POINTS:
        raise ConfigError(f"{path} has more than {_MOST_POINTS:,} points", "give fewer points")
    fastest, _ = max(found, key=lambda each: (each[1].rows or 1.0) / each[1].seconds)
    measured = tuple(point for key, point in found if key == fastest)
    varied = len({key for key, _ in found}) > 1
    widths = [each.bytes / each.rows for each in measured if each.bytes and each.rows]
    return Basis(
        origins=(f"{len(measured)} points of a sweep in {path}",),
        measured=measured,
        row_bytes=max(widths, default=None),
        notes=(f"of the settings in {path} the fastest: {fastest}",) if varied else (),
    )


def _point(cells: Mapping[str, Any], place: str, settings: Mapping[str, Any]) -> Measured:
    values = {name: _number(cells.get(name), name, place) for name in (*_REQUIRED, *_OPTIONAL)}
    workers, seconds = values["parallelism"], values["seconds"]
    if workers is None or seconds is None:
        missing = "parallelism" if workers is None else "seconds"
        raise ConfigError(f"{place} has no {missing}", _HOW)
    if not workers.is_integer() or workers > _MOST_WORKERS:
        raise ConfigError(
            f"the parallelism of {place} is not a whole number from 1 to {_MOST_WORKERS}", _HOW
        )
    return Measured(
        workers=int(workers),
        seconds=seconds,
        rows=values["rows"],
        bytes=None if _is_compressed(settings) else values["bytes"],
        cores=values["cores"],
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
        raise ConfigError(f"the {name} of {place} is no number", _HOW) from None
    if not math.isfinite(found) or not 0 < found <= _LARGEST:
        raise ConfigError(f"the {name} of {place} is not a number above 0", _HOW)
    return found
