"""Whole runs from databases behind ODBC drivers: hostile rows, lengths, aborts, secrets."""

from __future__ import annotations

import csv
import hashlib
import io
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from contract.odbc import of_mysql, of_postgres, of_sqlite
from long_tests import OTHER_ROUTES, also
from postgres import hostile_rows
from postgres.hostile_rows import NAME
from processes import command

CUT = ("--split", "range", "--unit-bytes", "20KiB")


def records(to: Path) -> list[list[str]]:
    """Return the records of all files, without headers, in order."""
    found: list[list[str]] = []
    for file in to.glob("*.csv"):
        found += list(csv.reader(io.StringIO(file.read_text("utf-8"), newline="")))[1:]
    return sorted(found)


@pytest.mark.parametrize("key", ["ts", *also(OTHER_ROUTES, '"Key"')])
def test_a_hostile_table_is_that_of_the_server(postgres: Any, tmp_path: Path, key: str) -> None:
    """Rows in ranges of a key, with infinite dates and NULL, equal the rows that COPY returns."""
    url = postgres.database("odbc_runs")
    postgres.run(hostile_rows.create(1_500, partitions=3), url=url)
    wanted, found = tmp_path / "copy", tmp_path / "odbc"
    for where, to, more in (
        (url, wanted, ()),
        # A locale without UTF-8 changes nothing.
        (of_postgres(url), found, ("--split-by", key, *CUT)),
    ):
        command.run(
            *("run", where, "--table", NAME, "--to", str(to), "--parallelism", "3", *more),
            env={"LC_ALL": "C"},
        )
    assert len(command.manifest_of(found)["units"]) > 3
    assert records(found) == records(wanted)


def test_large_objects_of_postgresql_are_the_bytes_of_the_server(
    postgres: Any, tmp_path: Path
) -> None:
    """No ODBC driver reads objects by OID, so the column is refused."""
    url, to = postgres.database("odbc_lobs"), tmp_path / "out"
    postgres.run(
        "CREATE TABLE t (b bytea, d text, o oid); INSERT INTO t VALUES "
        "('\\xff00', 'ü\\', 16), (NULL, NULL, 16), ('', '', 16), ('\\x0a', '\\x41', 16)",
        url=url,
    )
    run = ("run", of_postgres(url), "--table", "t", "--header", "--to", str(to), "--lob-files")
    assert "column o has the type" in command.error_of(*run, "o", status=2)
    command.run(*run, "b,d", "--exclude", "o")
    assert (to / "t_0001_b.lob").read_bytes() == b"\xff\x00\n"
    assert (to / "t_0001_d.lob").read_bytes() == "ü\\\\x41".encode()
    (empty,) = (row for row in records(to) if row[0].endswith(".0/"))
    assert empty[1].endswith(".0/")
    assert sum(row[0].endswith(".-1/") for row in records(to)) == 1


def test_wide_and_odd_values_of_mariadb(mysql: Any, tmp_path: Path) -> None:
    """Values longer than the first buffers are whole; the client of the server has the same."""
    url = mysql.database("odbc_wide")
    mysql.run(
        'SET sql_mode = ANSI_QUOTES; CREATE TABLE "a?{`" (id int, "t\'x" longtext, b longblob, '
        "z date, f float, d double); SET sql_mode = ''; INSERT INTO `a?{``` VALUES "
        r"(1, repeat('ü\n', 70000), repeat(x'00FF', 5000), '0000-00-00', 16777217, 0.1), "
        r"(2, 'a\0b\\', x'', '9999-12-31', -1e-30, 5e-324), (NULL, NULL, NULL, NULL, NULL, NULL)",
        database="odbc_wide",
    )
    to = tmp_path / "out"
    command.run(
        *("run", of_mysql(url), "--table", '"a?{`"', "--to", str(to), "--format", "parquet"),
        *("--as-text", "z", "--split-by", "id", "--consistency", "none", *CUT),
    )
    found = duckdb.sql(f"SELECT * FROM '{to}/*.parquet' ORDER BY id").fetchall()
    assert found == [
        (1, "ü\n" * 70000, b"\x00\xff" * 5000, "0000-00-00", 16777216.0, 0.1),
        (2, "a\0b\\", b"", "9999-12-31", pytest.approx(-1e-30, rel=1e-7), 5e-324),
        (None, None, None, None, None, None),
    ]


