"""DuckDB's CSV reader reads what the encoders wrote, NULL apart from the empty text.

It claims every dialect that encloses, with delimiters of up to four bytes and an enclosure of one.
Where a backslash escapes it takes no NULL text with a backslash, so mysql is read with another.
"""

import duckdb
import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of
from msgspec.structs import replace

from writers.model import TextFormat
from writers.text.dialects import DIALECTS

FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres")},
    "mysql": replace(DIALECTS["mysql"], null="NULL"),
    "two characters": TextFormat(delimiter="||", enclose="strings"),
    "overlapping": TextFormat(delimiter="aba", null="NULL"),
    "all": TextFormat(enclose="all", null="\\N", delimiter=";", enclosure="'"),
}


def read(path, form, columns):
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


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_value_and_every_null_comes_back(name, write, tmp_path):
    """Each hostile text is read back exactly, and NULL as NULL."""
    form = FORMS[name]
    batch = hostile_batch(hostile_texts(form))
    path = tmp_path / "file.csv"
    path.write_bytes(write(batch, form))
    assert read(path, form, dict.fromkeys(batch.schema.names, "VARCHAR")) == rows_of(batch)


def test_typed_values_come_back(typed, write, tmp_path):
    """Read into columns of their types, the values are those of the batch."""
    batch, _ = typed
    kinds = ("BIGINT", "DECIMAL(38,0)", "DECIMAL(12,2)", "DOUBLE", "DATE", "TIMESTAMP")
    kinds += ("TIMESTAMP", "TIME", "VARCHAR")
    form = replace(DIALECTS["rfc4180"], timestamp_tz_format="YYYY-MM-DD HH24:MI:SS.FF6")
    path = tmp_path / "file.csv"
    path.write_bytes(write(batch, form))
    found = read(path, form, dict(zip(batch.schema.names, kinds, strict=True)))
    expected = [list(row.values()) for row in batch.to_pylist()]
    for row in expected:
        row[6] = row[6] and row[6].replace(tzinfo=None)
        row[8] = None if row[8] is None else "\\x" + row[8].hex()
    assert [list(row) for row in found] == expected
