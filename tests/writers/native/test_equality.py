"""The native encoder writes the same bytes as the plain one, in buffers of any size."""

from __future__ import annotations

import gc
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from amounts import EVERYTHING, tries
from encoders.random_batches import encoder, formats, tables
from hypothesis import given
from long_tests import OTHER_ROUTES
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import Compression, FixedField, OutputSpec, TextFormat
from writers.native.encoder import NativeEncoder
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS
from writers.text.text_writer import TextWriter


def outcome(act):
    """What an act gives: bytes, or the error with all its words."""
    try:
        return bytes(act())
    except (FormatError, ValueNotRepresentable) as error:
        return type(error).__name__, str(error)


def story(name, batches, form):
    """Everything an encoder does with batches, up to its first error."""
    try:
        made = encoder(name, batches[0].schema, form)
    except FormatError as error:
        return [str(error)]
    told = [outcome(made.preamble), outcome(made.header)]
    for batch in batches:
        told.append(outcome(lambda batch=batch: made.encode(batch)))
        if isinstance(told[-1], tuple):
            return told
    return [*told, made.rows_encoded]


@tries(200)
@given(st.data())
def test_random_tables_give_the_same_bytes_or_the_same_error(data):
    """Any dialect, any types, any layout: same preamble, header, records, errors and row count."""
    form = data.draw(formats())
    batches = data.draw(tables(form))
    assert story("native", batches, form) == story("plain", batches, form)


TEXTS = [
    "plain", "", None, "a,b", 'say "hi"', '"', "~", "~~", "a~", "~~~a", "two\nlines", "\r\n", "\\N",
    "\\", "\\.", "NULL", "日本語😀", "  ", "1", "-", "tab\tab", "|", "a|", "||", "é" * 40, "x" * 300,
    "x\x00y",
]  # fmt: skip
MOMENTS = [datetime(2024, 2, 29, 23, 59, 59), None, datetime(1, 1, 1), datetime(9999, 12, 31)]
BYTES = [b"", None, b"h", b"hi", b"\x00\xff", bytes(range(40))]
SCALARS = {
    "null": (pa.null(), [None] * 3),
    "bool": (pa.bool_(), [True, False, None]),
    **{
        f"{sign}{bits}": (
            getattr(pa, f"{sign}{bits}")(),
            [0, None, 2 ** (bits - 1) - 1, 7 if sign == "uint" else -(2 ** (bits - 1))],
        )
        for sign in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "float32": (pa.float32(), [0.0, None, 1.5, -1e-7, float("inf"), 1e30]),
    "float64": (pa.float64(), [-0.0, None, 0.1, 1e23, float("nan"), 123456789012345.6]),
    "decimal128": (pa.decimal128(12, 2), [Decimal("0.00"), None, Decimal("-1234567890.12")]),
    "decimal128 wide": (pa.decimal128(38, 10), [Decimal(10) ** 27, None, -Decimal("1e-10")]),
    "decimal128 below 0": (pa.decimal128(5, -3), [Decimal(0), None, Decimal(-12000)]),
    "decimal256": (pa.decimal256(76, 0), [Decimal(10**75), None, Decimal(-1)]),
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "string_view": (pa.string_view(), TEXTS),
    "binary": (pa.binary(), BYTES),
    "large_binary": (pa.large_binary(), BYTES),
    "binary_view": (pa.binary_view(), BYTES),
    "fixed binary": (pa.binary(3), [b"abc", None, b"\x00\x01\xff"]),
    "date32": (pa.date32(), [date(1582, 10, 15), None, date(1, 1, 1)]),
    "date64": (pa.date64(), [date(2024, 1, 31), None]),
    "time32": (pa.time32("s"), [time(23, 59, 59), None, time()]),
    "time64": (pa.time64("us"), [time(1, 2, 3, 450000), None]),
    "seconds": (pa.timestamp("s"), MOMENTS),
    "microseconds": (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, 120000), *MOMENTS]),
    "nanoseconds": (pa.timestamp("ns", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
    "named zone": (pa.timestamp("s", "Europe/Paris"), [datetime(2024, 7, 1), None]),
    "duration": (pa.duration("s"), [3600, None]),
    "list": (pa.list_(pa.string()), [["a,b", None], None, []]),
    "uuid": (pa.uuid(), [uuid.UUID(int=5).bytes, None]),
}
FORMATS = {
    **DIALECTS,
    "all": TextFormat(enclose="all", null="NULL", trailing_delimiter=True),
    "all, backslash": TextFormat(enclose="all", escape="backslash", null="\\N", eol="\r\n"),
    "minimal, backslash": TextFormat(escape="backslash", null="\\\\"),
    "no escape": TextFormat(escape="none", enclosure="~~"),
    "none": TextFormat(enclose="none", delimiter="||", enclosure=""),
    "wide marks": TextFormat(delimiter="aba", enclosure="«»", eol="¶\n", null="-"),
    "numbers": TextFormat(decimal_separator=",", null="0", boolean="1/0", record_length_digits=6),
    "separator": TextFormat(delimiter=";", decimal_separator="٫", binary="base64", boolean="t/f"),
    "latin-1": TextFormat(encoding="latin-1", record_length_digits=4, binary="hex"),
    "utf-16": TextFormat(encoding="utf-16", record_length_digits=5, trailing_delimiter=True),
    "cp932": TextFormat(encoding="cp932", delimiter="|"),
    "masks": TextFormat(
        date_format='"on" DD, Month YYYY',
        timestamp_format="FMHH12:MI AM, DD.MM.YYYY",
        timestamp_tz_format="J TZH",
    ),
}


def both(batch: pa.RecordBatch, form: TextFormat) -> list[object]:
    """Return what both encoders make of a batch, once it is sure that it is the same."""
    native = story("native", [batch], form)
    assert native == story("plain", [batch], form)
    return native


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.long(OTHER_ROUTES) if number % 2 else ())
        for number, form in enumerate(FORMATS.values())
    ],
    ids=FORMATS,
)
def test_each_type_in_each_format_is_written_as_the_plain_encoder_does(form: TextFormat) -> None:
    """Every value alone and with its neighbours, beside another column and as the only one.

    Alone in a third of the formats, other values in each; in all of them in a run of everything.
    """
    first, step = (0, 1) if EVERYTHING else (list(FORMATS.values()).index(form) % 3, 3)
    for kind, values in SCALARS.values():
        array = pa.array(values, kind)
        for piece in (array, *(array.slice(row, 1) for row in range(first, len(array), step))):
            both(pa.RecordBatch.from_arrays([piece], ["c"]), form)
        pair = [array, pa.array(range(len(array)))]
        both(pa.RecordBatch.from_arrays(pair, ["c", "n"]), form)


