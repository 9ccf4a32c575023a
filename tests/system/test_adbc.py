"""Whole runs from databases behind ADBC drivers: hostile rows, one moment, kills, ends, secrets."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import _duckdb
import duckdb
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from postgres import hostile_rows
from postgres.hostile_rows import INFINITE, NAME
from processes import command
from processes.program import Program

ROOT = Path(__file__).parents[2]
CUT = ("--split", "range", "--unit-bytes", "20KiB")
SLOW = "pg_sleep(0.001) IS NOT NULL"


def source(url: str) -> str:
    """Return the URL for ADBC of a database of PostgreSQL."""
    return f"adbc://postgresql?uri={quote(url, safe='')}"


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with the hostile table and one whose rows change."""
    pytest.importorskip("adbc_driver_postgresql")
    found: str = postgres.database("adbc_runs")
    postgres.run(hostile_rows.create(2_000, partitions=3), url=found)
    postgres.run(
        "CREATE TABLE moving (id bigint PRIMARY KEY, value text, key text); "
        "INSERT INTO moving SELECT g, 'row ' || g, CASE WHEN g % 3 > 0 THEN 'k' || g END "
        "FROM generate_series(0, 5999) g",
        url=found,
    )
    return found


@pytest.mark.parametrize(
    ("key", "form"), [("ts", "csv"), *also(OTHER_ROUTES, ('"Key"', "csv"), ("id", "parquet"))]
)
def test_a_hostile_table_is_that_of_the_server(
    url: str, tmp_path: Path, key: str, form: str
) -> None:
    """Rows in ranges of a key, with infinite dates and NULL, equal the rows that COPY returns."""
    wanted, found = tmp_path / "copy", tmp_path / "adbc"
    more = ("--exclude", ",".join(INFINITE)) if form == "parquet" else ()
    for where, to, ranges in ((url, wanted, ()), (source(url), found, ("--split-by", key, *CUT))):
        command.run(
            *("run", where, "--table", NAME, "--to", str(to), "--format", form),
            *("--parallelism", "3", *more, *ranges),
        )
    assert len(command.manifest_of(found)["units"]) > 3
    if form == "csv":
        rows = [
            sorted(
                line
                for file in to.glob("*.csv")
                for line in csv.reader(io.StringIO(file.read_text("utf-8"), newline=""))
            )
            for to in (wanted, found)
        ]
        assert [line for line in rows[0] if line[0] != "id"] == [
            line for line in rows[1] if line[0] != "id"
        ]
        return
    first, second = (pq.read_table(to).sort_by("id") for to in (wanted, found))
    assert first.schema.equals(second.schema)
    # NaN is not equal to itself.
    assert str(first.to_pylist()) == str(second.to_pylist())


def test_uuids_divide_a_table(postgres: Any, tmp_path: Path) -> None:
    """PostgreSQL has no smallest uuid of a group."""
    pytest.importorskip("adbc_driver_postgresql")
    url = postgres.database("adbc_uuids")
    postgres.run(
        "CREATE TABLE t AS SELECT md5(g::text)::uuid AS u FROM generate_series(1, 2000) g "
        "UNION ALL SELECT NULL",
        url=url,
    )
    to = tmp_path / "out"
    command.run("run", source(url), "--table", "t", "--to", str(to), "--split-by", "u", *CUT)
    units = command.manifest_of(to)["units"]
    assert len(units) > 3
    assert max(unit["rows"] for unit in units) < 1000
    found = [line for file in to.glob("*.csv") for line in file.read_text().split("\n")[1:-1]]
    wanted = postgres.run("SELECT u FROM t WHERE u IS NOT NULL ORDER BY 1", url=url).split("\n")
    assert sorted(found) == ["", *wanted]


def test_a_database_of_another_encoding_has_its_texts(postgres: Any, tmp_path: Path) -> None:
    """Bytes of LATIN1 may be valid UTF-8 of other letters; names and conditions are texts, too.

    A materialized view cannot be locked by LOCK TABLE.
    """
    pytest.importorskip("adbc_driver_postgresql")
    url = postgres.database("adbc_latin", "LATIN1")
    postgres.run(
        "SET client_encoding = 'UTF8'; CREATE MATERIALIZED VIEW mü AS "
        "SELECT 'Ã©' AS spalteü UNION ALL SELECT 'é'",
        url=url,
    )
    to = tmp_path / "out"
    run = ("run", source(url), "--table", "mü", "--to", str(to), "--where", "spalteü = 'Ã©'")
    command.run(*run, "--format", "parquet")
    table = pq.read_table(to)
    assert table.to_pydict() == {"spalteü": ["Ã©"]}


