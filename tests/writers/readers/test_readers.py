"""Other programs read the encoders' files, and distinguish NULL and the empty text."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of
from encoders.sqlldr_rules import (
    Field,
    FieldList,
    RejectedRecord,
    fixed_records,
    stream_records,
    var_records,
)
from msgspec.structs import replace

from writers.model import FixedField, TextFormat
from writers.text.dialects import DIALECTS, dialect

FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres", "mysql")},
    "strings": TextFormat(enclose="strings", delimiter=";", enclosure="'"),
    "all": TextFormat(enclose="all", delimiter="\t", null="-", trailing_delimiter=True),
    "backslashes": TextFormat(enclose="all", escape="backslash", delimiter="|"),
    "utf-16": TextFormat(encoding="utf-16", eol="\r\n"),
    "gb18030": TextFormat(encoding="gb18030", delimiter="，"),
}


def read(data, form):
    backslash = form.escape == "backslash"
    text = io.StringIO(data.decode(form.encoding), newline="")
    limit = csv.field_size_limit(1 << 30)
    try:
        return list(
            csv.reader(
                text,
                delimiter=form.delimiter,
                quotechar=form.enclosure,
                doublequote=not backslash,
                escapechar="\\" if backslash else None,
                strict=True,
            )
        )
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_value_comes_back(name, write):
    """Each hostile text is read back exactly, wherever it is in the record."""
    form = FORMS[name]
    batch = hostile_batch(hostile_texts(form), nulls=form.escape != "backslash")
    found = read(write(batch, form), form)
    expected = [[form.null if v is None else v for v in row] for row in rows_of(batch)]
    if form.trailing_delimiter:
        found = [row[:-1] if row[-1] == "" else row for row in found]
    if form.header:
        expected.insert(0, batch.schema.names)
    assert found == expected


def test_typed_values_come_back(typed, write):
    """Numbers, times and bytes are read as the texts that ISO 8601 and SQL have for them."""
    batch, texts = typed
    form = replace(DIALECTS["rfc4180"], null="(null)")
    expected = [["(null)" if v is None else v for v in row] for row in texts]
    assert read(write(batch, form), form) == [batch.schema.names, *expected]


DUCKDB_FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres")},
    "mysql": replace(DIALECTS["mysql"], null="NULL"),
    "two characters": TextFormat(delimiter="||", enclose="strings"),
    "overlapping": TextFormat(delimiter="aba", null="NULL"),
    "all": TextFormat(enclose="all", null="\\N", delimiter=";", enclosure="'"),
}


def read_by_duckdb(path, form, columns):
    kinds = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    mark, escape = form.enclosure, "\\" if form.escape == "backslash" else form.enclosure
    quoted = [text.replace("'", "''") for text in (form.delimiter, mark, escape, form.null)]
    delimiter, quote, escape, null = quoted
    relation = duckdb.sql(
        f"FROM read_csv('{path}', auto_detect=false, columns={{{kinds}}}, header={form.header}, "
        f"delim='{delimiter}', quote='{quote}', escape='{escape}', nullstr='{null}', "
        "allow_quoted_nulls=false, null_padding=false, max_line_size=8000000)"
    )
    return relation.fetchall()


@pytest.mark.parametrize("name", sorted(DUCKDB_FORMS))
def test_every_value_and_every_null_comes_back(name, write, tmp_path):
    """Each hostile text is read back exactly, and NULL as NULL."""
    form = DUCKDB_FORMS[name]
    batch = hostile_batch(hostile_texts(form))
    path = tmp_path / "file.csv"
    path.write_bytes(write(batch, form))
    assert read_by_duckdb(path, form, dict.fromkeys(batch.schema.names, "VARCHAR")) == rows_of(
        batch
    )


def test_typed_values_come_back_to_duckdb(typed, write, tmp_path):
    """Read into columns of their types, the values equal the batch."""
    batch, _ = typed
    kinds = ("BIGINT", "DECIMAL(38,0)", "DECIMAL(12,2)", "DOUBLE", "DATE", "TIMESTAMP")
    kinds += ("TIMESTAMP", "TIME", "VARCHAR")
    form = replace(DIALECTS["rfc4180"], timestamp_tz_format="YYYY-MM-DD HH24:MI:SS.FF6")
    path = tmp_path / "file.csv"
    path.write_bytes(write(batch, form))
    found = read_by_duckdb(path, form, dict(zip(batch.schema.names, kinds, strict=True)))
    expected = [list(row.values()) for row in batch.to_pylist()]
    for row in expected:
        row[6] = row[6] and row[6].replace(tzinfo=None)
        row[8] = None if row[8] is None else "\\x" + row[8].hex()
    assert [list(row) for row in found] == expected


OPTIONS = {
    "rfc4180": "FORMAT csv, HEADER",
    "excel": "FORMAT csv, HEADER",
    "postgres": "FORMAT csv",
    "mysql": r"FORMAT csv, ESCAPE '\', NULL '\N'",
    "tsv": "FORMAT text, HEADER",
}


@pytest.fixture(scope="module")
def url(postgres):
    return postgres.database("readers")


def hexadecimal(rows):
    return "".join(
        "|".join("-" if v is None else v.encode().hex() for v in row) + "\n" for row in rows
    )


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_value_and_every_null_comes_back_to_postgres(name, write, postgres, url, tmp_path):
    """Each hostile text, copied into a table, has the bytes it had; NULL is NULL."""
    form = DIALECTS[name]
    batch = hostile_batch([text for text in hostile_texts(form) if "\x00" not in text])
    path = tmp_path / "file"
    path.write_bytes(write(batch, form))
    shown = ", ".join(
        f"coalesce(encode(convert_to({column}, 'UTF8'), 'hex'), '-')"
        for column in ("first", '"between"', "n::text", "last")
    )
    found = postgres.run(
        'DROP TABLE IF EXISTS back; CREATE TABLE back (first text, "between" text, n bigint, last text);'
        f"SET client_encoding = 'UTF8';\n\\copy back from '{path}' with ({OPTIONS[name]})\n"
        f"SELECT concat_ws('|', {shown}) FROM back ORDER BY n;",
        url=url,
    )
    rows = zip(*(column.cast("string").to_pylist() for column in batch.columns), strict=True)
    assert found + "\n" == hexadecimal(rows)


@pytest.mark.parametrize(
    ("name", "encoding", "server_name"),
    [
        ("postgres", "cp932", "SJIS"),
        ("tsv", "gb18030", "GB18030"),
        ("postgres", "latin-1", "LATIN1"),
    ],
)
def test_other_encodings_come_back(name, encoding, server_name, write, postgres, url, tmp_path):
    """Text in another character set is converted by the server to the text it was."""
    texts = ["日本語", "ソ能表\\", "é", 'Größe,"', "丂亍", "a\nb", "ÿþ", "", "ABC"]
    fitting = [text for text in texts if fits(text, encoding)]
    form = replace(DIALECTS[name], encoding=encoding)
    batch = hostile_batch(fitting)
    path = tmp_path / "file"
    path.write_bytes(write(batch, form))
    found = postgres.run(
        'DROP TABLE IF EXISTS back; CREATE TABLE back (first text, "between" text, n bigint, last text);'
        f"\\copy back from '{path}' with ({OPTIONS[name]}, ENCODING '{server_name}')\n"
        "SELECT coalesce(encode(convert_to(first, 'UTF8'), 'hex'), '-') FROM back ORDER BY n;",
        url=url,
    )
    assert found + "\n" == hexadecimal([[v] for v in batch.column("first").to_pylist()])


def fits(text, encoding):
    try:
        return text.encode(encoding).decode(encoding) == text
    except UnicodeEncodeError:
        return False


def test_typed_values_come_back_to_postgres(typed, write, postgres, url, tmp_path):
    """Copied into columns of their types, the values print as they were written."""
    batch, texts = typed
    path = tmp_path / "file"
    path.write_bytes(write(batch, DIALECTS["postgres"]))
    found = postgres.run(
        "SET timezone = 'UTC'; SET datestyle = 'ISO';"
        "DROP TABLE IF EXISTS typed; CREATE TABLE typed (whole bigint, wide numeric(38), "
        "money numeric(12, 2), ratio double precision, day date, moment timestamp, "
        "instant timestamptz, clock time, raw bytea);"
        f"\n\\copy typed from '{path}' with (FORMAT csv)\n"
        "\\copy typed to stdout with (FORMAT csv, NULL '(null)')",
        url=url,
    )
    expected = [
        ["(null)" if v is None else v.replace("+00:00", "+00") for v in row] for row in texts
    ]
    assert [line.split(",") for line in found.splitlines()] == expected


RECORDS = (
    b"0000000148~~Foqvre~~,~~21530424004401~~,280731594835,~~dlG9HSUf~~,748766.98,"
    b"~~23240607215642~~,~~k7037   ~~,~~FFw5hZ12W~~,768478998939019,~~9LRhSbMaR9fBv~~,\r\n"
    b"0000000159~~1cCQM39g~~,~~38441127025731~~,2379760955898,~~EMLo6HgNWq~~,996422.43,"
    b"~~28320220041621~~,~~ikKDhPZ ~~,~~hDWNzNWpV~~,793767313694761,~~HR3Z3krExrMuKMu7Od2~~,\r\n"
    b"0000000160~~sQ5QpcWkOu~~,~~35821117194854~~,3681160762725,~~rfBYL7IYdN5go~~,622915.16,"
    b"~~19750226100019~~,~~oM4LJJ  ~~,~~MKExk1~~,629023003075868,~~2VXfksb1aVlUcoBfad~~,\r\n"
)
ROWS = (
    ("Foqvre", datetime(2153, 4, 24, 0, 44, 1), 280731594835, "dlG9HSUf", Decimal("748766.98"),
     datetime(2324, 6, 7, 21, 56, 42), "k7037   ", "FFw5hZ12W", 768478998939019, "9LRhSbMaR9fBv"),
    ("1cCQM39g", datetime(3844, 11, 27, 2, 57, 31), 2379760955898, "EMLo6HgNWq", Decimal("996422.43"),
     datetime(2832, 2, 20, 4, 16, 21), "ikKDhPZ ", "hDWNzNWpV", 793767313694761, "HR3Z3krExrMuKMu7Od2"),
    ("sQ5QpcWkOu", datetime(3582, 11, 17, 19, 48, 54), 3681160762725, "rfBYL7IYdN5go", Decimal("622915.16"),
     datetime(1975, 2, 26, 10, 0, 19), "oM4LJJ  ", "MKExk1", 629023003075868, "2VXfksb1aVlUcoBfad"),
)  # fmt: skip
TEXT, SECOND = pa.string(), pa.timestamp("s")
KINDS = (TEXT, SECOND, pa.int64(), TEXT, pa.decimal128(12, 2), SECOND, TEXT, TEXT)


KINDS += (pa.decimal128(38, 0), TEXT)


def test_the_published_records_come_byte_for_byte(write):
    """A table of the published shape gives the published bytes."""
    columns = list(zip(*ROWS, strict=True))
    columns[8] = [Decimal(number) for number in columns[8]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, KINDS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, [f"c{number}" for number in range(10)])
    assert write(batch, dialect("sqlldr-var")) == RECORDS


def test_the_published_records_read_as_sql_loader_reads_them():
    """The reader by SQL*Loader's rules gets the published values from the published bytes."""
    rules = FieldList(
        fields=(Field(),) * 10,
        terminated_by=",",
        optionally_enclosed_by="~~",
        trailing_nullcols=True,
    )
    found = [rules.values(record) for record in var_records(RECORDS, 10)]
    assert found == [
        tuple(v.strftime("%Y%m%d%H%M%S") if isinstance(v, datetime) else str(v) for v in row)
        for row in ROWS
    ]


