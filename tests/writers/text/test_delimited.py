"""The plain encoder through its public way in, read back with other people's readers."""

import io
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pytest
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.text.delimited import PlainEncoder
from writers.text.dialects import dialect

AWKWARD = [
    "plain", "", "a,b", 'say "hi"', '"', '""', "two\nlines", "\r\n", "cr\rcr", "tab\ttab",
    "\\N", "\\", "NULL", "日本語😀", " padded ", "\\.", "'", "~~", "0", "x\x00y",
]  # fmt: skip


def encoded(values, form, kind=None, name="c"):
    """Header and records of one column."""
    array = values if isinstance(values, pa.Array) else pa.array(values, kind or pa.string())
    schema = pa.schema([pa.field(name, array.type)])
    return records(pa.record_batch([array], schema=schema), form)


def records(batch, form):
    encoder = PlainEncoder(batch.schema, form)
    return encoder.header() + bytes(encoder.encode(batch))


def refusal(values, form, kind=None):
    with pytest.raises(ValueNotRepresentable) as caught:
        encoded(values, form, kind)
    return str(caught.value)


# --- the published sample -----------------------------------------------------------------------


def var_records(data, digits=10):
    """A reader of SQL*Loader's `var` records: each as long as its prefix says."""
    found = []
    while data:
        length = int(data[:digits])
        found.append(data[digits : digits + length])
        data = data[digits + length :]
    return found


def test_var_header_has_a_length_too():
    """A header in front of records with lengths is such a record itself."""
    data = encoded(["x"], replace(dialect("sqlldr-var"), header=True), name="längs")
    assert var_records(data) == ["~~längs~~,\r\n".encode(), b"~~x~~,\r\n"]


def test_record_too_long_for_its_prefix_is_refused():
    """A record of 100 bytes does not fit two digits, and the message names the row."""
    form = TextFormat(record_length_digits=2)
    assert encoded(["a" * 98], form).endswith(b"99" + b"a" * 98 + b"\n")
    assert "row 2: the record has 100 bytes" in refusal(["a", "a" * 99], form)


# --- other people's readers ---------------------------------------------------------------------


def test_pyarrow_csv_reads_values_and_nulls_back():
    """pyarrow's CSV reader gets back every value of rfc4180, NULL apart from the empty string."""
    values = [*AWKWARD, None]
    numbers = pa.array(range(len(values)))
    data = records(pa.record_batch([numbers, pa.array(values)], ["n", "v"]), dialect("rfc4180"))
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"v": pa.string()},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    assert table.column("v").to_pylist() == values


def test_mysql_values_have_its_escapes():
    """Text is enclosed with backslash escapes, NULL is a bare \\N, numbers are bare."""
    batch = pa.record_batch(
        [pa.array(['a"b', "c\\d", "\\N", None]), pa.array([1, None, 2, 3])], ["t", "n"]
    )
    expected = b'"a\\"b",1\n"c\\\\d",\\N\n"\\\\N",2\n\\N,3\n'
    assert records(batch, dialect("mysql")) == expected


# --- when a value is enclosed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (["a", "", None, 'q"', "a,b", "\r", "\n"], {}, b'a\n""\n\n"q"""\n"a,b"\n"\r"\n"\n"\n'),
        (["\\.", "\\.x"], {}, b'"\\."\n\\.x\n'),
        (["a;", "a"], {"eol": ";;"}, b'"a;";;a;;'),
        (["a|", "|a"], {"delimiter": "||"}, b'"a|"\n|a\n'),
        (["xab"], {"delimiter": "aba"}, b'"xab"\n'),
        (["\\", "a"], {"escape": "backslash", "null": "\\\\"}, b'"\\\\"\na\n'),
        (["NULL", None, "null"], {"null": "NULL"}, b'"NULL"\nNULL\nnull\n'),
        (["a", None], {"enclose": "all"}, b'"a"\n\n'),
        (["~", "a~~b"], {"enclosure": "<>"}, b"~\na~~b\n"),
        (["a<>b"], {"enclosure": "<>"}, b"<>a<><>b<>\n"),
        (["NULL", "a|b"], {"enclose": "none", "escape": "backslash", "null": "NULL",
                           "delimiter": "|", "enclosure": ""}, b"N\\ULL\na\\|b\n"),
    ],
)  # fmt: skip
def test_values_are_enclosed_or_escaped_where_a_reader_needs_it(values, options, expected):
    """Each rule on its own, as bytes."""
    assert encoded(values, TextFormat(header=False, **options)) == expected


def test_lone_backslash_dot_is_enclosed_only_in_a_single_column():
    """PostgreSQL takes it for the end of data only when it is alone on a line."""
    batch = pa.record_batch([pa.array(["\\."]), pa.array(["\\."])], ["a", "b"])
    assert records(batch, dialect("postgres")) == b"\\.,\\.\n"


