"""Whole runs from a server of MySQL or MariaDB: one moment, lost sessions, ends, hostile values."""

from __future__ import annotations

import csv
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pymysql
import pytest
from certificates import self_signed
from contract.odbc import of_mysql
from mysql import server as mysql_server
from processes import command

from partition_planner.model import WholeTable
from unloader.errors import SnapshotGone
from unloader.model import Extract, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.mysql.source import MySQLSource
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds

ROWS = 12_000
SLOW = "sleep(0.0002) = 0"
"""A condition that all rows meet, and that takes a run of some seconds."""
CUT = ("--split", "range", "--unit-bytes", "32KiB")


@pytest.fixture(scope="module")
def url(mysql: mysql_server.MySQLServer) -> str:
    found = mysql.database("runs")
    mysql.run(
        "CREATE TABLE moving (id bigint PRIMARY KEY, value varchar(40), filler char(60)); "
        "SET max_recursive_iterations = 1000000; INSERT INTO moving WITH RECURSIVE n (seq) AS "
        f"(SELECT 0 UNION ALL SELECT seq + 1 FROM n WHERE seq + 1 < {ROWS}) "
        "SELECT seq, if(seq, concat('row ', seq), '0'), 'x' FROM n; ANALYZE TABLE moving; "
        "CREATE USER reader; GRANT SELECT ON runs.* TO reader",
        database="runs",
    )
    return found


