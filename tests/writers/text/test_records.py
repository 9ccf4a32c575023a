"""Records of the plain encoder: enclosures, headers, formulas, and substitutes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from encoders.random_batches import NAMES
from encoders.sqlldr_rules import var_records
from encoders.writer_contract import PiecedText
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow
from writers.model import Compression, OutputSpec, TextFormat
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, dialect
from writers.text.enclosing import FormulaGuard
from writers.text.text_writer import EncodedTextWriter, TextWriter, file_start, start_of_names

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


def test_var_header_has_a_length_too():
    """A header before records with lengths is such a record itself."""
    data = encoded(["x"], replace(dialect("sqlldr-var"), header=True), name="längs")
    assert var_records(data, 10) == ["~~längs~~,\r\n".encode(), b"~~x~~,\r\n"]


def test_record_too_long_for_its_prefix_is_refused():
    """A record of 100 bytes does not fit two digits, and the message names the row."""
    form = TextFormat(record_length_digits=2)
    assert encoded(["a" * 98], form).endswith(b"99" + b"a" * 98 + b"\n")
    assert "row 2: the record has 100 bytes" in refusal(["a", "a" * 99], form)


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
    """A value of any type that equals the NULL text is distinguished from NULL."""
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


def test_byte_order_mark_is_the_preamble_only():
    """utf-8-sig and utf-16 have their mark in the preamble, not before each batch."""
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
    assert "--encoding utf-8" in message
    assert "--substitute" in message


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
    for module in ("string_arrays", "delimited", "text_values"):
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


MARK = "\ufeff"
BARE = TextFormat(header=False)


def spec(directory: Path, text: TextFormat, **changes: object) -> OutputSpec:
    """Return a spec for a dialect without compression."""
    return OutputSpec(directory=str(directory), format=text, compression=Compression(), **changes)


def written(directory: Path, text: TextFormat, values: list[str], **changes: object) -> list[bytes]:
    """Return the files of a text column and the number 7 beside each value."""
    batch = pa.record_batch({"s": values, "n": [7] * len(values)})
    writer = TextWriter(spec(directory, text, **changes), batch.schema, "t")
    writer.write(batch)
    return [(directory / each.path).read_bytes() for each in writer.close()]


@pytest.mark.parametrize("encoder", NAMES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
@pytest.mark.parametrize(
    ("delimiter", "eol"), [(",", "\n"), ("\u201a\u2c00", "\r\n"), ("||", "<EOR>")]
)
def test_only_the_first_cell_of_a_file_is_enclosed(tmp_path, encoder, encoding, delimiter, eol):
    """The bytes equal the records, with two enclosures around the first cell."""
    text = replace(BARE, encoding=encoding, delimiter=delimiter, eol=eol)
    (data,) = written(tmp_path, text, [MARK + "a", "b", MARK + "c"], encoder=encoder)
    records = f'"{MARK}a"{delimiter}7{eol}b{delimiter}7{eol}{MARK}c{delimiter}7{eol}'
    found = data.decode(encoding)
    assert found == records


def test_each_file_of_a_unit_has_a_first_cell(tmp_path):
    """A file that starts after another reached its size is looked at, too."""
    files = written(tmp_path, BARE, [MARK + "a"] * 4, file_size_bytes=1)
    assert files == [f'"{MARK}a",7\n'.encode()] * 4


@pytest.mark.parametrize("value", [MARK, MARK + "a,b", MARK + 'a"b', MARK + "x" * 9_000_000])
def test_python_reads_the_first_value_back(tmp_path, value):
    """A value alone, with marks, and one that is encoded in pieces."""
    (data,) = written(tmp_path, BARE, [value, "b"])
    limit = csv.field_size_limit(1 << 30)
    try:
        found = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    finally:
        csv.field_size_limit(limit)
    assert found == [[value, "7"], ["b", "7"]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_ready_text_in_pieces_of_any_size(tmp_path, size):
    """Text from the source is enclosed as our own is, wherever its pieces end."""
    records = f"{MARK}abc,7\nb,7\n".encode()
    writer = EncodedTextWriter(spec(tmp_path, BARE), "t")
    for start in range(0, len(records), size):
        writer.write(records[start : start + size])
    (file,) = writer.close(2)
    assert (tmp_path / file.path).read_bytes() == f'"{MARK}abc",7\nb,7\n'.encode()
    assert writer.records == 2


def test_ready_text_of_a_few_bytes_is_kept(tmp_path):
    """What may still become the mark is written when the file ends."""
    writer = EncodedTextWriter(spec(tmp_path, BARE), "t")
    writer.write(MARK.encode()[:2])
    (file,) = writer.close(1)
    assert (tmp_path / file.path).read_bytes() == MARK.encode()[:2]


def test_the_first_name_of_a_header_is_enclosed(tmp_path):
    """With a header it is its first name that matters, and no value."""
    names = [MARK + "s", MARK + "n"]
    header = f'"{MARK}s",{MARK}n\n'.encode()
    assert start_of_names(names, TextFormat()) == header
    schema = pa.schema([(name, pa.string()) for name in names])
    assert file_start(schema, TextFormat()) == header
    assert written(tmp_path, TextFormat(), [MARK]) == [f"s,n\n{MARK},7\n".encode()]


def test_what_cannot_be_enclosed_is_refused(tmp_path):
    """A dialect without enclosures names the column and the way out."""
    text = replace(DIALECTS["tsv"], header=False)
    with pytest.raises(ValueNotRepresentable, match=r"column s, row 1: .*U\+FEFF.*--header"):
        written(tmp_path, text, [MARK])
    with pytest.raises(FormatError, match=r"the first column begins with U\+FEFF.*--no-header"):
        start_of_names([MARK], DIALECTS["tsv"])


class BehindNothing(PiecedText):
    """A text whose first piece is empty."""

    def pieces(self) -> Iterator[str]:
        yield ""
        yield from super().pieces()


DANGEROUS = (
    *("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx"),
    *("＝1", "＋1", "－1", "＠x", "=", "-"),
)
HARMLESS = ("", "a=1", "'=1", " =1", "1-1", "−1", "0", "\\=1", "é")


def guarded_text(value: str | None) -> str | None:
    if value and (value[0] in "=+-@" or value[0] in "\t\r\n" or value[0] in "＝＋－＠"):
        return "'" + value
    return value


def written_guarded(tmp_path: Path, rows: Any, **format: Any) -> bytes:
    """Return what a writer makes of a table, or of rows with large values."""
    encoder = format.pop("encoder", "auto")
    shape = TextFormat(guard_formulas=True, **format)
    spec = OutputSpec(
        directory=str(tmp_path), format=shape, compression=Compression(), encoder=encoder
    )
    table = rows if isinstance(rows, pa.Table) else None
    writer = TextWriter(spec, rows.schema if table is not None else rows[0].row.schema, "t")
    for batch in () if table is None else table.to_batches():
        writer.write(batch)
    for row in () if table is not None else rows:
        writer.write_large(row)
    (file,) = writer.close()
    path = Path(file.path) if Path(file.path).is_absolute() else tmp_path / file.path
    return path.read_bytes()


@pytest.mark.parametrize("encoder", NAMES)
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_that_begin_like_a_formula_have_a_quote(
    tmp_path: Path, encoder: str, kind: pa.DataType
) -> None:
    """Each of the beginnings, wherever else the sign stands; NULL and empty texts stay."""
    values = [*DANGEROUS, None, *HARMLESS]
    table = pa.table({"v": pa.array(values, pa.string()).cast(kind), "n": list(range(len(values)))})
    text = written_guarded(tmp_path, table, encoder=encoder, null="NULL").decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    wanted = ["NULL" if value is None else guarded_text(value) for value in values]
    assert [row[0] for row in rows] == wanted


@pytest.mark.parametrize("encoder", NAMES)
def test_what_is_no_text_is_not_touched(tmp_path: Path, encoder: str) -> None:
    """Numbers keep their sign, also those carried as text, and so do dates before our era."""
    number = pa.field("number", pa.string(), metadata={"text_class": "number"})
    fields = [
        pa.field("i", pa.int64()),
        pa.field("d", pa.decimal128(5, 2)),
        pa.field("f", pa.float64()),
        number,
        pa.field("day", pa.date32()),
    ]
    columns = [
        pa.array([-1]), pa.array([Decimal("-1.50")], pa.decimal128(5, 2)), pa.array([-0.5]),
        pa.array(["-12345678901234567890"]), pa.array([date(2026, 1, 2)]),
    ]  # fmt: skip
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    text = written_guarded(tmp_path, table, encoder=encoder).decode()
    assert text.splitlines()[1] == "-1,-1.50,-0.5,-12345678901234567890,2026-01-02"


@pytest.mark.parametrize("value", ["=" + "x" * 100_000, "x=" * 50_000])
def test_large_texts_are_guarded_piece_by_piece(tmp_path: Path, value: str) -> None:
    """Only the beginning of a large value counts, and empty pieces before it do not."""
    schema = pa.schema([pa.field("v", pa.string()), pa.field("b", pa.binary())])

    row = pa.RecordBatch.from_arrays([pa.nulls(1, pa.string()), pa.array([b"="])], schema=schema)
    text = written_guarded(
        tmp_path,
        [LargeRow(row=row, values=((0, BehindNothing(text=value, piece_characters=7_000)),))],
        header=False,
    )
    assert text.decode() == f"{guarded_text(value)},\\x3d\n"


@given(st.lists(st.one_of(st.none(), st.text(alphabet="=+-@\t\r\n'\"a,＝−", max_size=4))))
def test_the_rule_holds_for_any_texts(values: list[str | None]) -> None:
    """Arrow's way of guarding follows the rule, for any texts in the column."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["v"])
    guarded = FormulaGuard(batch.schema).batch(batch)
    assert guarded.column(0).to_pylist() == list(map(guarded_text, values))


