"""The points of a sweep, and their file: CSV with `parallelism,seconds`, and what else is known.

Other columns are `bytes`, `rows` and the figures of `Load`, such as `cpu`. Shares are in percent.
A line that begins with # is a remark. An empty cell is a figure that was not measured.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from unloader.errors import ConfigError
from writers.files.regular import read_named


class Load(Struct, frozen=True, kw_only=True):
    """How busy the machine and the source were during a measurement; shares are from 0 to 1."""

    cpu: float | None = None
    """Of all CPUs of the machine."""
    node: float | None = None
    """Of the CPUs of the busiest NUMA node."""
    disk: float | None = None
    """Of the time in which the busiest disk of the output was busy."""
    output: float | None = None
    """Of the workers' time that passed in waiting for the destination of the files."""
    network: float | None = None
    """Of the capacity of the network connection."""
    source: float | None = None
    """Of the workers' time that passed in waiting for rows."""
    delay: float | None = None
    """Of the workers' time in which they were ready to run and had no CPU."""
    throttled: float | None = None
    """Of the periods of the control group's CPU quota, those in which it was used up."""
    database: float | None = None
    """Of all CPUs of the machine, by the processes of a database on it."""
    queued: float | None = None
    """The longest time, in seconds, that a stage waited for want of a consumer."""


LOADS = Load.__struct_fields__
"""The names of those figures, in the order in which files have them."""


class Point(Struct, frozen=True, kw_only=True):
    """One measurement."""

    parallelism: int
    seconds: float
    bytes: float | None = None
    """Written in these seconds."""
    rows: float | None = None
    load: Load = Load()


REQUIRED = ("parallelism", "seconds")
OPTIONAL = ("bytes", "rows", *LOADS)
SHARES = tuple(name for name in LOADS if name != "queued")
FOR_SIZE = ("row_bytes", "cores", "cpu_seconds")
"""Columns that a sweep writes for `unloader size`; the analysis does not need them."""

MOST_POINTS = 10_000
MOST_WORKERS = 65_535
SHORTEST_SECONDS, LONGEST_SECONDS = 1e-6, 1e9
"""Thirty years; more, or less than a clock tells, is a mistake of units."""

_WHOLE = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"([0-9]{1,20}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_SHOWN = 40


class PointsFile(Struct, frozen=True, kw_only=True):
    """What a file of points holds."""

    points: tuple[Point, ...]
    """In the order of the file."""
    others: tuple[Mapping[str, str], ...]
    """The cells of further columns of each point."""
    notices: tuple[str, ...] = ()
    """Remarks on how the file was read."""


def read_points(path: Path) -> PointsFile:
    """Return the points of a CSV file.

    Raises:
        ConfigError: It cannot be read or understood; the message has the file and the line.
    """
    return points_of(path, _text(path))


def points_of(path: Path, text: str) -> PointsFile:
    """Return the points of the text of a file.

    Raises:
        ConfigError: It cannot be understood; the message has the file and the line.
    """
    rows = _rows(path, text.removeprefix("\ufeff"))
    _, first = next(rows, (0, []))
    heads = _heads(path, first)
    found, others = [], []
    for line, row in rows:
        found.append(_cells(path, line, heads, row))
        others.append(_others(heads, row))
        if len(found) > MOST_POINTS:
            raise ConfigError(f"{path} has more than {MOST_POINTS:,} points", "give fewer points")
    if not found:
        raise _wrong(path, 0, "has no points", "write one line for each measurement")
    unused = [head for head in others[0] if head not in FOR_SIZE]
    notices = [f"columns of {path} that are not used: {', '.join(unused)}"] if unused else []
    scales = {}
    for name in SHARES:
        values = [cells[name] for cells in found if name in cells]
        as_shares = bool(values) and max(values) <= 1 and not any(name + "%" in c for c in found)
        scales[name] = 1.0 if as_shares else 100.0
        if as_shares and max(values) > 0:
            notices.append(
                f"no value of {name} in {path} is above 1: the values are read as shares, 1 is "
                "100 %"
            )
    return PointsFile(
        points=tuple(_point(cells, scales) for cells in found),
        others=tuple(others),
        notices=tuple(notices),
    )


