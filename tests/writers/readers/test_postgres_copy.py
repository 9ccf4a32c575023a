"""PostgreSQL's COPY FROM reads what the encoders wrote, NULL apart from the empty text.

It claims rfc4180, excel, postgres and mysql as its CSV format, tsv as its text format. A text in
PostgreSQL holds no NUL, so values with one are left out.
"""

import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts
from msgspec.structs import replace

from writers.text.dialects import DIALECTS

OPTIONS = {
    "rfc4180": "FORMAT csv, HEADER",
    "excel": "FORMAT csv, HEADER",
    "postgres": "FORMAT csv",
    "mysql": r"FORMAT csv, ESCAPE '\', NULL '\N'",
    "tsv": "FORMAT text, HEADER",
}


@pytest.fixture(scope="module")
def url(postgres):
    """A database of its own."""
    return postgres.database("readers")


def hexadecimal(rows):
    return "".join(
        "|".join("-" if v is None else v.encode().hex() for v in row) + "\n" for row in rows
    )


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_value_and_every_null_comes_back(name, write, postgres, url, tmp_path):
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


def test_typed_values_come_back(typed, write, postgres, url, tmp_path):
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