def written_with_substitutes(values: list[str | None], **options: object) -> bytes:
    """Return the file of one column of text."""
    batch = pa.record_batch([pa.array(values, pa.string())], ["text"])
    encoder = PlainEncoder(batch.schema, TextFormat(header=False, **options))  # type: ignore[arg-type]
    return bytes(encoder.encode(batch))


def pieces(text: str, size: int, format: TextFormat) -> Iterator[bytes]:
    schema = pa.schema([("text", pa.string())])
    row = pa.record_batch([pa.array([None], pa.string())], schema=schema)
    yield from PlainEncoder(schema, format).encode_large(
        LargeRow(row=row, values=((0, PiecedText(text=text, piece_characters=size)),))
    )


def test_each_character_that_is_lacking_becomes_the_substitute() -> None:
    """Others stay, NULL stays NULL, and a value may be longer than before."""
    values = ["naïve", "10 €", None, "€€", "plain"]
    expected = "naïve\n10 EUR\n\nEUREUR\nplain\n".encode("latin-1")
    assert (
        written_with_substitutes(values, encoding="latin-1", substitute="EUR", null="") == expected
    )


def test_a_substitute_is_enclosed_and_escaped_like_any_text() -> None:
    """One that holds the delimiter or the enclosure can still be read."""
    assert written_with_substitutes(["a€"], encoding="latin-1", substitute=",") == b'"a,"\n'
    assert written_with_substitutes(["a€"], encoding="latin-1", substitute='"') == b'"a"""\n'
    assert (
        written_with_substitutes(["a€"], encoding="latin-1", substitute="\n", escape="backslash")
        == b'"a\n"\n'
    )
    assert (
        written_with_substitutes(["€"], encoding="latin-1", substitute="NIL", null="NIL")
        == b'"NIL"\n'
    )


