"""Databases that are not in UTF-8: the same values, and text without UTF-8 is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from processes import command

from unloader.sources.statement import quoted

ENCODINGS = {"LATIN1": "é", "WIN1252": "€", "EUC_JP": "日本", "SQL_ASCII": "é日"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_source_has_the_same_checksums(postgres: Any, tmp_path: Path, encoding: str) -> None:
    """A checksum is of the UTF-8 of a text, in the database and in fetched rows."""
    url, text = postgres.database(f"in {encoding}", encoding), ENCODINGS[encoding]
    postgres.run(
        "SET client_encoding = 'UTF8';"
        f"CREATE TABLE t AS SELECT g AS id, '{text}' || g AS s, '{text}'::varchar(9) AS v,"
        f" '{text}'::char(9) AS c, ARRAY['{text}'] AS a, 1.50 AS n, '\\xe9'::bytea AS b"
        " FROM generate_series(1, 9) g",
        url=url,
    )
    for number, form in enumerate(("csv", "parquet")):
        to = str(tmp_path / form)
        command.run(
            "run", url, "--table", "t", "--to", to, "--format", form, "--verify", "source",
            "--progress", "none",
        )  # fmt: skip
        command.run("verify", to, url, "--level", "source")
        if not number:
            assert text in (tmp_path / form / "t.0001.csv").read_text()


def test_a_table_of_many_columns_has_checksums(postgres: Any, tmp_path: Path) -> None:
    """More than one statement of PostgreSQL can name with two items each."""
    url = postgres.database("many columns")
    names = [f"c{number}" for number in range(1500)]
    columns = ", ".join(f"{name} int" for name in names)
    values = ", ".join(map(str, range(len(names))))
    postgres.run(f"CREATE TABLE t ({columns}); INSERT INTO t VALUES ({values})", url=url)
    to = tmp_path / "o"
    command.run("run", url, "--table", "t", "--to", str(to), "--verify", "source")
    assert command.manifest_of(to)["verified"]["level"] == "source"
    (content,) = [unit["content"] for unit in command.manifest_of(to)["units"]]
    assert len(content["sums"]) == len(names)


@pytest.mark.parametrize("consistency", ["snapshot", "none"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_without_utf8_is_named(
    postgres: Any, tmp_path: Path, form: str, consistency: str
) -> None:
    """Table and columns are in the error, and its advice gives the bytes."""
    url = postgres.database("ascii", "SQL_ASCII")
    postgres.run(
        "CREATE TABLE t AS SELECT 7 AS id, convert_from('\\xe9', 'SQL_ASCII') AS s,"
        " 'fine'::text AS f, convert_from('\\x5c783431ff', 'SQL_ASCII') AS \"V\"",
        url=url,
    )
    to = tmp_path / "o"
    run = ("--to", str(to), "--format", form, "--consistency", consistency, "--progress", "none")
    error = command.error_of("run", url, "--table", "t", *run, status=4)
    assert "public.t has text that is not UTF-8 in s, V: " in error
    assert not (to / "_manifest.json").exists()

    left_out = re.search(r"--exclude (\S+),", error)
    assert left_out is not None
    command.run("run", url, "--table", "t", *run, "--exclude", left_out[1])
    read = re.search(r"such column: (convert_to.*)$", error.strip())
    assert read is not None
    query = f"SELECT {read[1]}, {read[1].replace(quoted('s'), quoted('V'))} FROM t"
    command.run("run", url, "--query", query, *run, "--overwrite")
    if form == "csv":
        assert (to / "query.0001.csv").read_text() == "s,V\n\\xe9,\\x5c783431ff\n"
