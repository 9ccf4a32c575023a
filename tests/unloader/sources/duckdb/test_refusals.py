"""Values that DuckDB has and the output has not: all columns together, and losses in texts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from processes import command


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A table with three columns of infinite values and one of finite ones."""
    path = tmp_path / "data.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT DATE 'infinity' AS d, TIMESTAMP '-infinity' AS ts, "
            "TIMESTAMPTZ 'infinity' AS \"t z\", DATE '2024-01-31' AS ok"
        )
        connection.execute("CREATE TABLE u (u UNION(n INTEGER, s VARCHAR), e ENUM('UNION(', 'b'))")
    return f"duckdb://{path}"


def test_all_columns_with_infinite_values_are_named(source: str, tmp_path: Path) -> None:
    """One run names them all, and its advice works."""
    job = ("run", source, "--table", "t", "--to", str(tmp_path / "out"), "--format", "parquet")
    error = command.error_of(*job, "--progress", "none", status=6)
    assert "columns d, ts, t z hold" in error
    assert "--as-text d,ts,t z" in error
    command.run(*job, "--as-text", "d,ts,t z", "--quiet")


def test_a_union_has_texts_of_two_values(source: str) -> None:
    """1 and '1' of a UNION have one text, so the column is not lossless; others are."""
    shown = command.run("describe", source, "--table", "u", "--json")
    assert [part.split(",")[0] for part in shown.split('"lossless": ')[1:]] == [
        *("false", "false"),  # Parquet and text
        *("true", "true"),
    ]
