"""Records of fixed width from databases with CHAR columns, read back by SQL*Loader's own rules."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from encoders.sqlldr_rules import BLANKS, Field, FieldList, fixed_records
from long_tests import OTHER_ROUTES
from oracle.leg import OracleLeg
from oracle_server.model import Column, Moment, Type
from processes import command

TABLE = """
CREATE DOMAIN zip AS varchar(5);
CREATE TABLE parts (
    id integer, code char(8), name varchar(12), price numeric(9,2), big numeric(40,5), post zip,
    made date, seen timestamptz, key uuid, size double precision, ok boolean, note text
);
INSERT INTO parts
SELECT i, 'C' || i, repeat('é', i % 12 + 1), i * 1.25, -i * 1e30, '1' || i, date '2024-01-01' + i,
    timestamptz '2024-01-01 00:00:00.5+02' + i * interval '1 hour', gen_random_uuid(), i / 7.0,
    i % 2 = 0, 'line one' || chr(10) || 'line ' || i
FROM generate_series(1, 500) i;
INSERT INTO parts (id) VALUES (0), (NULL);
"""
SHOWN = (
    "id::text, rtrim(code), name, price::text, big::text, post, made::text, "
    "replace(seen::text, '+00', '+00:00'), key::text, size::text, ok::text, note"
)


def cut(to: Path, encoding: str, end: str = "\n") -> list[tuple[str | None, ...]]:
    """Return the values of a run of fixed records, by the places in its manifest."""
    (file,) = (entry for entry in to.iterdir() if entry.suffix == ".csv")
    positions = [
        (column["position"][0], column["position"][1])
        for column in command.manifest_of(to)["columns"]
    ]
    fields = FieldList(
        fields=tuple(Field(position=place, nullif=BLANKS) for place in positions),
        characterset=encoding,
    )
    size = positions[-1][1] + len(end.encode(encoding))
    records = [fields.values(record) for record in fixed_records(file.read_bytes(), size)]
    return [tuple(v if v is None else v.strip(" ") for v in record) for record in records]


@pytest.mark.long(OTHER_ROUTES)
def test_postgres_values_come_back_from_their_places(postgres: Any, tmp_path: Path) -> None:
    """CHAR, a domain, decimals beyond 38 digits and ends of line in text, in three encodings."""
    url: str = postgres.database("fixed")
    postgres.run(TABLE, url=url)
    wanted = postgres.run(
        f"SET TimeZone = 'UTC'; SELECT json_agg(v) FROM (SELECT json_build_array({SHOWN}) v "
        "FROM parts) rows",
        url=url,
    )
    rows = sorted((tuple(row) for row in json.loads(wanted.splitlines()[-1])), key=str)
    for encoding, unit in (("utf-8", 1), ("latin-1", 1), ("utf-16-le", 2)):
        to = tmp_path / encoding
        command.run(
            "run", url, "--table", "parts", "--fixed", "--width", f"note={20 * unit}", "--encoding",
            encoding, "--boolean-format", "true/false", "--file-per", "table", "--verify", "full",
            "--progress", "none", "--to", str(to),
        )  # fmt: skip
        assert sorted(cut(to, encoding), key=str) == rows
    first = {
        name: [
            column["position"]
            for column in command.manifest_of(tmp_path / name)["columns"]
            if column["name"] in ("name", "post")
        ]
        for name in ("utf-8", "latin-1")
    }
    assert [end - start + 1 for start, end in first["utf-8"]] == [48, 20]
    assert [end - start + 1 for start, end in first["latin-1"]] == [12, 5]


COLUMNS = (
    Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0)),
    Column(name="NAME", type=Type(name="VARCHAR2", length=15)),
    Column(name="CODE", type=Type(name="CHAR", length=6)),
    Column(name="PRICE", type=Type(name="NUMBER", precision=10, scale=2)),
    Column(name="DAY", type=Type(name="DATE")),
    Column(name="SEEN", type=Type(name="TIMESTAMP", scale=6)),
)
ROWS = (
    (
        1,
        "straße",
        "AB    ",
        Decimal("-99999999.99"),
        Moment(2024, 1, 31),
        Moment(2024, 1, 31, 1, 2, 3),
    ),
    (2, "a,b\nc", "ABCDEF", Decimal("0.5"), Moment(1999, 12, 31, 23, 59, 59), None),
    (3, None, None, None, None, None),
)


def test_oracle_records_of_fixed_width_are_what_sql_loader_takes(
    oracle: OracleLeg, tmp_path: Path
) -> None:
    """`"fix n"` without ends of line, POSITION(a:b) from the manifest, NULLIF BLANKS."""
    oracle.create("FIXED_PARTS", COLUMNS, rows=ROWS)
    command.run(
        "run", oracle.url, "--table", "FIXED_PARTS", "--fixed", "--eol", "", "--file-per", "table",
        "--date-format", "YYYYMMDDHH24MISS", "--timestamp-format", "YYYYMMDDHH24MISS.FF3",
        "--progress", "none", "--to", str(tmp_path / "out"), env=oracle.environment,
    )  # fmt: skip
    assert sorted(cut(tmp_path / "out", "utf-8", ""), key=str) == [
        ("1", "straße", "AB", "-99999999.99", "20240131000000", "20240131010203.000"),
        ("2", "a,b\nc", "ABCDEF", "0.50", "19991231235959", None),
        ("3", None, None, None, None, None),
    ]
    positions = [column["position"] for column in command.manifest_of(tmp_path / "out")["columns"]]
    assert positions == [[1, 11], [12, 26], [27, 32], [33, 44], [45, 58], [59, 76]]
