"""Write the dialects and schemas that fuzzed inputs choose from, and a first corpus.

    python dialect_table.py DIALECTS CORPUS

The property tests make them, as many as `DIALECTS` holds; `dialects.cpp` reads the file. The
library gets the description of `writers.native.description`. The round trip is checked against the
options as a user gives them.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from encoders.random_batches import formats  # noqa: E402

from writers.errors import FormatError  # noqa: E402
from writers.model import TextFormat  # noqa: E402
from writers.native.description import Kind, describe_format, is_known  # noqa: E402
from writers.text.dialects import DIALECTS as NAMED  # noqa: E402
from writers.text.dialects import check  # noqa: E402

COUNT = 600
SEEDS = 64
ENCODINGS = ("utf-8", "utf-8", "utf-8", "latin-1", "utf-16-le")
ESCAPES = ("double", "backslash", "none")
BINARY = ("prefixed-hex", "hex", "base64")
SIMPLE = (
    *(pa.string(), pa.string(), pa.string(), pa.large_string(), pa.string_view(), pa.binary()),
    *(pa.large_binary(), pa.binary_view(), pa.binary(3), pa.uuid(), pa.bool_(), pa.int8()),
    *(pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.null()),
)
INDEXES = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64())


@st.composite
def types(draw: st.DrawFn) -> pa.DataType:
    """Draw the type of a column that the decoder can check."""
    if draw(st.integers(0, 5)) == 0:
        precision = draw(st.integers(1, 38))
        return pa.decimal128(precision, draw(st.integers(-3, precision)))
    kind = draw(st.sampled_from(SIMPLE))
    encoded = draw(st.integers(0, 6)) == 0 and kind not in (pa.null(), pa.uuid())
    return pa.dictionary(draw(st.sampled_from(INDEXES)), kind) if encoded else kind


def packed(schema: pa.Schema, form: TextFormat) -> bytes:
    """Return a dialect and schema as `read_dialect` in dialects.cpp takes them."""
    description, kinds = describe_format(schema, form)
    texts = (form.delimiter, form.enclosure, form.null, form.eol, form.decimal_separator)
    data = [description, *(text.encode() for text in (*texts, *form.boolean.split("/")))]
    facts = struct.pack(
        "<6Bi",
        form.enclose != "none",
        ESCAPES.index(form.escape),
        form.trailing_delimiter,
        form.record_length_digits,
        BINARY.index(form.binary),
        {"utf-8": 0, "latin-1": 1, "utf-16-le": 2}[form.encoding],
        len(schema),
    )
    columns = b"".join(map(column, schema.types, kinds))
    return b"".join(struct.pack("<i", len(text)) + text for text in data) + facts + columns


def column(stored: pa.DataType, kind: Kind | None) -> bytes:
    """Return what a column is to the fuzz target."""
    assert kind is not None, f"{stored} is not for the library"
    index = Kind.NONE
    if pa.types.is_dictionary(stored):
        index, stored = Kind[str(stored.index_type).upper()], stored.value_type
    width = stored.byte_width if pa.types.is_fixed_size_binary(stored) else 0
    scale = 0
    if pa.types.is_decimal(stored):
        width, scale = stored.bit_width // 8, stored.scale
    return struct.pack("<BBii", kind, index, width, scale)


def table(count: int) -> list[bytes]:
    """Return that many dialects, the named ones first, the same at every call."""
    found: list[bytes] = []
    plain = {"date_format": None, "timestamp_format": None, "timestamp_tz_format": None}

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        formats(encodings=False),
        st.sampled_from(ENCODINGS),
        st.lists(types(), min_size=1, max_size=4),
    )
    def add(form: TextFormat, encoding: str, kinds: list[pa.DataType]) -> None:
        if len(found) < 2 * len(NAMED):
            form, encoding = list(NAMED.values())[len(found) % len(NAMED)], "utf-8"
        form = replace(form, encoding=encoding, **plain)
        try:
            check(form)
        except FormatError:
            assume(False)
        assume(is_known(form))
        found.append(packed(pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)]), form))

    add()
    return found


def main() -> None:
    """Write the table and the corpus."""
    dialects, corpus = map(Path, sys.argv[1:])
    dialects.write_bytes(b"".join(table(COUNT)))
    corpus.mkdir(parents=True, exist_ok=True)
    seeded = random.Random(7)
    for number in range(SEEDS):
        data = bytes(seeded.randrange(256) for _ in range(seeded.randrange(20, 600)))
        (corpus / f"seed-{number}").write_bytes(data)


if __name__ == "__main__":
    main()