@pytest.mark.parametrize("name", ["sqlldr-var", "rfc4180", "latin-1", "numbers"])
def test_rows_of_every_offset_come_out_of_buffers_of_every_size(name: str) -> None:
    """Records do not depend on where a batch begins, nor on the room that is given at a time."""
    form = FORMATS[name]
    texts = ["a", "b,c", None, "~dd", "e" * 50, ""] * 60
    moments = [MOMENTS[0], None, MOMENTS[2]] * 120
    whole = pa.record_batch(
        {"t": texts, "n": list(range(360)), "m": pa.array(moments, pa.timestamp("s"))}
    )
    for start, length in ((0, 360), (1, 300), (7, 9), (355, 5), (13, 0)):
        batch = whole.slice(start, length)
        expected = bytes(PlainEncoder(batch.schema, form).encode(batch))
        for room in (1, 40, 333, 5000, 1 << 20):
            found = bytearray()
            with NativeEncoder(batch.schema, form).rows(batch) as rows:
                while not rows.done:
                    buffer = bytearray(b"\xee" * room)
                    count = rows.fill(memoryview(buffer))
                    found += buffer[:count] if count else rows.next_records()
            assert found == expected


def test_rows_before_a_refused_one_are_counted_as_the_plain_encoder_counts() -> None:
    """The error names the row of the work unit, also in a later batch."""
    form = TextFormat(enclose="none", header=False)
    good = pa.record_batch({"a": ["x"] * 5, "b": ["y"] * 5})
    bad = pa.record_batch({"a": ["x", "x", "p,q"], "b": ["y", "p,q", "y"]})
    words = []
    for make in (PlainEncoder, NativeEncoder):
        encoder = make(good.schema, form)
        encoder.encode(good)
        with pytest.raises(ValueNotRepresentable) as caught:
            encoder.encode(bad)
        words.append(str(caught.value))
    assert words[0] == words[1]
    assert "column a, row 8" in words[0]