@pytest.mark.parametrize(
    ("array", "null", "expected"),
    [
        (pa.array([0, 10, None]), "0", b'"0"\n10\n0\n'),
        (pa.array([0.5, None]), "0.5", b'"0.5"\n0.5\n'),
        (pa.array([Decimal("0.00"), None]), "0.00", b'"0.00"\n0.00\n'),
        (pa.array([True, False, None]), "true", b'"true"\nfalse\ntrue\n'),
        (pa.array([datetime(1970, 1, 1)], pa.date32()), "1970-01-01", b'"1970-01-01"\n'),
    ],
)
def test_numbers_and_dates_that_read_as_null_are_enclosed(array, null, expected):
    """A value of any type that equals the NULL text is told apart from NULL."""
    assert encoded(array, TextFormat(header=False, null=null)) == expected


def test_numbers_with_a_decimal_comma_are_enclosed():
    """A number that holds the delimiter is enclosed even where only text is to be."""
    array = pa.array([Decimal("1.5"), Decimal("-0.5")])
    form = TextFormat(header=False, decimal_separator=",", enclose="strings")
    assert encoded(array, form) == b'"1,5"\n"-0,5"\n'
    assert encoded(array, replace(form, delimiter=";")) == b"1,5\n-0,5\n"


def test_strings_encloses_text_and_times_but_not_numbers_and_booleans():
    """enclose=strings decides by the column's type."""
    day = datetime(2024, 1, 31)
    batch = pa.record_batch(
        [
            pa.array(["x"]),
            pa.array([1]),
            pa.array([True]),
            pa.array([day], pa.date32()),
            pa.array([b"\x01"]),
            pa.array([[1]]),
            pa.array([1.5]),
            pa.array([None], pa.null()),
        ],
        list("abcdefgh"),
    )
    form = TextFormat(header=False, enclose="strings")
    assert records(batch, form) == b'"x",1,true,"2024-01-31","\\x01","[1]",1.5,\n'


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "options", "words"),
    [
        ("a,b", {"enclose": "none"}, "holds ','"),
        ("a\nb", {"enclose": "none"}, "holds '\\n'"),
        ('a"b', {"enclose": "none"}, "holds '\"'"),
        ("", {"enclose": "none"}, "would read as NULL"),
        ("a|", {"enclose": "none", "delimiter": "||"}, "runs into"),
        ('a"b', {"escape": "none"}, "--escape none"),
        ("a~", {"enclosure": "~~", "enclose": "all"}, "runs into the enclosure"),
        (",a~", {"enclosure": "~~"}, "runs into the enclosure"),
        ("null", {"enclose": "none", "escape": "backslash", "null": "null"}, "would read as NULL"),
    ],
)
def test_what_cannot_be_written_is_refused_by_column_and_row(bad, options, words):
    """The message names column, row and what to change, and never the value."""
    message = refusal(["fine", None, bad, "fine", bad], TextFormat(**options))
    assert message.startswith("column c, row 3: ")
    assert words in message
    assert "Next: use" in message


def test_rows_are_counted_over_all_batches():
    """The row of an error is counted from the start of the work unit."""
    batch = pa.record_batch([pa.array(["a", "b", "c"])], ["c"])
    bad = pa.record_batch([pa.array(["x", 'q"', "y"])], ["c"])
    encoder = PlainEncoder(batch.schema, TextFormat(escape="none"))
    encoder.encode(batch)
    encoder.encode(batch)
    with pytest.raises(ValueNotRepresentable, match="column c, row 8: "):
        encoder.encode(bad)


def test_types_without_text_are_refused_before_any_row():
    """A union has no text; the message names the column and both ways out."""
    kind = pa.sparse_union([pa.field("a", pa.int32())])
    for odd in (kind, pa.list_(kind)):
        with pytest.raises(FormatError, match=r"column u has the type .* Next: "):
            PlainEncoder(pa.schema([("u", odd)]), TextFormat())
    with pytest.raises(FormatError, match="no column"):
        PlainEncoder(pa.schema([]), TextFormat())


def test_zone_elements_need_a_zone():
    """TZH on a column without a time zone is refused before any row."""
    schema = pa.schema([("t", pa.timestamp("us"))])
    with pytest.raises(FormatError, match="column t has a time zone element"):
        PlainEncoder(schema, TextFormat(timestamp_format="HH24TZH"))


# --- header, preamble, encodings ----------------------------------------------------------------