FOUR = (Field(),) * 4


def field_list(form, fields=FOUR):
    return FieldList(
        fields=fields,
        terminated_by=form.delimiter,
        optionally_enclosed_by=form.enclosure,
        trailing_nullcols=True,
        characterset=form.encoding,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enclosure": '"', "eol": "\n"},
        {"enclosure": "<>", "delimiter": "|;|", "enclose": "all"},
        {"record_length_digits": 6, "enclosure": "'", "delimiter": "\t"},
    ],
)
def test_var_records_come_back(options, write):
    """Every value and NULL of sqlldr-var, and of dialects near it, is read back."""
    form = replace(DIALECTS["sqlldr-var"], **options)
    batch = hostile_batch(hostile_texts(form))
    records = var_records(write(batch, form), form.record_length_digits)
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


@pytest.mark.parametrize("encoding", ["cp932", "gb18030", "latin-1", "euc_jp"])
def test_var_records_count_bytes_of_their_character_set(encoding, write):
    """Lengths count bytes in the data file's character set, and values come back from it."""
    form = replace(DIALECTS["sqlldr-var"], encoding=encoding)
    # Texts that the encodings hold both ways; the others are refused, which is tested elsewhere.
    batch = hostile_batch([t for t in hostile_texts(form) if same_in(t, encoding)])
    records = var_records(write(batch, form), 10)
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