def test_what_the_plain_encoder_can_write_is_written_where_the_library_stops() -> None:
    """Characters to be substituted are unknown to the library; its own records stand before."""
    form = TextFormat(encoding="latin-1", substitute="?", record_length_digits=3)
    texts = ["é", "plain", "日本", "a,b"] * 100
    assert "日".encode() not in both(pa.record_batch({"a": texts, "b": texts}), form)[2]


def test_records_of_fixed_width_are_those_of_the_plain_encoder() -> None:
    """Padded at either end, NULL and refusals included, in any encoding."""
    rows = {
        "a": ["ab", "ä", None, "x  ", "long text"],
        "b": [1, None, -30, 4, 5],
        "c": pa.array(
            [Decimal("1.5"), None, Decimal("-2.5"), Decimal(0), None], pa.decimal128(9, 2)
        ),
        "d": ["c", "", "d  ", "e ", "f"],
    }
    batch = pa.record_batch(rows)
    written = 0
    for encoding in ("utf-8", "latin-1", "utf-16", "cp037"):
        for padded in (False, True):
            for null in ("", "NUL", "x"):
                fields = tuple(
                    FixedField(start=8 * i, width=8, right=i in (1, 2), padded=padded)
                    for i in range(4)
                )
                form = TextFormat(header=False, null=null, encoding=encoding, fixed=fields)
                for row in range(5):
                    written += len(both(batch.slice(row, 1), form)) == 4
                both(batch.slice(0, 1), form)
    assert written > 20


def test_the_memory_of_a_batch_is_let_go() -> None:
    """Once the rows are written, or given up half-way."""
    gc.collect()
    before = pa.total_allocated_bytes()
    batch = pa.record_batch({"a": pa.array(["some text"] * 10_000)})
    encoder = NativeEncoder(batch.schema, TextFormat())
    with encoder.rows(batch) as rows:
        rows.fill(memoryview(bytearray(1000)))
    encoder.encode(batch)
    del batch, rows
    gc.collect()
    assert pa.total_allocated_bytes() - before < 1000


def test_buffers_of_many_sizes_leave_nothing_for_the_garbage_collector() -> None:
    """The rest of a buffer has another size each time, and a run has millions of them."""
    batch = pa.record_batch({"a": pa.array([1])})
    encoder = NativeEncoder(batch.schema, TextFormat())
    memory = memoryview(bytearray(2000))
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for size in range(1000, 2000):
            with encoder.rows(batch) as rows:
                rows.fill(memory[:size])
        assert len(gc.get_objects()) - before < 500
    finally:
        gc.enable()


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("limit", [0, 3_000])
def test_files_are_the_same_with_either_encoder(tmp_path: Path, codec: str, limit: int) -> None:
    """Names, where each one ends, and bytes; the buffers may be smaller than a record."""
    texts = ["x" * (n % 90) + '",' * (n % 3) for n in range(700)]
    batch = pa.record_batch({"n": list(range(700)), "t": texts})
    for buffer in (150, 1 << 20):
        found = []
        for choice in ("plain", "native"):
            directory = tmp_path / f"{choice}{buffer}"
            directory.mkdir()
            spec = OutputSpec(
                directory=str(directory),
                format=replace(DIALECTS["sqlldr-var"], header=True, record_length_digits=5),
                compression=Compression(codec=codec),
                file_size_bytes=limit,
                buffer_bytes=buffer,
                encoder=choice,
            )
            writer = TextWriter(spec, batch.schema, "part")
            for start in range(0, 700, 300):
                writer.write(batch.slice(start, 300))
            found.append(writer.close())
        assert found[0] == found[1]
        assert (len(found[0]) > 1) == bool(limit)