def records(directory: Path) -> list[list[str]]:
    """Return the records of all CSV files of a directory, without headers."""
    found = []
    for path in sorted(directory.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found += list(csv.reader(file))[1:]
    return found


@pytest.fixture
def writing(mysql: mysql_server.MySQLServer, url: str) -> Iterator[list[int]]:
    """Commit transactions without pause; the state after each is known from its number."""
    done, stop = [0], threading.Event()
    begun = int(mysql.run("SELECT value FROM moving WHERE id = 0", database="runs"))

    def write() -> None:
        connection = pymysql.connect(unix_socket=str(mysql.socket), user="root", database="runs")
        with connection, connection.cursor() as cursor:
            number = begun
            while not stop.is_set():
                number += 1
                cursor.execute(f"INSERT INTO moving VALUES ({10**7 + number}, 'new {number}', '')")
                cursor.execute(f"DELETE FROM moving WHERE id = {3 * number}")
                cursor.execute(
                    f"UPDATE moving SET value = 'again {number}' WHERE id = {3 * number + 1}"
                )
                cursor.execute(f"UPDATE moving SET value = '{number}' WHERE id = 0")
                connection.commit()
                done[0] = number

    thread = threading.Thread(target=write)
    thread.start()
    command.wait_for(lambda: done[0] > begun + 20, "transactions")
    yield done
    stop.set()
    thread.join()


def state_after(transactions: int) -> dict[int, str]:
    """Return the table after a number of transactions."""
    found = {number: f"row {number}" for number in range(ROWS)}
    for number in range(1, transactions + 1):
        found[10**7 + number] = f"new {number}"
        found.pop(3 * number, None)
        if 3 * number + 1 in found:
            found[3 * number + 1] = f"again {number}"
    return {**found, 0: str(transactions)}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_all_workers_read_one_moment(
    url: str, writing: list[int], tmp_path: Path, form: str
) -> None:
    """Rows of 8 workers are of one state while another program commits."""
    before = writing[0]
    to = tmp_path / "out"
    command.run(
        *("run", url, "--table", "moving", "--to", str(to), "--parallelism", "8"),
        *("--format", form, *CUT),
    )
    assert writing[0] > before + 20
    assert len(command.manifest_of(to)["units"]) >= 8
    if form == "csv":
        found = {int(number): value for number, value, _ in records(to)}
    else:
        query = f"SELECT id, value FROM '{to}/*.parquet'"
        found = dict(duckdb.sql(query).fetchall())
    transactions = int(found[0])
    assert transactions >= before
    assert found == state_after(transactions)


def slow_run(url: str, to: Path, *more: str) -> command.Running:
    return command.Running(
        *("run", url, "--table", "moving", "--to", str(to), "--parallelism", "2"),
        *("--where", SLOW, *CUT, *more),
    )


def reading(mysql: mysql_server.MySQLServer) -> list[str]:
    """Return the sessions that read rows for a run, by the id of the run."""
    return mysql.run(
        "SELECT id FROM information_schema.processlist WHERE info LIKE "
        "'/* unloader:% */ SELECT %sleep%' AND info NOT LIKE '%count(*)%' AND id <> connection_id()"
    ).split()


@pytest.mark.parametrize("how", ["session killed", "statement killed", "worker killed"])
def test_a_lost_session_or_worker_costs_no_row(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path, how: str
) -> None:
    """The unit is read again, in another session of the same snapshot."""
    expected = int(mysql.run("SELECT count(*) FROM moving", database="runs"))
    to = tmp_path / "out"
    run = slow_run(url, to, "--retry-delay", "0.1")
    run.wait_until(lambda: len(reading(mysql)) == 2, "two sessions that read")
    if how == "worker killed":
        run.workers()[0].kill()
    else:
        kind = "CONNECTION" if how == "session killed" else "QUERY"
        mysql.run(f"KILL {kind} {reading(mysql)[0]}")
    status, _, log = run.finish()
    assert status == 0, log
    assert "attempt 1 failed" in log
    found = {row[0] for row in records(to)}
    assert len(found) == len(records(to)) == expected


def test_a_stopped_run_ends_its_statements(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """After Ctrl-C no statement and no session of the run is left."""
    before = mysql.sessions()
    run = slow_run(url, tmp_path / "out")
    run.wait_until(lambda: len(reading(mysql)) == 2, "two sessions that read")
    run.signal(signal.SIGINT)
    status, _, log = run.finish()
    assert status == 130, log
    command.wait_for(lambda: mysql.sessions() <= before, "the end of all sessions")


def test_a_wait_for_a_lock_can_be_stopped(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """A run that cannot stop commits yet reacts to Ctrl-C, and gives up after --lock-timeout."""
    with mysql.start_client("runs") as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("LOCK TABLES moving WRITE; SELECT 'locked';\n")
        other.stdin.flush()
        assert other.stdout.readline() == "locked\n"
        to = tmp_path / "out"
        arguments = ("run", url, "--table", "moving", "--to", str(to), "--parallelism", "2")
        run = command.Running(*arguments)
        waits = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%READ LOCK'"
        run.wait_until(lambda: mysql.run(waits) == "1", "the wait for the lock")
        run.signal(signal.SIGINT)
        assert run.finish()[0] == 130
        error = command.error_of(*arguments, "--lock-timeout", "1", "--retries", "0", status=4)
        assert "--lock-timeout" in error
        other.communicate()


def test_a_user_without_the_right_to_the_lock_is_told_the_grant(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """The error has the GRANT; --consistency none needs no right but SELECT."""
    place = ("--table", "moving", "--to", str(tmp_path / "out"), "--parallelism", "2")
    reader = mysql.url("runs", "reader")
    error = command.error_of("run", reader, *place, status=4)
    assert "GRANT RELOAD ON *.* TO 'reader'@'%'" in error
    assert "--consistency none" in error
    # A sample outside a run needs no lock.
    command.run("codecs", reader, "--table", "moving", "--sample", "64KiB", "--json")
    command.run("run", reader, *place, "--consistency", "none")
    counted = int(mysql.run("SELECT count(*) FROM moving", database="runs"))
    assert len(records(tmp_path / "out")) == counted


@pytest.mark.parametrize("driver", ["PyMySQL", "ODBC"])
def test_columns_that_the_user_may_not_read_are_reported(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path, driver: str
) -> None:
    """The dictionary hides them, so nothing else shows that the table has more columns."""
    mysql.run(
        "CREATE OR REPLACE USER partial; GRANT SELECT (id, value) ON runs.moving TO partial",
        database="runs",
    )
    to, partial = tmp_path / "out", mysql.url("runs", "partial")
    source = of_mysql(partial) if driver == "ODBC" else partial
    done = command.ended(
        *("run", source, "--table", "moving", "--to", str(to)),
        *("--limit-rows", "2", "--consistency", "none"),
    )
    assert done.returncode == 0, done.stderr
    assert "only some columns of runs.moving" in done.stderr
    assert [len(row) for row in records(to)] == [2, 2]


def test_a_table_without_transactions_is_named(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """The snapshot does not cover its rows, so the log reports that."""
    mysql.run(
        "CREATE OR REPLACE TABLE old (i int) ENGINE=MyISAM; INSERT INTO old VALUES (1)",
        database="runs",
    )
    done = command.ended("run", url, "--table", "old", "--to", str(tmp_path / "out"))
    assert done.returncode == 0
    assert "engine MyISAM has no transactions" in done.stderr


def test_a_table_is_not_truncated_under_a_snapshot(
    mysql: mysql_server.MySQLServer, url: str
) -> None:
    """A truncated table is gone for the snapshot; a held one cannot be truncated."""
    tables = ("early", "late")
    for name in tables:
        mysql.run(f"CREATE OR REPLACE TABLE {name} (i int); INSERT INTO {name} VALUES (1)", "runs")
    spec = SourceSpec(kind="mysql", location=url)
    with closing(MySQLSource().open_catalog(spec)) as catalog:
        snapshot = catalog.snapshot("snapshot")
        infos = [catalog.describe(parse_table(name)) for name in tables]
        extracts = [
            Extract(
                source=spec,
                snapshot=snapshot,
                table=info,
                query=None,
                where=None,
                partitions=(),
                projection=project(catalog, info, None, [OutputNeeds(text=None)]),
            )
            for info in infos
        ]
        mysql.run("TRUNCATE early", "runs")
        with pytest.raises(SnapshotGone):
            catalog.hold(extracts[0], (WholeTable(),))
        catalog.hold(extracts[1], (WholeTable(),))
        with pytest.raises(AssertionError, match="Lock wait timeout"):
            mysql.run("SET lock_wait_timeout = 1; TRUNCATE late", "runs")
        assert catalog.count(extracts[1]) == 1


@pytest.mark.parametrize(
    ("rows", "text"), [(100, "larger than max_allowed_packet"), (66_000, "more warnings than")]
)
def test_a_value_that_the_server_drops_is_an_error(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path, rows: int, text: str
) -> None:
    """Also where other warnings precede the only warning about it."""
    usual = mysql.run(
        "CREATE OR REPLACE TABLE dropped (i int PRIMARY KEY, t char(2), b longblob); "
        f"INSERT INTO dropped SELECT seq, 'x', '' FROM seq_1_to_{rows}; "
        f"UPDATE dropped SET b = repeat('ab', 400000) WHERE i = {rows}; SELECT @@max_allowed_packet",
        database="runs",
    )
    place = ("run", url, "--table", "dropped", "--to", str(tmp_path / "out"))
    more = ("--where", "CAST(t AS INT) = 0", "--parallelism", "1", "--split", "none")
    mysql.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        assert text in command.error_of(*place, *more, "--as-text", "b", status=4)
        command.run(*place, *more)
    finally:
        mysql.run(f"SET GLOBAL max_allowed_packet = {usual}")
    (file,) = (tmp_path / "out").glob("*.csv")
    assert file.read_text().endswith(f"\n{rows},x,\\x{'6162' * 400_000}\n")


@pytest.mark.parametrize("driver", ["PyMySQL", "ODBC"])
def test_settings_of_the_server_change_no_row(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path, driver: str
) -> None:
    """A run sees neither old rows, nor rows that are not committed, and takes its time.

    The partitions have the old rows.
    """
    mysql.run(
        "CREATE OR REPLACE TABLE versions (i int PRIMARY KEY, t char(9)) WITH SYSTEM VERSIONING "
        "PARTITION BY SYSTEM_TIME LIMIT 9 PARTITIONS 3; "
        "INSERT INTO versions VALUES (1, 'old'), (2, 'x'); "
        "UPDATE versions SET t = 'new' WHERE i = 1; DELETE FROM versions WHERE i = 2",
        database="runs",
    )
    settings = {
        "system_versioning_asof": "'2000-01-01'",
        "max_statement_time": "1",
        "wait_timeout": "1",
        "sql_mode": "'PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'",
        "tx_isolation": "'READ-UNCOMMITTED'",
    }
    place = ("--table", "versions", "--to", str(tmp_path / "out"), "--where", "sleep(1.5) = 0")
    with mysql.start_client("runs") as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("BEGIN; INSERT INTO versions VALUES (3, 'y'); SELECT 'written';\n")
        other.stdin.flush()
        assert other.stdout.readline() == "written\n"
        try:
            values = ", ".join(f"{name} = {value}" for name, value in settings.items())
            mysql.run(f"SET GLOBAL {values}")
            command.run("run", of_mysql(url) if driver == "ODBC" else url, *place)
        finally:
            mysql.run(f"SET GLOBAL {', '.join(f'{name} = DEFAULT' for name in settings)}")
        other.communicate()
    assert records(tmp_path / "out") == [["1", "new"]]


def test_keys_far_from_all_others_leave_units_even(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """The smallest and the largest number of 64 bits are keys; a sample of the rows is read, too."""
    mysql.run(
        f"CREATE OR REPLACE TABLE ends (i bigint PRIMARY KEY) SELECT seq AS i FROM seq_1_to_{ROWS}; "
        "INSERT INTO ends VALUES (-9223372036854775808), (9223372036854775807); ANALYZE TABLE ends",
        database="runs",
    )
    to = tmp_path / "out"
    command.run("run", url, "--table", "ends", "--to", str(to), *CUT)
    units = command.manifest_of(to)["units"]
    assert max(unit["rows"] for unit in units) < ROWS / 3
    assert sorted(int(row[0]) for row in records(to)) == [-(2**63), *range(1, ROWS + 1), 2**63 - 1]
    found = command.run("codecs", url, "--table", "ends", "--sample", "64KiB", "--json")
    assert json.loads(found)["sample"]["rows"] > 0


def test_dates_of_zeros_are_exact_text_or_refused_by_name(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path
) -> None:
    """Text outputs have them as the server prints them; Parquet refuses them, unless as text."""
    mysql.run(
        "SET sql_mode = ''; CREATE OR REPLACE TABLE zeros (i int PRIMARY KEY, day date, "
        "moment datetime, half date); "
        "INSERT INTO zeros VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '2024-00-15')",
        database="runs",
    )
    place = ("run", url, "--table", "zeros", "--to")
    command.run(*place, str(tmp_path / "csv"))
    assert records(tmp_path / "csv") == [["1", "0000-00-00", "0000-00-00 00:00:00", "2024-00-15"]]
    parquet = (str(tmp_path / "parquet"), "--format", "parquet")
    error = command.error_of(*place, *parquet, status=6)
    assert "column day: 0000-00-00" in error
    assert "--as-text day,moment,half" in error
    command.run(*place, *parquet, "--as-text", "day,moment,half")
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/parquet/*.parquet'").fetchall()
    assert found == [(1, "0000-00-00", "0000-00-00 00:00:00", "2024-00-15")]


@pytest.mark.parametrize("library", [None, ""])
def test_values_of_many_megabytes_and_columns_of_a_query(
    mysql: mysql_server.MySQLServer, url: str, tmp_path: Path, library: str | None
) -> None:
    """Rows in several packets and rows around them are whole, with and without native code."""
    mysql.run(
        "CREATE OR REPLACE TABLE wide (id int PRIMARY KEY, b longblob, t longtext); "
        "INSERT INTO wide VALUES (1, 'a', 'b'), (2, repeat(x'00FF', 20000000), 'middle'), "
        "(3, NULL, repeat('ü', 9000000)), (4, repeat('x', 16777204), NULL), (5, '', '')",
        database="runs",
    )
    env = {} if library is None else {"UNLOADER_NATIVE_ROWS_LIBRARY": library}
    to = tmp_path / "out"
    query = "SELECT id, b, t, id * 1.5 AS half, NULL AS nothing FROM wide"
    command.run("run", url, "--query", query, "--to", str(to), "--format", "parquet", env=env)
    sums = "SELECT id, md5(b), md5(t), half FROM"
    found = duckdb.sql(f"{sums} '{to}/*.parquet' ORDER BY id").fetchall()
    expected = mysql.run(f"{sums} (SELECT id, b, t, id * 1.5 AS half FROM wide) w", database="runs")
    shown = ["\t".join("NULL" if each is None else str(each) for each in row) for row in found]
    assert "\n".join(shown) == expected


@pytest.fixture(scope="module")
def tls() -> Iterator[tuple[Any, Path]]:
    """A server that speaks TLS on a port, and the file with its certificate."""
    if reason := mysql_server.missing():
        pytest.skip(reason)
    # The server is another user, who cannot enter the directories of pytest.
    with TemporaryDirectory(dir="/tmp") as directory:
        pem = self_signed(Path(directory) / "localhost.pem", "localhost")
        for each in (pem, pem.parent):
            each.chmod(0o755)
        with create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = [f"--ssl-cert={pem}", f"--ssl-key={pem}", "--bind-address=127.0.0.1"]
        options.append(f"--port={port}")
        with mysql_server.started(*options) as server:
            yield server, pem


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("ssl-mode=REQUIRED", ""),
        ("ssl-ca={pem}&ssl-mode=VERIFY_IDENTITY", ""),
        ("ssl-mode=VERIFY_IDENTITY", "is not trusted"),
    ],
)
def test_tls(
    tls: tuple[mysql_server.MySQLServer, Path], tmp_path: Path, mode: str, reason: str
) -> None:
    """Workers read at the snapshot through the TLS of the parent; an unknown CA is refused."""
    server, pem = tls
    server.run(
        "CREATE DATABASE IF NOT EXISTS d; CREATE OR REPLACE TABLE d.t (i int PRIMARY KEY); "
        "INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE "
        "i < 900) SELECT i FROM n"
    )
    port = server.run("SELECT @@port")
    url = f"mysql://root@localhost:{port}/d?{mode.format(pem=pem)}"
    place = ("--table", "t", "--to", str(tmp_path / "out"), "--parallelism", "2")
    cut = ("--split", "range", "--unit-bytes", "4KiB")
    if reason:
        error = command.error_of("run", url, *place, "--retries", "0", status=4)
        assert reason in error
        return
    command.run("run", url, *place, *cut)
    assert {int(row[0]) for row in records(tmp_path / "out")} == set(range(1, 901))
