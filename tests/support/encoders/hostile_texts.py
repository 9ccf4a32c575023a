"""Texts that have broken writers and readers of delimited files, made for one dialect.

Every character of the basic plane is there, the ends of every other plane, each control character
in each place, and everything that the dialect's own marks can be mistaken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from writers.model import TextFormat
from writers.text.marks import refused_anywhere

RUN_CHARACTERS = 64
SURROGATES = range(0xD800, 0xE000)
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF)
FIXED = (
    *(
        "",
        " ",
        "  ",
        " a",
        "a ",
        "\t",
        "a\tb",
        "NULL",
        "null",
        "\\N",
        "N",
        "\\.",
        ".",
        "\\",
        "\\\\",
    ),
    *(
        "\\n",
        "\\t",
        "\\r",
        "\\0",
        "\\x41",
        "a\\",
        "\\a",
        "\\,",
        '\\"',
        '"\\',
        "\\\n",
        "#",
        "#a",
        "-",
    ),
    *("'", "''", "it's", "=1+1", "0010", "1e5", "true", "nan", "inf", "2024-01-31", "x" * 5000),
    *(
        "\r",
        "\n",
        "\r\n",
        "\n\r",
        "\r\r\n",
        "a\rb",
        "a\nb",
        "a\r\nb",
        "\na",
        "a\n",
        "a\r",
        "\r\na\r\n",
    ),
    *(
        "ne\u0301e",
        "\u202eabc",
        "👩\u200d👩\u200d👧",
        "İıßẞ",
        "表ソ能\\",
        "－～〜",
        "\U0001f600" * 20,
    ),
)


def every_plane() -> Iterator[str]:
    """Yield texts with each basic character once, and some of each plane, noncharacters among them."""
    for start in range(0, 0x10000, RUN_CHARACTERS):
        run = "".join(chr(c) for c in range(start, start + RUN_CHARACTERS) if c not in SURROGATES)
        if run:
            yield run
    for plane in range(1, 17):
        first = plane << 16
        for offset in (0, 1, 0x7FFF, 0x8000, 0xFFFD, 0xFFFE, 0xFFFF):
            yield f"p{chr(first + offset)}q"


def placed(piece: str, by: str = "a") -> Iterator[str]:
    """Yield a piece alone, repeated, and in each place of a text."""
    yield from (piece, piece * 2, piece * 3, by + piece, piece + by, by + piece + by)
    yield from (piece + by + piece, by + piece * 2, piece * 2 + by, by + piece * 2 + by)


def of_marks(format: TextFormat) -> Iterator[str]:
    """Yield texts of a dialect's marks: in each place, in halves, doubled, next to one another."""
    marks = [m for m in (format.delimiter, format.enclosure, format.eol, format.null, "\\") if m]
    halves = {mark[:n] for mark in marks for n in range(1, len(mark))}
    halves |= {mark[n:] for mark in marks for n in range(1, len(mark))}
    pieces = [*marks, *sorted(halves)]
    for piece in pieces:
        yield from placed(piece)
        yield from placed(piece, by=" ")
    for one in pieces:
        for other in pieces:
            yield from (one + other, one + "a" + other, other + one + other)


def hostile_texts(format: TextFormat) -> list[str]:
    """Return all texts that a dialect can write, each once.

    It refuses a value whose end cannot be told from the enclosure after it, as with `~~`, and a value
    with a text that the program for the dialect cannot read.
    """
    found: Iterable[str] = (*FIXED, *of_marks(format), *every_plane())
    controls = (text for code in CONTROLS for text in placed(chr(code)))
    unique = dict.fromkeys((*found, *controls))
    refused = refused_anywhere(format)
    written = [text for text in unique if not any(mark in text for mark in refused)]
    return [text for text in written if not _meets(text, format)]


def _meets(text: str, format: TextFormat) -> bool:
    mark = format.enclosure
    if format.escape == "backslash" or len(mark) < 2:
        return False
    rest, at = text + mark, 0
    while (found := rest.find(mark, at)) >= 0:
        at = found + len(mark)
    return at != len(rest)


def hostile_batch(texts: list[str], *, nulls: bool = True) -> pa.RecordBatch:
    """Return the texts in three columns, so that each stands first, between others and last.

    A number that counts the rows stands before the last; every fifth value is NULL, if any are.
    """
    values: list[str | None] = []
    for at, text in enumerate(texts):
        values += [None, text] if nulls and at % 4 == 0 else [text]
    columns = {
        "first": pa.array(values, pa.string()),
        "between": pa.array(values[::-1], pa.large_string()),
        "n": pa.array(range(len(values)), pa.int64()),
        "last": pa.array(values[3:] + values[:3], pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def rows_of(batch: pa.RecordBatch) -> list[tuple[str | None, ...]]:
    """Return the rows of a batch, each value as its text."""
    columns = [column.to_pylist() for column in batch.columns]
    return [
        tuple(None if value is None else str(value) for value in row)
        for row in zip(*columns, strict=True)
    ]