def points_text(points: Iterable[Point], remarks: Iterable[str] = ()) -> str:
    """Return points as CSV that `read_points` reads, with the columns that any of them knows."""
    known = list(points)
    columns = [*REQUIRED, *(name for name in OPTIONAL if any(_cell(p, name) for p in known))]
    text = io.StringIO()
    text.writelines(f"# {remark}\n" for remark in remarks)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(point, name) for name in columns] for point in known)
    return text.getvalue()


def _cell(point: Point, name: str) -> str:
    value = getattr(point.load, name) if name in LOADS else getattr(point, name)
    if value is None:
        return ""
    # Digits that come back as the same number; a share of 0.29 is not 28.999999999999996 %.
    return f"{value * 100:.12g}%" if name in SHARES else repr(value)


def _text(path: Path) -> str:
    try:
        return read_named(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"cannot read the points in {path}: {error.strerror}", "give a file with --replay"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text in UTF-8 (byte {error.start:,})", "save it as CSV in UTF-8"
        ) from error


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line that has any."""
    # One point is one line, so an open quotation mark cannot swallow the rest of the file.
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise _wrong(path, number, f"is not CSV: {error}", "correct it") from error
        yield number, [cell.strip() for cell in cells]


def _heads(path: Path, row: list[str]) -> list[str]:
    heads = [cell.lower() for cell in row]
    for name in REQUIRED:
        if name not in heads:
            raise _wrong(
                path,
                0,
                f"has no column {name}",
                "begin it with the line parallelism,seconds (a comma between columns)",
            )
    for name in (*REQUIRED, *OPTIONAL, *FOR_SIZE):
        if heads.count(name) > 1:
            raise _wrong(path, 0, f"has {heads.count(name)} columns {name}", "keep one of them")
    return heads


def _cells(path: Path, line: int, heads: list[str], row: list[str]) -> dict[str, float]:
    if len(row) > len(heads):
        raise _wrong(
            path,
            line,
            f"has {len(row)} cells for {len(heads)} columns",
            "write numbers without separators of thousands, and decimals with a point",
        )
    found = {}
    for name, text in zip(heads, row, strict=False):
        if name in REQUIRED or (name in OPTIONAL and text):
            found[name] = _number(path, line, name, text)
            if text.endswith("%"):
                found[name + "%"] = 1.0
    for name in REQUIRED:
        if name not in found:
            raise _wrong(path, line, f"has no {name}", "write it, or remove the line")
    return found


def _others(heads: list[str], row: list[str]) -> dict[str, str]:
    cells = (*row, *[""] * (len(heads) - len(row)))
    named = zip(heads, cells, strict=True)
    return {name: cell for name, cell in named if name and name not in (*REQUIRED, *OPTIONAL)}


def _number(path: Path, line: int, name: str, text: str) -> float:
    if name == "parallelism":
        if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= MOST_WORKERS:
            what = f"{name} {_quoted(text)} is not a number of workers"
            raise _wrong(path, line, what, f"write a whole number from 1 to {MOST_WORKERS:,}")
        return int(text)
    digits = text[:-1].rstrip() if name in SHARES and text.endswith("%") else text
    if not _NUMBER.fullmatch(digits):
        what = f"{name} {_quoted(text)} is not a number"
        raise _wrong(path, line, what, "write digits, and decimals with a point")
    value = float(digits)
    if name == "seconds" and not SHORTEST_SECONDS <= value <= LONGEST_SECONDS:
        what = f"seconds {_quoted(text)} cannot be the time of a run"
        raise _wrong(path, line, what, f"write seconds above 0, up to {LONGEST_SECONDS:,.0f}")
    if name in ("bytes", "rows") and value <= 0:
        what = f"{name} {_quoted(text)} means that no work was done"
        raise _wrong(path, line, what, "write the amount of work, or leave the cell empty")
    if name in SHARES and value > 100:
        what = f"{name} {_quoted(text)} is more than the whole machine"
        raise _wrong(path, line, what, "write percent of the whole machine, from 0 to 100")
    return value


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _point(cells: Mapping[str, float], scales: Mapping[str, float]) -> Point:
    loads = {name: cells[name] / scales.get(name, 1.0) for name in LOADS if name in cells}
    return Point(
        parallelism=int(cells["parallelism"]),
        seconds=cells["seconds"],
        bytes=cells.get("bytes"),
        rows=cells.get("rows"),
        load=Load(**loads),
    )


def _wrong(path: Path, line: int, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{path}{f', line {line},' if line else ''} {what}", hint)
