"""Typed columns at their edges, loaded into columns of the same types."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import pytest
from loading.programs import Program
from processes import command

VALUES = (
    ("id", "integer", ("1", "2", "3")),
    ("n", "bigint", ("-9223372036854775808", "9223372036854775807", "NULL")),
    ("d", "decimal(38,10)", ("1234567890123456789012345678.0123456789", "-0.0000000001", "NULL")),
    ("f", "double precision", ("1.7976931348623157e308", "0.1", "NULL")),
    ("ok", "boolean", ("true", "false", "NULL")),
    ("made", "date", ("'1000-01-01'", "'9999-12-31'", "NULL")),
    (
        "moment",
        "{timestamp}",
        ("'1970-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "NULL"),
    ),
    ("utc", "{zoned}", ("'2024-07-01 12:00:00+00:00'", "'2024-01-01 00:30:00.5+01:00'", "NULL")),
    ("bytes", "{binary}", ("{00ff5c0a22}", "{}", "NULL")),
    ("note", "text", ("'a'", "''", "NULL")),
)


def _create(table: str, *, bytes_as: str, types: dict[str, str]) -> str:
    columns = ", ".join(f"{name} {kind.format_map(types)}" for name, kind, _ in VALUES)
    rows = [
        ", ".join(bytes_as.format(v[1:-1]) if v[:1] == "{" else v for v in row)
        for row in zip(*(values for _, _, values in VALUES), strict=True)
    ]
    filled = ", ".join(f"({row})" for row in rows)
    return f"CREATE TABLE {table} ({columns}); INSERT INTO {table} VALUES {filled};"


POSTGRES = {"timestamp": "timestamp", "zoned": "timestamptz", "binary": "bytea"}
DUCKDB = {"timestamp": "timestamp", "zoned": "timestamptz", "binary": "blob"}
MARIADB = {"timestamp": "datetime(6)", "zoned": "timestamp(6) NULL", "binary": "varbinary(100)"}


@pytest.fixture(scope="module")
def typed(place: Path) -> str:
    """The URL of a database with the values in the table `things`."""
    with duckdb.connect(str(place / "things.duckdb")) as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute(_create("things", bytes_as="unhex('{}')", types=DUCKDB))
    return f"duckdb://{place}/things.duckdb"


def _unloaded(typed: str, directory: Path, *options: str) -> Path:
    command.run(
        *("run", typed, "--table", "things", "--to", str(directory), "--quiet"),
        *("--verify", "full", *options),
    )
    (found,) = directory.glob("things.0001.*")
    return found


def test_postgres_has_the_same_values(psql: Program, typed: str, place: Path) -> None:
    """COPY fills typed columns, and no row differs from the literals."""
    file = _unloaded(typed, place / "typed-postgres", "--dialect", "postgres")
    expected = _create("expected", bytes_as="'\\x{}'", types=POSTGRES)
    script = (
        "DROP TABLE IF EXISTS expected, things; SET timezone = 'UTC';"
        f"{expected} CREATE TABLE things (LIKE expected); COPY things FROM '{file}' (FORMAT csv)"
    )
    psql.run(("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", script))
    compare = "(TABLE things EXCEPT TABLE expected) UNION ALL (TABLE expected EXCEPT TABLE things)"
    assert psql.run(("psql", "-X", "-A", "-t", "-c", compare)) == ""
    assert psql.run(("psql", "-X", "-A", "-t", "-c", "SELECT count(*) FROM things")).strip() == "3"


@pytest.mark.parametrize("zone", ["+00:00", "+02:00"])
def test_mariadb_has_the_same_values(mariadb: Program, typed: str, place: Path, zone: str) -> None:
    """LOAD DATA in strict mode, as the page says, for any time zone of later sessions."""
    file = _unloaded(typed, place / f"typed-mariadb{zone}", "--dialect", "mysql")
    # An offset in a literal is refused here, which is why the dialect writes none.
    expected = _create("expected", bytes_as="unhex('{}')", types=MARIADB)
    expected = expected.replace("12:00:00+00:00", "12:00:00").replace(
        "2024-01-01 00:30:00.5+01:00", "2023-12-31 23:30:00.5"
    )
    columns = ", ".join(name if name != "bytes" else "@bytes" for name, _, _ in VALUES)
    script = (
        f"SET GLOBAL time_zone = '{zone}'; SET time_zone = '+00:00';"
        "SET sql_mode = 'STRICT_ALL_TABLES'; USE shop; DROP TABLE IF EXISTS things, expected;"
        f"{expected} CREATE TABLE things LIKE expected;"
        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE things CHARACTER SET utf8mb4"
        " FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
        f" ({columns}) SET bytes = UNHEX(@bytes)"
    )
    mariadb.run(("mariadb", "--local-infile=1", "-e", script))
    compare = "(TABLE things EXCEPT TABLE expected) UNION ALL (TABLE expected EXCEPT TABLE things)"
    compare = compare.replace("TABLE ", "SELECT * FROM ")
    assert mariadb.run(("mariadb", "shop", "-N", "-e", compare)) == ""
    assert (
        mariadb.run(("mariadb", "shop", "-N", "-e", "SELECT count(*) FROM things")).strip() == "3"
    )


def test_duckdb_has_the_same_values(typed: str, place: Path) -> None:
    """read_csv with the types by name, and binary by unhex."""
    file = _unloaded(typed, place / "typed-duckdb", "--binary-format", "hex")
    types = {name: kind.format_map(DUCKDB) for name, kind, _ in VALUES} | {"bytes": "varchar"}
    with duckdb.connect(typed.removeprefix("duckdb://"), read_only=True) as connection:
        found = connection.execute(
            "SELECT * REPLACE (unhex(bytes) AS bytes) FROM read_csv($1, header = true, quote = '\"',"
            " escape = '\"', allow_quoted_nulls = false, columns = $2) ORDER BY id",
            [str(file), types],
        ).fetchall()
        assert found == connection.execute("FROM things ORDER BY id").fetchall()


def test_an_infinite_date_is_refused_by_mariadb(mariadb: Program) -> None:
    """As the page describes, values that a program lacks fail: strict mode stops at them."""
    script = (
        "SET sql_mode = 'STRICT_ALL_TABLES'; USE shop; DROP TABLE IF EXISTS far;"
        "CREATE TABLE far (d date); INSERT INTO far VALUES ('infinity')"
    )
    done = subprocess.run(
        ("mariadb", "-e", script),
        env=mariadb.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Incorrect date value: 'infinity'" in done.stderr
