"""What goes wrong at night: each ends with its own exit status and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from long_tests import OTHER_ROUTES, also
from postgres import gates
from processes import command
from processes.breaking import staged_units
from processes.program import Program


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of a few megabytes."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, hash(i)::VARCHAR || hash(i + 1)::VARCHAR AS s "
            "FROM range(200000) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def slow(postgres: Any) -> str:
    """PostgreSQL with a view that takes many minutes to read, and others."""
    url: str = postgres.database("slow")
    postgres.run(
        "CREATE VIEW slow AS SELECT g AS id, repeat('x', 200) AS s, pg_sleep(0.001)::text AS z "
        "FROM generate_series(1, 1000000) g; CREATE TABLE quick AS SELECT g AS id FROM "
        "generate_series(1, 1000) g; CREATE VIEW stuck AS SELECT pg_sleep(3600)::text AS z;"
        f"CREATE VIEW gated AS SELECT g AS id, {gates.PASSING} AS z "
        "FROM generate_series(1, 1000) g;",
        url=url,
    )
    return url


def begun(destination: Path) -> bool:
    """Return whether a worker has opened a staged file."""
    return any((destination / "_run" / "staged").glob("*"))


@pytest.mark.parametrize("killed", ["worker", "fork server"])
def test_killed_worker_costs_one_attempt(
    slow: str, postgres: Any, tmp_path: Path, killed: str
) -> None:
    """A worker killed in mid-unit, or with its fork server, is replaced, and the run is whole."""
    dest = tmp_path / "out"
    with gates.closed(postgres, slow) as gate:
        running = command.Running(
            *("run", slow, "--table", "gated", "--to", str(dest), "--parallelism", "1"),
            *("--progress", "log", "--json"),
        )
        gates.wait_at(gate, running)
        (worker,) = running.workers()
        (worker if killed == "worker" else worker.parent()).kill()
    status, _, err = running.finish()
    assert status == 0, err
    assert "signal 9" in err or "SIGKILL" in err
    (unit,) = command.manifest_of(dest)["units"]
    assert unit["attempts"] == 2
    assert unit["rows"] == 1000
    assert not (dest / "_run").exists()


@pytest.mark.long(OTHER_ROUTES)
def test_stalled_worker_is_replaced_and_given_up(slow: str, tmp_path: Path) -> None:
    """A unit that makes no progress uses up its attempts; the run ends with status 7."""
    dest = tmp_path / "out"
    error = command.error_of(
        "run", slow, "--table", "stuck", "--to", str(dest), "--stall-timeout", "2",
        "--retries", "1", "--retry-delay", "0.1", "--progress", "none", status=7,
    )  # fmt: skip
    assert "worker" in error
    assert command.final_names(dest) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, *also("signals", signal.SIGINT, signal.SIGHUP)])
def test_signal_stops_cleanly(
    slow: str, postgres: Any, tmp_path: Path, number: signal.Signals
) -> None:
    """Each signal ends the run with 130; no process and no final file is left."""
    dest = tmp_path / "out"
    with gates.closed(postgres, slow) as gate:
        running = command.Running("run", slow, "--table", "gated", "--to", str(dest))
        gates.wait_at(gate, running)
        running.wait_until(lambda: begun(dest), "a staged file")
        workers = running.workers()
        running.signal(number)
        status, out, err = running.finish()
    assert status == 130, err
    assert out == ""
    assert not any(psutil.pid_exists(worker.pid) for worker in workers)
    assert command.final_names(dest) == []
    assert not begun(dest)


def test_signal_while_counting_publishes_nothing(postgres: Any, tmp_path: Path) -> None:
    """A signal cuts a count of hours short: files stay staged, the status is 130."""
    url = postgres.database("counted")
    postgres.run(
        "CREATE FUNCTION slow_to_count(i int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN "
        "IF current_query() LIKE '%count(*)%' THEN PERFORM pg_sleep(3600); END IF; RETURN i; END $$;"
        "CREATE VIEW counted AS SELECT * FROM (SELECT slow_to_count(g) AS id "
        "FROM generate_series(1, 3) g) AS calls WHERE id > 0",
        url=url,
    )
    counting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'counted' AND state = 'active' "
        "AND application_name LIKE 'unloader:%' AND query LIKE '%count(*)%counted%'"
    )
    dest = tmp_path / "out"
    running = command.Running("run", url, "--table", "counted", "--to", str(dest))
    running.wait_until(lambda: postgres.run(counting) == "1", "the count")
    running.signal(signal.SIGINT)
    status, out, err = running.finish()
    assert (status, out) == (130, ""), err
    assert command.final_names(dest) == []
    assert begun(dest)


def test_signal_while_waiting_for_a_lock(postgres: Any, tmp_path: Path) -> None:
    """A signal ends the wait for another user's lock before anything is read."""
    url = postgres.database("locked")
    postgres.run("CREATE TABLE locked (id int)", url=url)
    dest = tmp_path / "out"
    with Program(
        [postgres.psql, "-X", "-q", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write("BEGIN; LOCK TABLE locked;\n\\echo held\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        running = command.Running("run", url, "--table", "locked", "--to", str(dest))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        running.wait_until(lambda: postgres.run(waiting) != "0", "a wait for the lock")
        running.signal(signal.SIGTERM)
        status, out, err = running.finish()
    assert (status, out) == (130, ""), err
    assert not dest.exists()


def test_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The system's own words name neither a socket nor an unknown host; the message does."""
    url = f"postgresql://me@/db?host={tmp_path}"
    error = command.error_of("describe", url, status=4)
    assert url in error
    assert "check host and port" in error


def test_killed_parent_leaves_no_worker(slow: str, tmp_path: Path) -> None:
    """SIGKILL of the command itself takes its workers with it."""
    dest = tmp_path / "out"
    running = command.Running("run", slow, "--table", "slow", "--to", str(dest))
    running.wait_until(lambda: begun(dest) and bool(running.workers()), "a staged file")
    workers = running.workers()
    running.signal(signal.SIGKILL)
    running.finish()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    assert not any(worker.is_running() for worker in workers)
    assert command.final_names(dest) == []
    # A killed run does not block a later one.
    command.run("run", slow, "--table", "quick", "--to", str(dest), "--quiet")
    assert command.manifest_of(dest)["totals"]["rows"] == 1000


@pytest.mark.parametrize("mode", ["kill", *also("faults of a source", "immediate")])
def test_dying_server_is_a_source_error(
    start_postgres: Callable[[], Any], tmp_path: Path, mode: str
) -> None:
    """The server dies in mid-fetch: status 4, the reason, nothing under a final name."""
    server = start_postgres()
    server.run(
        "CREATE VIEW slow AS SELECT g AS id, pg_sleep(0.001)::text AS z "
        "FROM generate_series(1, 1000000) g"
    )
    dest = tmp_path / "out"
    running = command.Running("run", server.url, "--table", "slow", "--to", str(dest))
    running.wait_until(lambda: begun(dest), "a staged file")
    data = server.run("SHOW data_directory")
    postmaster = int(Path(data, "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT if mode == "immediate" else signal.SIGKILL)
    status, _, err = running.finish()
    assert status == 4, err
    assert "PostgreSQL" in err
    assert command.final_names(dest) == []
    assert not begun(dest)


@pytest.mark.parametrize("tables", [("gated",), ("gated", "quick")])
@pytest.mark.parametrize("left", ["", "_run", "_run/staged"])
def test_directory_removed_in_mid_run(
    slow: str, postgres: Any, tmp_path: Path, tables: tuple[str, ...], left: str
) -> None:
    """The error names the removed destination; empty directories of the run go, too."""
    dest = tmp_path / "out"
    names = [word for table in tables for word in ("--table", table)]
    to = str(dest / "{table}") if len(tables) > 1 else str(dest)
    with gates.closed(postgres, slow) as gate:
        running = command.Running("run", slow, *names, "--to", to)
        gates.wait_at(gate, running)
        while dest.exists():
            # It fails if the run writes a file at that moment.
            subprocess.run(["rm", "-rf", str(dest)], check=False)
        if left:
            (dest / left).mkdir(parents=True)
    status, _, err = running.finish()
    assert status == 6, err
    assert f"the destination {dest} was removed during the run" in err
    assert err.rstrip().endswith("Next: find out which program removed it, then run again")
    assert not dest.exists()


def test_duckdb_file_being_written(tmp_path: Path) -> None:
    """A DuckDB file open for writing elsewhere is refused with the reason."""
    path = tmp_path / "w.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (i INTEGER)")
        error = command.error_of(
            "run", f"duckdb://{path}", "--table", "t", "--to", str(tmp_path / "out"),
            "--retries", "0", status=4,
        )  # fmt: skip
    assert "another process" in error
    assert not (tmp_path / "out").exists()


def test_journal_survives_a_failed_unit(postgres: Any, tmp_path: Path) -> None:
    """Finished units stay staged and journaled when another unit fails for good."""
    url = postgres.database("partly")
    postgres.run(
        "CREATE TABLE p (k int, v date) PARTITION BY LIST (k);"
        "CREATE TABLE p_good PARTITION OF p FOR VALUES IN (1);"
        "CREATE TABLE p_bad PARTITION OF p FOR VALUES IN (2);"
        "INSERT INTO p SELECT 1, '2024-01-01' FROM generate_series(1, 50000);"
        "INSERT INTO p VALUES (2, 'infinity'); VACUUM ANALYZE p;",
        url=url,
    )
    dest = tmp_path / "out"
    error = command.error_of(
        "run", url, "--table", "p", "--to", str(dest), "--format", "parquet",
        "--parallelism", "1", "--split", "partition", "--progress", "none", status=6,
    )  # fmt: skip
    assert "column v" in error
    assert command.final_names(dest) == []
    (line,) = staged_units(dest).values()
    assert line["finished"]["partitions"] == ["p_good"]