def same_in(text, encoding):
    try:
        return all(c.encode(encoding).decode(encoding) == c for c in text)
    except UnicodeError:
        return False


@pytest.mark.parametrize("eol", ["\n", "\r\n", "|\n", "\x1e"])
def test_stream_records_come_back(eol, write):
    """Every value without the terminator in it is read back from records that end in a text."""
    form = TextFormat(enclose="all", eol=eol, header=False)
    texts = [t for t in hostile_texts(form) if eol not in t and not (t + '"').endswith(eol)]
    batch = hostile_batch(texts)
    records = stream_records(write(batch, form), eol.encode())
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


def test_nullif_makes_a_null_text_null(write):
    """A NULL text that no value has becomes NULL under NULLIF, and the empty text does not."""
    form = replace(DIALECTS["sqlldr-var"], null="<null>")
    batch = hostile_batch([t for t in hostile_texts(form) if t != "<null>"])
    rules = field_list(form, (Field(nullif="<null>"),) * 4)
    records = var_records(write(batch, form), 10)
    assert [rules.values(record) for record in records] == rows_of(batch)


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_fixed_records_come_back(eol, write):
    """Every value that fits its field and ends in no blank is read back from `fix n` records."""
    width = 40
    fixed = tuple(
        FixedField(start=width * place, width=width, right=place == 2) for place in range(4)
    )
    form = TextFormat(fixed=fixed, header=False, eol=eol, enclosure="", enclose="none")
    texts = [t for t in hostile_texts(form) if t and len(t.encode()) <= width and t[-1] > " "]
    batch = hostile_batch(texts)
    fields = tuple(Field(position=(width * at + 1, width * (at + 1))) for at in range(4))
    rules = FieldList(fields=fields)
    records = fixed_records(write(batch, form), 4 * width + len(eol))
    found = [rules.values(record) for record in records]
    # The number is at the right end of its field; the loader's INTEGER EXTERNAL takes that.
    expected = [(*row[:2], row[2].rjust(width), row[3]) for row in rows_of(batch)]
    assert found == expected


def test_the_rules_themselves():
    """The reader rejects and trims as SQL*Loader does."""
    given = {"fields": (Field(),) * 2, "terminated_by": ",", "optionally_enclosed_by": '"'}
    rules = FieldList(**given)
    assert rules.values(b'  a , "b ""c"" "  ') == ("a ", 'b "c" ')
    assert rules.values(b'"",') == ("", None)
    assert FieldList(**given, trailing_nullcols=True).values(b"a") == ("a", None)
    assert rules.values(b"a,b,more") == ("a", "b")
    for bad in (b"a", b'"a"b,c', b'"a,b'):
        with pytest.raises(RejectedRecord):
            rules.values(bad)
    fixed = FieldList(fields=(Field(position=(1, 3)), Field(position=(4, 6))))
    assert fixed.values(b" a    ") == (" a", None)
    with pytest.raises(RejectedRecord):
        var_records(b"003abc0", 3)