@pytest.mark.parametrize("kind", ["postgresql", *also(OTHER_ROUTES, "sqlite")])
def test_a_long_value_lengthens_the_buffers_of_its_column_only(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Buffers of 8 MB for each of 60 columns would be 480 MB. The long value is in a late row."""
    columns = [f"c{number}" for number in range(60)]
    names = ", ".join(f"{each} text" for each in columns)
    short = ", ".join(["'short'"] * 60)
    if kind == "sqlite":
        path = tmp_path / "data.db"
        url = of_sqlite(path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE t (id INTEGER, {names})")
            rows = ((number, *["short"] * 60) for number in range(2_100))
            connection.executemany(f"INSERT INTO t VALUES (?{', ?' * 60})", rows)
            connection.execute("UPDATE t SET c7 = ? WHERE id = 2099", ("ü" * 400_000,))
    else:
        postgres = request.getfixturevalue("postgres")
        url = postgres.database("odbc_long")
        postgres.run(
            f"CREATE TABLE t (id int, {names}); INSERT INTO t SELECT g, {short} FROM "
            "generate_series(0, 2098) g; INSERT INTO t (id, c7) VALUES (2099, repeat('ü', 400000))",
            url=url,
        )
        url = of_postgres(url)
    to = tmp_path / "out"
    command.run("run", url, "--table", "t", "--to", str(to), "--format", "parquet")
    found = duckdb.sql(
        f"SELECT count(*), sum(length(c7)), max(c7) = repeat('ü', 400000) FROM '{to}/*.parquet'"
    )
    assert found.fetchall() == [(2_100, 400_000 + 5 * 2_099, True)]
    assert command.manifest_of(to)["totals"]["peak_worker_rss_bytes"] < 250e6


def test_comments_of_a_query_hide_nothing_else_from_sqlite(tmp_path: Path) -> None:
    """Newer drivers of SQLite drop all that follows `--`, such as a condition."""
    path, to = tmp_path / "data.db", tmp_path / "out"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE t (id INTEGER, "a--b" TEXT, [c/*d] TEXT)')
        rows = [(1, "x -- y", "it's"), (2, "/* z */", "x"), (3, "x", "x"), (4, "x", "--")]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    query = """-- All but the fourth.
        SELECT id, "a--b", [c/*d] /* it's -- a name */ FROM t -- don't
        WHERE ("a--b" IN ('x -- y', '/* z */') OR [c/*d] = 'x') -- and then
        AND `id` < 4 /* the end */ -- here"""
    command.run("run", of_sqlite(path), "--query", query, "--to", str(to))
    assert records(to) == [["1", "x -- y", "it's"], ["2", "/* z */", "x"], ["3", "x", "x"]]


def test_a_value_above_the_limit_is_named(tmp_path: Path) -> None:
    """The error has the column, the length and the option; a larger limit reads the value."""
    path, to = tmp_path / "data.db", tmp_path / "out"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER, short TEXT, long BLOB)")
        connection.execute("INSERT INTO t VALUES (1, 'x', zeroblob(300000))")
    run = ("run", of_sqlite(path), "--table", "t", "--to", str(to), "--format", "parquet")
    error = command.error_of(*run, "--odbc-value-bytes", "200KiB", status=6)
    assert "column long" in error
    assert "300,000 bytes" in error
    assert "--odbc-value-bytes" in error
    command.run(*run, "--odbc-value-bytes", "300000")
    assert duckdb.sql(f"SELECT octet_length(long) FROM '{to}/*.parquet'").fetchall() == [(300000,)]


def test_a_small_packet_of_mariadb_loses_no_value(mysql: Any, tmp_path: Path) -> None:
    """A buffer above the limit of the server is refused; a smaller one reads the value."""
    url, to = mysql.database("odbc_packet"), tmp_path / "out"
    create = "CREATE TABLE t AS SELECT repeat('ab', 100000) AS a; SELECT @@max_allowed_packet"
    usual = mysql.run(create, database="odbc_packet")
    run = ("run", of_mysql(url), "--table", "t", "--to", str(to), "--format", "parquet")
    mysql.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        assert "lower that option" in command.error_of(*run, status=4)
        command.run(*run, "--odbc-value-bytes", "200000")
    finally:
        mysql.run(f"SET GLOBAL max_allowed_packet = {usual}")
    assert duckdb.sql(f"FROM '{to}/*.parquet'").fetchall() == [("ab" * 100_000,)]


def test_an_unknown_database_needs_the_generic_dialect(tmp_path: Path) -> None:
    """Columns are then marked as not proved. A driver that aborts ends a worker, not the run.

    SQLite's driver aborts on a blob that is read as it is.
    """
    path, to = tmp_path / "data.db", tmp_path / "out"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER, s VARCHAR(20), b BLOB)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?)", [(1, "a", b"\0x"), (2, None, None)]
        )
    missing = of_sqlite(tmp_path / "missing.db")
    assert "missing.db does not exist" in command.error_of(
        *("run", missing, "--table", "t", "--to", str(to)), status=4
    )
    assert not (tmp_path / "missing.db").exists()
    # SQLite has no such catalog as the standard's.
    run = ("run", of_sqlite(path), "--odbc-dialect", "generic", "--to", str(to))
    assert "--query" in command.error_of(*run, "--table", "t", status=4)
    done = command.ended(*run, "--query", "SELECT id, s FROM t")
    assert done.returncode == 0, done.stderr
    assert "not proved" in done.stderr
    assert records(to) == [["1", "a"], ["2", ""]]
    assert not any(each["lossless"] for each in command.manifest_of(to)["columns"])
    done = command.ended(
        *run, "--query", "SELECT b FROM t", "--overwrite", "--retries", "1", "--retry-delay", "0"
    )
    if done.returncode != 0:
        assert done.returncode in (4, 6, 7), done.stderr
        assert "unloader: error:" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_library_that_aborts_does_not_end_the_parent(postgres: Any, tmp_path: Path) -> None:
    """arrow-odbc aborts on a number with a negative scale; the error is that of a user."""
    url = postgres.database("odbc_abort")
    if int(postgres.run("SHOW server_version_num")) < 150000:
        pytest.skip("PostgreSQL has no negative scales before version 15")
    postgres.run(
        "CREATE TABLE t (a int, n numeric(5,-2)); INSERT INTO t VALUES (1, 12300)", url=url
    )
    to = tmp_path / "out"
    run = ("run", of_postgres(url), "--table", "public.t", "--to", str(to))
    error = command.error_of(*run, "--odbc-dialect", "generic", status=4)
    assert "aborted" in error
    command.run(*run)
    assert records(to) == [["1", "12300"]]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_samples_by_key_are_those_of_every_source(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """docs/subsets.md defines the keys of a sample; a limit gives its number of rows."""
    values = ", ".join(f"({number}, {number}.50, 'k{number}')" for number in range(200))
    sql = f"CREATE TABLE t (id bigint, n numeric(9,2), s varchar(9)); INSERT INTO t VALUES {values}"
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        url = server.database("odbc_samples")
        server.run(sql, url=url)
        url = of_postgres(url)
    else:
        server = request.getfixturevalue("mysql")
        url = of_mysql(server.database("odbc_samples"))
        server.run(sql, database="odbc_samples")

    def run(name: str, *options: str) -> list[int]:
        to = tmp_path / name
        command.run("run", url, "--table", "t", "--to", str(to), *options)
        return sorted(int(record[0]) for record in records(to))

    limit = int(0.1 * 2**32)
    for column, text in (("n", "{}.5"), ("s", "k{}")):
        keys = {each: hashlib.sha256(text.format(each).encode()).hexdigest() for each in range(200)}
        wanted = [each for each, digest in keys.items() if int(digest[:8], 16) < limit]
        assert run(column, "--sample", "10%", "--sample-by", column) == wanted
    assert len(run("limit", "--limit-rows", "7")) == 7


@pytest.mark.long(OTHER_ROUTES)
def test_ctrl_c_ends_the_statement_of_the_parent(postgres: Any, tmp_path: Path) -> None:
    """A count that waits is ended in the server."""
    url = postgres.database("odbc_stop")
    postgres.run("CREATE TABLE t AS SELECT 1 AS a", url=url)
    slow = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%count(*)%pg_sleep%' AND NOT "
    run = command.Running(
        *("run", of_postgres(url), "--table", "t", "--to", str(tmp_path / "out")),
        *("--where", "pg_sleep(20) IS NOT NULL"),
    )
    run.wait_until(
        lambda: bool(postgres.run(f"{slow} pid = pg_backend_pid()")), "a count that waits"
    )
    run.signal(signal.SIGINT)
    status, _, log = run.finish()
    assert status == 130, log


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_a_password_has_any_characters(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Braces, semicolons and percent signs have a meaning in connection strings."""
    password = "a;b}{c}%41'@"
    quoted = password.replace("'", "''")
    if kind == "mariadb":
        server = request.getfixturevalue("mysql")
        url = server.database("odbc_guest")
        server.run(
            "CREATE TABLE t AS SELECT 1 AS a; "
            f"CREATE OR REPLACE USER guest IDENTIFIED BY '{quoted}'; GRANT SELECT ON t TO guest",
            database="odbc_guest",
        )
        url = of_mysql(server.url("odbc_guest", "guest"))
    else:
        server = request.getfixturevalue("postgres")
        url = server.database("odbc_guest")
        server.run(
            "CREATE TABLE t AS SELECT 1 AS a; DROP ROLE IF EXISTS guest; "
            f"CREATE ROLE guest LOGIN PASSWORD '{quoted}'; GRANT SELECT ON t TO guest",
            url=url,
        )
        rules = Path(server.run("SHOW hba_file"))
        rules.write_text(f"local all guest scram-sha-256\n{rules.read_text()}")
        server.reload()
        url = of_postgres(url).rpartition("UID=")[0] + "UID=guest"
    run = ("run", url, "--table", "t", "--to", str(tmp_path / "out"))
    command.run(*run, env={"UNLOADER_PASSWORD": password})
    assert records(tmp_path / "out") == [["1"]]
    error = command.error_of(*run, "--overwrite", env={"UNLOADER_PASSWORD": "wrong"}, status=4)
    assert "and the password" in error


def test_a_password_is_refused_in_the_url_and_shown_nowhere(tmp_path: Path) -> None:
    """The password comes from its usual place."""
    for text in ("PWD=geheim77", "Password={geheim77}"):
        shown = command.error_of(
            *("run", f"odbc:DSN=x;UID=etl;{text}", "--table", "t", "--to", str(tmp_path / "out")),
            status=2,
        )
        assert "geheim77" not in shown
    done = command.ended(
        *("--debug", "run", "odbc:DSN=x;UID=etl", "--table", "t", "--to", str(tmp_path / "out")),
        *("--retries", "0"),
        env={"UNLOADER_PASSWORD": "geheim77", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode in (3, 4)
    assert "geheim77" not in done.stderr + done.stdout