def test_byte_order_mark_is_the_preamble_only():
    """utf-8-sig and utf-16 have their mark in the preamble, not in front of each batch."""
    for name, mark, codec in [
        ("utf-8-sig", b"\xef\xbb\xbf", "utf-8"),
        ("UTF-16", b"\xff\xfe", "utf-16-le"),
    ]:
        encoder = PlainEncoder(pa.schema([("c", pa.string())]), TextFormat(encoding=name))
        batch = pa.record_batch([pa.array(["é"])], ["c"])
        assert encoder.preamble() == mark
        assert encoder.header() == "c\n".encode(codec)
        assert bytes(encoder.encode(batch)) * 2 == "é\né\n".encode(codec)
        encoder.encode(batch)


@pytest.mark.parametrize("digits", [0, 10])
@pytest.mark.parametrize(
    ("encoding", "character"), [("latin-1", "€"), ("cp932", "é"), ("shift_jis", "¥")]
)
def test_characters_the_encoding_cannot_hold_are_refused(encoding, character, digits):
    """Nothing is replaced, not even where the codec would (shift_jis writes ¥ as a backslash)."""
    form = TextFormat(header=False, encoding=encoding, record_length_digits=digits)
    message = refusal(["a", None, character + "x"], form)
    assert message.startswith("column c, row 3: ")
    assert f"U+{ord(character):04X}" in message


def test_empty_batches_and_slices():
    """A batch without rows is no bytes; a slice is its own rows only."""
    batch = pa.record_batch({"a": ["x", "y", "z"], "b": [1, 2, 3]})
    encoder = PlainEncoder(batch.schema, dialect("sqlldr-var"))
    assert bytes(encoder.encode(batch.slice(0, 0))) == b""
    whole = bytes(encoder.encode(batch)).splitlines(keepends=True)
    assert bytes(encoder.encode(batch.slice(1, 1))) == whole[1]


def test_batches_past_the_reach_of_32_bit_offsets(monkeypatch):
    """Arrays too large for 32-bit offsets take 64-bit ones and give the same bytes.

    The limit of 2 GiB is lowered here, since a batch that large does not fit a test.
    """
    values = pa.array([*AWKWARD, None] * 3)
    binary = pa.array([v and v.encode() for v in values.to_pylist()])
    batch = pa.record_batch(
        [values, binary, values.dictionary_encode(), pa.array([[v] for v in values.to_pylist()])],
        list("abcd"),
    )
    forms = [dialect(name) for name in ("rfc4180", "tsv", "mysql")]
    forms.append(replace(dialect("sqlldr-var"), enclosure="<>"))
    expected = [records(batch, form) for form in forms]
    for module in ("string_arrays", "binary_texts", "delimited", "arrow_csv", "text_values"):
        monkeypatch.setattr(f"writers.text.{module}.STRING_LIMIT", 64)
    assert [records(batch, form) for form in forms] == expected


def test_a_dialects_mask_may_not_cost_a_fraction():
    """sqlldr-var refuses a fraction its mask leaves out; a mask of the user's own decides."""
    whole, parts = datetime(2024, 1, 31, 23, 59, 59), datetime(2024, 1, 31, 23, 59, 59, 500)
    kind = pa.timestamp("us")
    assert b"~~20240131235959~~" in encoded([whole], dialect("sqlldr-var"), kind)
    message = refusal([whole, parts], dialect("sqlldr-var"), kind)
    assert "column c, row 2" in message
    assert "--timestamp-format" in message
    longer = replace(dialect("sqlldr-var"), timestamp_format="YYYYMMDDHH24MISSFF6")
    assert b"~~20240131235959000500~~" in encoded([parts], longer, kind)
    shorter = replace(dialect("sqlldr-var"), timestamp_format="YYYYMMDDHH24MISSFF3")
    assert "row 1" in refusal([parts], shorter, kind)
    own = TextFormat(timestamp_format="HH24:MI:SS", header=False)
    assert encoded([parts], own, kind) == b"23:59:59\n"


@pytest.mark.parametrize(("form", "text"), [("true/false", b"true"), ("t/f", b"t"), ("1/0", b"1")])
def test_boolean_words(form, text):
    """Booleans have the words asked for, NULL stays NULL, and JSON keeps its own words."""
    options = TextFormat(boolean=form, header=False)
    other = form.partition("/")[2].encode()
    assert encoded([True, None, False], options, pa.bool_()) == text + b"\n\n" + other + b"\n"
    assert encoded([[True]], options, pa.list_(pa.bool_())) == b"[true]\n"


def test_numbers_carried_as_text_are_numbers():
    """A field marked as a number is not enclosed as a string and gets the decimal separator."""
    schema = pa.schema([pa.field("n", pa.string(), metadata={"text_class": "number"})])
    batch = pa.record_batch([pa.array(["0.10", "1e-130", None])], schema=schema)
    strings = TextFormat(enclose="strings", header=False, decimal_separator=",", delimiter=";")
    assert records(batch, strings) == b"0,10\n1e-130\n\n"