def test_what_would_read_back_as_another_character_is_substituted() -> None:
    """Shift JIS has a code for the yen sign that reads back as a backslash."""
    assert written_with_substitutes(["¥5"], encoding="shift_jis", substitute="JPY ") == b"JPY 5\n"


def test_a_substitute_must_be_encodable_itself() -> None:
    """It is refused before any row."""
    with pytest.raises(FormatError, match=r"--substitute '€' holds U\+20AC"):
        written_with_substitutes(["x"], encoding="latin-1", substitute="€")


def test_names_of_columns_are_written_as_values_are() -> None:
    """The header has the substitute, too."""
    schema = pa.schema([("preis_€", pa.int32())])
    format = TextFormat(encoding="latin-1", substitute="E")
    assert PlainEncoder(schema, format).header() == b"preis_E\n"


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("enclose", ["minimal", "strings", "all"])
def test_large_values_have_the_same_bytes(enclose: str, size: int) -> None:
    """In pieces of any length, the record equals the whole value's."""
    text = "10 €, 20 €€ é"
    format = TextFormat(
        encoding="latin-1",
        substitute=";,",
        enclose=enclose,  # type: ignore[arg-type]
        header=False,
        record_length_digits=6,
    )
    whole = written_with_substitutes(
        [text], encoding="latin-1", substitute=";,", enclose=enclose, record_length_digits=6
    )
    assert b"".join(pieces(text, size, format)) == whole


def test_names_of_columns_are_guarded_too(tmp_path: Path) -> None:
    """A header is a row of fields to a spreadsheet, on either way that one is made."""
    table = pa.table({"=cmd": ["x"], "plain": ["y"]})
    assert written_guarded(tmp_path, table).startswith(b"'=cmd,plain\n")
    assert start_of_names(["=cmd", "plain"], TextFormat(guard_formulas=True)) == b"'=cmd,plain\n"
    assert start_of_names(["=cmd"], TextFormat()) == b"=cmd\n"
