"""Results on stdout: plain tables that survive a pipe, and JSON. No terminal tricks here."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.cli.streams import give_up
from unloader.errors import OutputFailed

UNKNOWN = "-"

_NUMBERS = re.compile(r"\[\n\s*(-?\d[^\s,]*(?:,\n\s*-?\d[^\s,]*)*)\n\s*\]")

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def emit(text: str) -> None:
    """Write one result to stdout.

    Raises:
        BrokenPipeError: Whoever read stdout has gone.
        OutputFailed: It cannot be written otherwise, such as to a full disk.
    """
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        raise OutputFailed(
            f"the result cannot be written to standard output: {error.strerror}",
            "send it elsewhere; a run that came this far is done, see its _manifest.json",
        ) from error


def tell(text: str) -> None:
    """Write one result to stderr, because stdout holds the data; its loss is no error."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def emit_json(value: object) -> None:
    """Write the one JSON object of this call to stdout."""
    emit(json_text(value))


def json_text(value: object) -> str:
    """Return a value as indented JSON with a line for each list of numbers, not for each number.

    A machine of many nodes has a million distances, and a seat may have a hundred CPUs.
    """
    text = json.dumps(value, indent=2, default=_plain)
    # No string in it holds a line end, so that lists alone are found.
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows in aligned columns; a head that begins with `>` is set to the right."""
    lines = [[head.lstrip(">") for head in heads], *[list(map(one_line, row)) for row in rows]]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(heads))]
    right = [head.startswith(">") for head in heads]
    shown = (
        "  ".join(
            " " * (width - _width(cell)) + cell if to_right else cell + " " * (width - _width(cell))
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
    return "\n".join(shown)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one pair a line."""
    known = list(pairs)
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in known)


def count(value: int | None) -> str:
    """Return a whole number in groups of three digits."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Return bytes in the unit that fits, in powers of 1000."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def about(text: str, what: str) -> str:
    """Return a figure with what it is, or just that it is unknown."""
    return text if text == UNKNOWN else f"{text} ({what})"


def megabytes_per_second(bytes_per_second: float) -> str:
    """Return a rate in MB/s, where MB is 10^6 bytes."""
    return f"{bytes_per_second / 1e6:,.1f} MB/s"


def rows_per_second(rate: float) -> str:
    """Return a rate in rows/s with about three digits of it."""
    return f"{float(f'{rate:.3g}'):,.0f} rows/s"


def seconds(value: float) -> str:
    """Return a duration as people say it."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def one_line(text: str) -> str:
    r"""Return a text as one line that no terminal obeys: control characters become `\xHH`.

    Names in a database may hold anything, escape sequences of terminals included.
    """
    joined = re.sub(r"\s*[\r\n]\s*", " ", text)
    return _CONTROLS.sub(lambda match: f"\\x{ord(match.group()):02x}", joined)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