def test_all_workers_read_one_moment(url: str, tmp_path: Path) -> None:
    """Rows of several workers are of one state while another program commits."""
    writer = Program(
        [sys.executable, str(ROOT / "tests/support/postgres/writer.py"), url],
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        to = tmp_path / "out"
        command.run(
            *("run", source(url), "--table", "moving", "--to", str(to), "--format", "parquet"),
            *("--parallelism", "4", "--split-by", "key", *CUT),
        )
        writer.terminate()
    found = dict(duckdb.sql(f"SELECT id, value FROM '{to}/*.parquet'").fetchall())
    last = int(found[0])
    assert last >= 20
    wanted = {number: f"row {number}" for number in range(6000)}
    for number in range(1, last + 1):
        wanted[10**7 + number] = f"new {number}"
        wanted.pop(3 * number, None)
        if 3 * number + 1 in wanted:
            wanted[3 * number + 1] = f"rewritten {number}"
    assert found == {**wanted, 0: str(last)}


def slow_run(url: str, to: Path) -> command.Running:
    return command.Running(
        *("run", source(url), "--table", NAME, "--to", str(to), "--parallelism", "2"),
        *("--where", SLOW, "--split-by", "id", *CUT),
    )


def reading(postgres: Any) -> list[str]:
    """Return the sessions that read rows slowly."""
    found: list[str] = postgres.run(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'unloader' AND "
        "query LIKE '%SELECT (%varchar(%' AND state = 'active'"
    ).split()
    return found


@pytest.mark.parametrize("how", ["worker", *also(OTHER_ROUTES, "session")])
def test_a_lost_worker_or_session_costs_no_row(
    postgres: Any, url: str, tmp_path: Path, how: str
) -> None:
    """The unit is read again, at the same snapshot."""
    to = tmp_path / "out"
    run = slow_run(url, to)
    run.wait_until(lambda: bool(reading(postgres)) and bool(run.workers()), "a worker that reads")
    if how == "worker":
        run.workers()[0].kill()
    else:
        postgres.run(f"SELECT pg_terminate_backend({reading(postgres)[0]})")
    status, _, log = run.finish()
    assert status == 0, log
    assert "attempt 1 failed" in log
    assert command.manifest_of(to)["totals"]["rows"] == 2_000


@pytest.mark.long(OTHER_ROUTES)
def test_ctrl_c_ends_the_statements_of_the_run(postgres: Any, url: str, tmp_path: Path) -> None:
    """A run that waits for the server ends, and so do its sessions."""
    run = command.Running(
        *("run", source(url), "--table", NAME, "--to", str(tmp_path / "out")),
        *("--where", "pg_sleep(30) IS NOT NULL", "--parallelism", "1"),
    )
    run.wait_until(lambda: bool(reading(postgres)), "a statement that waits")
    run.signal(signal.SIGINT)
    status, _, log = run.finish()
    assert status == 130, log
    command.wait_for(lambda: not reading(postgres), "the end of the statements")


def test_a_password_is_refused_in_the_url_and_shown_nowhere(url: str, tmp_path: Path) -> None:
    """The password comes from its usual place, also where the driver prints its options."""
    shown = command.error_of(
        *("run", "adbc://postgresql?uri=postgresql://etl:geheim77@db/x", "--table", "t"),
        *("--to", str(tmp_path / "out")),
        status=2,
    )
    assert "geheim77" not in shown
    for uri in ("postgresql://etl@nowhere.invalid/x", "nonsense"):
        done = command.ended(
            *("--debug", "run", f"adbc://postgresql?uri={uri}", "--table", "t", "--retries", "0"),
            *("--to", str(tmp_path / "out")),
            env={"UNLOADER_PASSWORD": "geheim77", "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 4
        assert "geheim77" not in done.stderr + done.stdout


def test_a_database_of_another_kind_is_marked_as_not_proved(tmp_path: Path) -> None:
    """Several pieces need --consistency none, and the log has a notice.

    DuckDB's library has an ADBC driver, whose database is not one of the tried ones.
    """
    path = tmp_path / "data.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT g::INTEGER AS k, (g * 0.5)::DECIMAL(38,10) AS n, "
            "chr(64 + (g % 26)::INTEGER) || 'ü' || g AS s, DATE '0001-01-01' + g::INTEGER AS d, "
            "g / 7 AS r, g::UTINYINT AS u, ('\\x00' || g)::BLOB AS b, "
            "TIMESTAMPTZ '2024-01-01 00:00:00+02' AS z, [g] AS l FROM range(1, 200) x (g) "
            "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        )
        columns = "k, n, s, d, r, u, b, epoch_us(z)"
        wanted = connection.execute(f"SELECT {columns} FROM t ORDER BY k").fetchall()
    where = (
        f"adbc://{_duckdb.__file__}?entrypoint=duckdb_adbc_init&path={path}&access_mode=READ_ONLY"
    )
    to = tmp_path / "out"
    run = ("run", where, "--table", "t", "--to", str(to), "--format", "parquet")
    assert "--exclude l" in command.error_of(*run, status=4)
    ranges = ("--exclude", "l", "--split-by", "s", "--split", "range", "--unit-bytes", "2KiB")
    assert "--consistency none" in command.error_of(*run, *ranges, status=4)
    done = command.ended(*run, *ranges, "--consistency", "none")
    assert done.returncode == 0, done.stderr
    assert "not proved" in done.stderr
    found = duckdb.sql(f"SELECT {columns} FROM '{to}/*.parquet' ORDER BY k").fetchall()
    assert found == wanted
    manifest = json.loads((to / "_manifest.json").read_text())
    assert len(manifest["units"]) > 3
    assert all(not column["lossless"] for column in manifest["columns"])
