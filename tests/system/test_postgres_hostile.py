"""A hostile PostgreSQL table, unloaded, read back by other programs and compared both ways."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from amounts import amount
from long_tests import also
from postgres import hostile_rows
from postgres.hostile_rows import COLUMNS, INFINITE, NAME
from processes import command

ROWS = amount("UNLOADER_TEST_HOSTILE_ROWS", 4_000, 12_000)
PARALLELISM = (5, *also("many workers", 1, 2, 32))


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with the hostile table."""
    found: str = postgres.database("hostile")
    postgres.run(hostile_rows.create(ROWS), url=found)
    return found


def unload(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `unloader run` as a user does and check its exit status."""
    done = command.ended("run", *arguments, "--progress", "none")
    assert done.returncode == status, done.stderr
    return done


def assert_same(postgres: Any, url: str, files: list[Path], options: str) -> None:
    """Load files into an empty copy of the table through COPY and compare in both directions."""
    postgres.run(f"DROP TABLE IF EXISTS back; CREATE TABLE back ({COLUMNS}, gen bigint)", url=url)
    copies = "".join(f"\\copy back from '{file}' with ({options})\n" for file in files)
    postgres.run(f"SET client_encoding = 'UTF8';\n{copies}", url=url)
    # json has no equality; numeric and float values must agree in their text as well (-0, 1.50).
    shown = postgres.run(
        "SELECT string_agg(quote_ident(attname) || '::text', ', ' ORDER BY attnum) "
        "FROM pg_attribute WHERE attrelid = 'back'::regclass AND attnum > 0",
        url=url,
    )
    ours, theirs = f"SELECT {shown} FROM back", f"SELECT {shown} FROM {NAME}"
    counts = postgres.run(
        f"SELECT count(*) FROM back; SELECT count(*) FROM {NAME};"
        f"SELECT count(*) FROM ({ours} EXCEPT ALL {theirs}) AS more;"
        f"SELECT count(*) FROM ({theirs} EXCEPT ALL {ours}) AS less;",
        url=url,
    ).split()
    assert counts == [str(ROWS), str(ROWS), "0", "0"]


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_csv_loads_back_through_copy(
    postgres: Any, url: str, tmp_path: Path, parallelism: int
) -> None:
    """CSV at any parallelism, loaded by PostgreSQL's own COPY, is the table to the last digit."""
    dest = tmp_path / "out"
    done = unload(
        url, "--table", NAME, "--to", str(dest), "--parallelism", str(parallelism), "--json"
    )
    manifest = json.loads(done.stdout)
    assert manifest["totals"]["rows"] == ROWS
    assert len({unit["partition"] for unit in manifest["units"]}) == 32
    assert_same(postgres, url, sorted(dest.glob("*.csv")), "format csv, header true")


def test_encoded_and_arrow_route_agree(url: str, tmp_path: Path) -> None:
    """The server's own CSV and our encoder's have the same bytes in every unit."""
    common = [url, "--table", NAME, "--parallelism", "2"]
    unload(*common, "--to", str(tmp_path / "encoded"))
    # A file size makes the run go through batches; this one is never reached.
    unload(
        *common, "--to", str(tmp_path / "arrow"), "--file-size", "1TiB",
        "--file-name", "{table}.{unit}{part}.{ext}", "--as-text", ",".join(INFINITE),
    )  # fmt: skip
    encoded = sorted((tmp_path / "encoded").glob("*.csv"))
    arrow = sorted((tmp_path / "arrow").glob("*.csv"))
    assert len(encoded) == len(arrow) == 32
    for ours, theirs in zip(encoded, arrow, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name


def test_parquet_refuses_what_it_cannot_hold(url: str, tmp_path: Path) -> None:
    """Infinite dates and NaN numerics stop the run by the names of their columns."""
    dest = tmp_path / "out"
    done = unload(
        url, "--table", NAME, "--to", str(dest), "--format", "parquet", "--parallelism", "2",
        status=6,
    )  # fmt: skip
    message = done.stderr.strip().splitlines()[-1]
    for column in INFINITE:
        assert f"column {column}" in message
    assert "--as-text" in message
    assert not list(dest.glob("*.parquet"))
    assert not (dest / "_manifest.json").exists()


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_parquet_read_by_duckdb_is_the_table(
    postgres: Any, url: str, tmp_path: Path, parallelism: int
) -> None:
    """Parquet, read by DuckDB and loaded back, is the table; exact types stay typed."""
    dest = tmp_path / "out"
    unload(
        url, "--table", NAME, "--to", str(dest), "--format", "parquet",
        "--parallelism", str(parallelism), "--as-text", ",".join(INFINITE),
    )  # fmt: skip
    back = tmp_path / "back.csv"
    with duckdb.connect() as reader:
        source = f"read_parquet('{dest}/*.parquet')"
        kinds = {row[0]: row[1] for row in reader.sql(f"DESCRIBE FROM {source}").fetchall()}
        assert kinds["id"] == "BIGINT"
        assert kinds["f4"] == "FLOAT"
        assert kinds["by"] == "BLOB"
        assert kinds["dom"] == "DECIMAL(10,2)"
        shown = ", ".join(
            f"""'\\x' || lower(hex("{name}"))"""
            if kind == "BLOB"
            else '"' + name.replace('"', '""') + '"'
            for name, kind in kinds.items()
        )
        reader.execute(
            f"COPY (SELECT {shown} FROM {source}) TO '{back}' (FORMAT csv, HEADER false, "
            "QUOTE '\"', ESCAPE '\"', NULLSTR '', FORCE_QUOTE *)"
        )
    # FORCE_QUOTE leaves NULL bare, so that it differs from the empty string.
    assert_same(postgres, url, [back], "format csv")
