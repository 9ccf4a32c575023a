"""The points of a sweep: CSV with `parallelism,seconds`, or the JSON that a sweep writes.

Of other columns `rows`, `bytes`, `cores` and `cpu_seconds` count where they are there; a cell
without text is a figure that nobody measured.
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
        found.append(_point(dict(zip(heads, row, strict=True)), place))
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
        if not isinstance(each, dict):
            raise ConfigError(f"point {number} of {path} is no object", _HOW)
        found.append(_point(each, f"point {number} of {path}"))
    return _basis(found, path)


def _basis(found: list[Measured], path: Path) -> Basis:
    if not found:
        raise ConfigError(f"{path} has no points", _HOW)
    if len(found) > _MOST_POINTS:
        raise ConfigError(f"{path} has more than {_MOST_POINTS:,} points", "give fewer points")
    known = [each for each in found if each.rows and each.bytes]
    widths = [each.bytes / each.rows for each in known if each.bytes and each.rows]
    return Basis(
        origins=(f"{len(found)} points of a sweep in {path}",),
        measured=tuple(found),
        row_bytes=max(widths, default=None),
    )


def _point(cells: Mapping[str, Any], place: str) -> Measured:
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
        bytes=values["bytes"],
        cores=values["cores"],
        cpu_seconds=values["cpu_seconds"],
    )


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
