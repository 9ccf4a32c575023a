"""The plain encoder against a value-by-value reference encoder and a reader, on random input.

The reference is written here from the format's description, in plain Python. Neither of the two
shares code with the encoder.
"""

import json
from datetime import date

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from writers.content.reading import Records
from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, check

QUICK = settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class Refused(Exception):
    """The reference cannot write a value."""


# --- values -------------------------------------------------------------------------------------

AWKWARD = st.text(
    st.sampled_from("ab ,;|~\"'<>\t\r\n\\.N0-é日😀\x00\x7f"), max_size=8
) | st.sampled_from(["", "\\N", "\\.", "NULL", "0", "true", "~", "~~", "~~~", "aba", "ab", "||"])

COLUMNS = {
    "string": (pa.string(), AWKWARD, str),
    "large_string": (pa.large_string(), AWKWARD, str),
    "view": (pa.string_view(), AWKWARD, str),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), AWKWARD, str),
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), str),
    "small": (pa.uint8(), st.integers(0, 255), str),
    "bool": (pa.bool_(), st.booleans(), lambda v: "true" if v else "false"),
    "decimal": (
        pa.decimal128(20, 8),
        st.decimals(
            allow_nan=False, allow_infinity=False, places=8, max_value=10**11, min_value=-(10**11)
        ),
        lambda v: format(v, ".8f"),
    ),
    "date": (pa.date32(), st.dates(), date.isoformat),
    "seconds": (
        pa.timestamp("s"),
        st.datetimes().map(lambda v: v.replace(microsecond=0)),
        lambda v: v.isoformat(sep=" "),
    ),
    "microseconds": (
        pa.timestamp("us"),
        st.datetimes(),
        lambda v: v.isoformat(sep=" ").rstrip("0") if v.microsecond else v.isoformat(sep=" "),
    ),
    "time": (
        pa.time64("us"),
        st.times(),
        lambda v: v.isoformat().rstrip("0") if v.microsecond else v.isoformat(),
    ),
    "binary": (pa.binary(), st.binary(max_size=5), lambda v: "\\x" + v.hex()),
    "list": (
        pa.list_(pa.string()),
        st.lists(AWKWARD | st.none(), max_size=3),
        lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":")),
    ),
}
NUMERIC = {"int", "small", "bool", "decimal"}


@st.composite
def tables(draw):
    """Column kinds, and rows of values that may be None."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | COLUMNS[kind][1] for kind in kinds))
    return kinds, draw(st.lists(row, max_size=6))


@st.composite
def formats(draw):
    """Formats that `check` accepts."""
    chosen = TextFormat(
        delimiter=draw(st.sampled_from([",", ";", "\t", "||", "|~|", "aba", "<|", "\x01", "-"])),
        enclosure=draw(st.sampled_from(['"', "'", "~~", "<>", '"a"', ""])),
        enclose=draw(st.sampled_from(["minimal", "strings", "all", "none"])),
        escape=draw(st.sampled_from(["double", "backslash", "none"])),
        null=draw(st.sampled_from(["", "\\N", "NULL", "0", "true", "\\\\", "b", "-"])),
        eol=draw(st.sampled_from(["\n", "\r\n", "\x02", ".\n", ";;"])),
        trailing_delimiter=draw(st.booleans()),
        record_length_digits=draw(st.sampled_from([0, 0, 3, 10])),
        header=draw(st.booleans()),
    )
    try:
        check(chosen)
    except FormatError:
        assume(False)
    return chosen


# --- the reference encoder ----------------------------------------------------------------------


def runs_into(text, mark):
    """Whether a reader looking for `mark` behind `text` finds it too early at the text's end."""
    rest = text + mark
    position = 0
    while (found := rest.find(mark, position)) >= 0:
        position = found + len(mark)
    return position != len(rest)


def enclosed(text, form):
    mark = form.enclosure
    if form.escape == "backslash":
        text = text.replace("\\", "\\\\").replace(mark[0], "\\" + mark[0])
    else:
        if (form.escape == "none" and mark in text) or runs_into(text, mark):
            raise Refused
        text = text.replace(mark, mark + mark)
    return mark + text + mark


def bare_escaped(text, form):
    special = {mark[0] for mark in (form.delimiter, form.eol, form.enclosure) if mark}
    codes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
    out = "".join(codes.get(c, "\\" + c if c in special else c) for c in text)
    if out == form.null:
        # NULL and - are the only NULL texts here that a harmless backslash can tell apart.
        out = {"NULL": "N\\ULL", "-": "\\-"}.get(text)
        if out is None:
            raise Refused
    return out


def bare_checked(text, form):
    ends = ["\r", "\n"] if set(form.eol) <= {"\r", "\n"} else [form.eol]
    marks = [form.delimiter, form.enclosure, *ends]
    if text == form.null or any(mark and mark in text for mark in marks):
        raise Refused
    if runs_into(text, form.delimiter) or (ends == [form.eol] and runs_into(text, form.eol)):
        raise Refused
    return text


