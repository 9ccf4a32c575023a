"""Wide rows in COPY's text: found where they are, read in pieces as they would be whole."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from unloader.sources.postgres.parse import CopyParser, WideRows, records
from writers.held_values import LEAST_BYTES, PIECE_BYTES
from writers.large_rows import LargeRow

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.binary()), ("n", pa.int64())])


def field(text: str | None, *, quoted: bool) -> str:
    """Return a text as COPY writes it."""
    if text is None:
        return ""
    return '"' + text.replace('"', '""') + '"' if quoted else text


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the rows that a text gives, each wide one put together again."""
    found = []
    wide = WideRows(SCHEMA, CopyParser(SCHEMA), 2 * LEAST_BYTES)
    for item in wide.rows(memoryview(text.encode())):
        if not isinstance(item, LargeRow):
            found += item.to_pylist()
            continue
        (row,) = item.row.to_pylist()
        for index, value in item.values:
            empty: Any = b"" if value.binary else ""
            row[SCHEMA.field(index).name] = empty.join(value.pieces())
        found.append(row)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_the_whole_text(seed: int) -> None:
    """Quotes, line ends and characters of several bytes may lie across any two pieces."""
    rng = random.Random(seed)
    expected, text = [], ""
    for number in range(6):
        size = rng.choice([0, 5, LEAST_BYTES, PIECE_BYTES, 2 * PIECE_BYTES + 1])
        units = rng.choice(['"', '""é', "€,\n", "\U0001f600", 'x"', "plain"])
        long = "x" * rng.randrange(4) + (units * size)[:size] + '"' * rng.randrange(4)
        data = rng.randbytes(rng.choice([0, 3, LEAST_BYTES]))
        row = {"a": long or None, "b": data or None, "n": number}
        quoted = bool(set(long) & set('",\n'))
        fields = (field(row["a"], quoted=quoted), row["b"].hex() if row["b"] else "", str(number))
        expected.append(row)
        text += ",".join(fields) + "\n"
    assert rows_of(text) == expected


def test_fields_of_records() -> None:
    """NULL and the empty text are distinguished, and a line end inside quotes ends nothing."""
    text = b'a,"b ""\n"",",,""\n\n"",c\n'
    found = [[bytes(text[f.start : f.end]) for f in row] for row in records(memoryview(text))]
    assert found == [[b"a", b'"b ""\n"","', b"", b'""'], [b""], [b'""', b"c"]]
