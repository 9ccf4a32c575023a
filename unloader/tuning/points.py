"""The points of a sweep, and their file: CSV with `parallelism,seconds`, and what else is known.

Other columns are `bytes`, `rows` and the figures of `Load`, such as `cpu`. Shares are in percent.
A line that begins with # is a remark. An empty cell is a figure that was not measured.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
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
    row_bytes: float | None = None
    """Of the text of a row before compression."""
    cores: float | None = None
    """Of the machine."""
    cpu_seconds: float | None = None
    """Of the workers."""
    load: Load = Load()


REQUIRED = ("parallelism", "seconds")
FOR_SIZE = ("row_bytes", "cores", "cpu_seconds")
"""Columns that every sweep writes for `unloader size`; the analysis does not need them."""
AMOUNTS = ("bytes", "rows", *FOR_SIZE)
OPTIONAL = (*AMOUNTS[:2], *LOADS, *FOR_SIZE)
SHARES = tuple(name for name in LOADS if name != "queued")

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
    columns: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    """Remarks on how the file was read."""


def read_points(path: Path) -> PointsFile:
    """Return the points of a CSV file, or raise a `ConfigError` with the file and the line."""
    try:
        text = read_named(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"cannot read the points in {path}: {error.strerror}", "give a file with --replay"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text in UTF-8 (byte {error.start:,})", "save it as CSV in UTF-8"
        ) from error
    return points_of(path, text)


def points_of(path: Path, text: str) -> PointsFile:
    """Return the points of the text of a file; errors as `read_points`."""
    heads: list[str] = []
    found, others, percents = list[dict[str, float]](), list[dict[str, str]](), set[str]()
    # One point is one line, so an open quotation mark cannot swallow the rest of the file.
    for line, written in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        try:
            row = [cell.strip() for cell in next(csv.reader([written], strict=True))]
        except csv.Error as error:
            raise _wrong(path, line, f"is not CSV: {error}", "correct it") from error
        if not heads:
            heads = [cell.lower() for cell in row]
            _check_heads(path, heads)
            continue
        if len(row) > len(heads):
            raise _wrong(
                path,
                line,
                f"has {len(row)} cells for {len(heads)} columns",
                "write numbers without separators of thousands, and decimals with a point",
            )
        cells = dict(zip(heads, row, strict=False))
        for name in REQUIRED:
            if name not in cells:
                raise _wrong(path, line, f"has no {name}", "write it, or remove the line")
        known = [name for name in (*REQUIRED, *OPTIONAL) if name in REQUIRED or cells.get(name)]
        percents.update(name for name in known if cells[name].endswith("%"))
        found.append({name: _number(path, line, name, cells[name]) for name in known})
        own = (name for name in heads if name and name not in (*REQUIRED, *OPTIONAL))
        others.append({name: cells.get(name, "") for name in own})
        if len(found) > MOST_POINTS:
            raise ConfigError(f"{path} has more than {MOST_POINTS:,} points", "give fewer points")
    _check_heads(path, heads)
    if not found:
        raise _wrong(path, 0, "has no points", "write one line for each measurement")
    unused = ", ".join(others[0])
    notices = [f"columns of {path} that are not used: {unused}"] if unused else []
    scales = dict.fromkeys(SHARES, 100.0)
    for name in SHARES:
        values = [cells[name] for cells in found if name in cells]
        if values and max(values) <= 1 and name not in percents:
            scales[name] = 1.0
            if max(values) > 0:
                notices.append(
                    f"no value of {name} in {path} is above 1: the values are read as shares, 1 is "
                    "100 %"
                )
    points = (
        Point(
            parallelism=int(cells["parallelism"]),
            seconds=cells["seconds"],
            **{name: cells[name] for name in AMOUNTS if name in cells},
            load=Load(**{n: cells[n] / scales.get(n, 1.0) for n in LOADS if n in cells}),
        )
        for cells in found
    )
    return PointsFile(
        points=tuple(points), others=tuple(others), columns=tuple(heads), notices=tuple(notices)
    )


def _check_heads(path: Path, heads: list[str]) -> None:
    for name in (*REQUIRED, *OPTIONAL):
        count = heads.count(name)
        if not count and name in REQUIRED:
            hint = "begin it with the line parallelism,seconds (a comma between columns)"
            raise _wrong(path, 0, f"has no column {name}", hint)
        if count > 1:
            raise _wrong(path, 0, f"has {count} columns {name}", "keep one of them")


def points_text(
    points: Sequence[Point],
    remarks: Iterable[str] = (),
    *,
    always: Sequence[str] = (),
    others: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return CSV with the known columns, those in `always`, and cells of `others`, all alike."""

    def cell(point: Point, name: str) -> str:
        value = getattr(point.load, name) if name in LOADS else getattr(point, name)
        if value is None:
            return ""
        # Digits that come back as the same number; a share of 0.29 is not 28.999999999999996 %.
        return f"{value * 100:.12g}%" if name in SHARES else repr(value)

    known = [n for n in OPTIONAL if n in always or any(cell(point, n) for point in points)]
    columns = [*REQUIRED, *known]
    text = io.StringIO()
    text.writelines(f"# {remark}\n" for remark in remarks)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *(others[0] if others else ())])
    more: Sequence[Mapping[str, str]] = others or [{}] * len(points)
    for point, further in zip(points, more, strict=True):
        writer.writerow([*(cell(point, name) for name in columns), *further.values()])
    return text.getvalue()


def _number(path: Path, line: int, name: str, text: str) -> float:
    """Return the number in a cell of a column, if it can be one of that column."""
    is_share, is_level = name in SHARES, name == "parallelism"
    digits = text[:-1].rstrip() if is_share and text.endswith("%") else text
    is_number = (_WHOLE if is_level else _NUMBER).fullmatch(digits) is not None
    value = float(digits) if is_number else 0.0
    for is_wrong, what, hint in (
        (
            is_level and not 1 <= value <= MOST_WORKERS,
            "is not a number of workers",
            f"write a whole number from 1 to {MOST_WORKERS:,}",
        ),
        (not is_number, "is not a number", "write digits, and decimals with a point"),
        (
            name == "seconds" and not SHORTEST_SECONDS <= value <= LONGEST_SECONDS,
            "cannot be the time of a run",
            f"write seconds above 0, up to {LONGEST_SECONDS:,.0f}",
        ),
        (
            name in AMOUNTS and value <= 0,
            "is not above 0",
            "write the amount, or leave the cell empty",
        ),
        (
            is_share and value > 100,
            "is more than the whole machine",
            "write percent of the whole machine, from 0 to 100",
        ),
    ):
        if is_wrong:
            shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
            raise _wrong(path, line, f"{name} {shown!r} {what}", hint)
    return value


def _wrong(path: Path, line: int, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{path}{f', line {line},' if line else ''} {what}", hint)
