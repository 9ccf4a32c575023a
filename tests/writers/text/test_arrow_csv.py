"""Arrow's CSV writer as a joiner of columns: the bytes are those of joining them in another way."""

from __future__ import annotations

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import writers.text.arrow_csv
from writers.text.arrow_csv import csv_bytes, wrapped
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, dialect

QUICK = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TEXT = st.text(st.sampled_from('ab ~,;"\r\n\x01é日😀'), max_size=6)
PLAIN = st.text(st.sampled_from("ab ~.é日😀"), max_size=6)
KINDS = st.sampled_from([pa.string(), pa.large_string()])


def joined_by_hand(columns, delimiter, end, null):
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    lines = [delimiter.join(null if v is None else v for v in row) + end for row in rows]
    return "".join(lines).encode()


@QUICK
@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.tuples(*[st.none() | TEXT] * width), min_size=1, max_size=8)
    ),
    KINDS,
    st.sampled_from([",", ";", "\t", "||", "é"]),
    st.sampled_from(["\n", "\r\n", "~~", "\x02"]),
    st.sampled_from(["", "\\N", "NULL", '"']),
    st.integers(0, 3),
)
def test_columns_are_joined_or_left_to_the_caller(rows, kind, delimiter, end, null, before):
    """The bytes are those of joining by hand, or None; None only where a character demands it."""
    padded = [("under a null",) * len(rows[0])] * before + rows
    columns = [pa.array(values, kind).slice(before) for values in zip(*padded, strict=True)]
    expected = joined_by_hand(columns, delimiter, end, null)
    data = csv_bytes(columns, delimiter, end, null, len(expected) + 7)
    if data is not None:
        assert bytes(data) == expected
    values = "".join(value or "" for row in rows for value in row)
    if not set(values) & {'"', "\r", "\n", delimiter} and (end, null) == ("\n", ""):
        assert (data is not None) == (delimiter in ",;\t")


@QUICK
@given(
    st.lists(st.none() | PLAIN | TEXT, max_size=8),
    KINDS,
    st.sampled_from(['"', "~~", "é<", "a"]),
    st.integers(0, 2),
)
@example(["x", None, ""], pa.string(), "~~", 0)
def test_marks_are_put_around_every_value(values, kind, mark, before):
    """A column is wrapped, null for null, also a slice of one; or it is left to the caller."""
    texts = pa.array([None] * before + values, kind).slice(before)
    result = wrapped(texts, mark)
    if result is not None:
        assert result.to_pylist() == [None if v is None else mark + v + mark for v in values]
        result.validate(full=True)


def test_bytes_under_a_null_do_not_shift_the_values():
    """A null that hides bytes is no reason to write them, or to misplace what follows."""
    offsets = pa.py_buffer(pa.array([0, 1, 3, 4], pa.int32()).buffers()[1])
    texts = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"axxb")]
    )
    assert texts.to_pylist() == ["a", None, "b"]
    result = wrapped(texts, "~~")
    assert result is None or result.to_pylist() == ["~~a~~", None, "~~b~~"]
    schema = pa.schema([("c", pa.string())])
    batch = pa.record_batch([texts], schema=schema)
    data = bytes(PlainEncoder(schema, dialect("sqlldr-var")).encode(batch))
    assert data == b"0000000008~~a~~,\r\n0000000003,\r\n0000000008~~b~~,\r\n"


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_without_arrows_options_the_bytes_are_the_same(name, monkeypatch):
    """Versions of Arrow whose writer ends lines in LF only write every dialect just the same."""
    texts = ["plain", None, "", "a,b", 'q"q', "x~y", "日本\\", "two\nlines"]
    batch = pa.record_batch(
        [
            pa.array(texts),
            pa.array([t and t.replace('"', "") for t in texts], pa.large_string()),
            pa.array([None, 1, 2, 3, 4, 5, 6, 7], pa.int64()),
            pa.array([0, None, 2, 3, 4, 5, 6, 7], pa.timestamp("s")),
        ],
        names=["a", "b", "c", "d"],
    )

    def encoded(rows):
        return bytes(PlainEncoder(rows.schema, dialect(name)).encode(rows))

    parts = [batch, batch.slice(0, 3), batch.slice(5, 2)]
    found = [encoded(part) for part in parts]
    monkeypatch.setattr(writers.text.arrow_csv, "_can_end_lines", lambda: False)
    assert [encoded(part) for part in parts] == found
