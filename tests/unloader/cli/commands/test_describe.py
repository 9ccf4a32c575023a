"""What `describe` says becomes of a column."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb

Run = Callable[..., "subprocess.CompletedProcess[str]"]

COLUMNS = {
    "a": ("42::BIGINT", "whole number"),
    "b": ("1.50::DECIMAL(9, 2)", "number, all digits"),
    "c": ("0.1::DOUBLE", "number, shortest exact"),
    "d": ("true", "true or false"),
    "e": ("DATE '2024-02-29'", "date, ISO 8601"),
    "f": ("TIMESTAMP '2024-02-29 12:00:00'", "timestamp, ISO 8601"),
    "g": ("TIMESTAMPTZ '2024-02-29 12:00:00+00'", "timestamp with offset, ISO 8601"),
    "h": ("'x'::BLOB", "binary, hexadecimal"),
    "i": ("[1, 2]", "JSON"),
    "j": ("'x'", "text"),
}


def test_the_forms_of_csv_are_told_in_words(
    unloader: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Beside its type in the database a column has the form of its text, not a type of Arrow's."""
    values = ", ".join(f"{sql} AS {name}" for name, (sql, _) in COLUMNS.items())
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {values}")
    shown = unloader("describe", f"duckdb://{tmp_path}/t.db", "--table", "t").stdout
    lines = {line.split()[0]: line for line in shown.splitlines() if line[:2].strip() in COLUMNS}
    for name, (_, form) in COLUMNS.items():
        assert f"  {form}  " in lines[name]


def test_a_column_whose_name_looks_like_a_pattern_is_meant_itself(
    unloader: Run, tmp_path: Path
) -> None:
    """Its name chooses it for --as-text and --columns, and no column that the pattern matches."""
    with duckdb.connect(str(tmp_path / "odd.db")) as connection:
        connection.execute('CREATE TABLE t AS SELECT 1 AS "a[1]", 2 AS a1')
    source = f"duckdb://{tmp_path}/odd.db"
    result = unloader("describe", source, "--table", "t", "--as-text", "a[1]", "--json")
    columns = json.loads(result.stdout)["columns"]
    assert [each["parquet"]["output_type"] for each in columns] == ["string", "int32"]
    result = unloader("plan", source, "--table", "t", "--columns", "a[1]", "--json")
    assert [each["name"] for each in json.loads(result.stdout)["columns"]] == ["a[1]"]


def test_the_sources_name_their_options(unloader: Run) -> None:
    """A script learns which options are for which database."""
    found = json.loads(unloader("sources", "--json").stdout)["sources"]
    options = {each["scheme"]: each["options"] for each in found}
    assert "scn" in options["oracle"]
    assert options["postgresql"] == [
        "enable-row-security",
        "keep-snapshot",
        "lock-timeout",
        "max-db-load",
    ]
    assert options["duckdb"] == []