def reference_field(text, form, is_text, single):
    if text is None:
        return form.null
    if any(character in text for character in form.refused):
        raise Refused
    if form.enclose == "none":
        return bare_escaped(text, form) if form.escape == "backslash" else bare_checked(text, form)
    if form.enclose == "all" or (form.enclose == "strings" and is_text):
        return enclosed(text, form)
    escaping = form.escape == "backslash"
    if (
        text == form.null
        or (escaping and ("\\" in text or text == "NULL"))
        or form.delimiter in text
        or form.enclosure in text
        or any(c in text for c in "\r\n" + form.eol)
        or runs_into(text, form.delimiter)
        or (single and text in ("", "\\."))
    ):
        return enclosed(text, form)
    return text


def reference_record(texts, kinds, form):
    fields = [
        reference_field(text, form, kind not in NUMERIC, len(kinds) == 1)
        for text, kind in zip(texts, kinds, strict=True)
    ]
    record = form.delimiter.join(fields)
    record += (form.delimiter if form.trailing_delimiter else "") + form.eol
    data = record.encode(form.encoding.removesuffix("-sig"))
    digits = form.record_length_digits
    if digits:
        prefix = f"{len(data):0{digits}}"
        if len(prefix) > digits:
            raise Refused
        data = prefix.encode(form.encoding.removesuffix("-sig")) + data
    return data


def texts_of(kinds, rows, form):
    forms = {kind: COLUMNS[kind][2] for kind in kinds}
    if form.binary == "hex":
        forms["binary"] = bytes.hex
    return [
        [None if v is None else forms[kind](v) for kind, v in zip(kinds, row, strict=True)]
        for row in rows
    ]


def batch_of(kinds, rows, before=0, behind=0):
    """A batch that is a slice of a longer one with `before` and `behind` more rows of nulls."""
    nothing = (None,) * len(kinds)
    padded = [nothing] * before + list(rows) + [nothing] * behind
    arrays = [
        pa.array([row[i] for row in padded], COLUMNS[kind][0]) for i, kind in enumerate(kinds)
    ]
    names = [f"c{i}" for i in range(len(kinds))]
    return pa.RecordBatch.from_arrays(arrays, names).slice(before, len(rows))


def outcome(kinds, rows, form, **padding):
    """The encoder's bytes, or None when it refuses."""
    batch = batch_of(kinds, rows, **padding)
    try:
        return bytes(PlainEncoder(batch.schema, form).encode(batch))
    except ValueNotRepresentable:
        return None


def reference_outcome(kinds, rows, form):
    try:
        return b"".join(reference_record(t, kinds, form) for t in texts_of(kinds, rows, form))
    except Refused:
        return None


@QUICK
@given(tables(), st.sampled_from(sorted(DIALECTS)), st.integers(0, 9), st.integers(0, 2))
def test_every_dialect_writes_the_reference_bytes(table, name, before, behind):
    """Each named dialect (ISO dates, spelled booleans) gives byte for byte the reference's bytes."""
    kinds, rows = table
    plain = {"date_format": None, "timestamp_format": None, "boolean": "true/false"}
    form = replace(DIALECTS[name], **plain)
    expected = reference_outcome(kinds, rows, form)
    assert outcome(kinds, rows, form, before=before, behind=behind) == expected


@settings(QUICK, max_examples=examples(100))
@given(tables(), formats())
def test_every_format_writes_the_reference_bytes(table, form):
    """Any format without contradiction gives the reference's bytes, or refuses when it does."""
    kinds, rows = table
    assert outcome(kinds, rows, form) == reference_outcome(kinds, rows, form)


@QUICK
@given(tables(), formats(), st.sampled_from(["latin-1", "cp932", "gb18030", "utf-16-le"]))
def test_other_encodings_write_the_reference_bytes(table, form, encoding):
    """Records in another encoding are the reference's, or refused where a character has no code."""
    kinds, rows = table
    fields = {f: getattr(form, f) for f in form.__struct_fields__}
    form = TextFormat(**{**fields, "encoding": encoding})
    try:
        expected = reference_outcome(kinds, rows, form)
    except UnicodeEncodeError:
        expected = None
    assert outcome(kinds, rows, form) == expected


@settings(QUICK, max_examples=examples(100))
@given(tables(), formats())
def test_a_reader_gets_back_every_value_and_every_null(table, form):
    """Each accepted value reads back exactly, NULL apart from every value."""
    kinds, rows = table
    data = outcome(kinds, rows, form)
    assume(data is not None)
    records = list(Records(form, len(kinds)).read(iter([data.decode()])))
    assert records == texts_of(kinds, rows, form)


@pytest.mark.parametrize("size", [1, 3])
@QUICK
@given(tables(), formats())
def test_cutting_into_batches_changes_nothing(size, table, form):
    """The same rows in small batches give the same bytes."""
    kinds, rows = table
    whole = outcome(kinds, rows, form)
    assume(whole is not None)
    batch = batch_of(kinds, rows)
    encoder = PlainEncoder(batch.schema, form)
    parts = [bytes(encoder.encode(batch.slice(at, size))) for at in range(0, len(rows), size)]
    assert b"".join(parts) == whole
    assert encoder.rows_encoded == len(rows)
