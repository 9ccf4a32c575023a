"""A number of workers that changes while a run continues: by measuring, by limits, by hand."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command
from processes.program import Program

PARTS, ROWS = 4, 600
SLOWED = "SELECT pg_advisory_lock(4711), pg_sleep(600)"
"""While a session is at this the rows of the table come one by one, else immediately."""


@pytest.fixture(scope="module")
def slow(postgres: Any) -> str:
    """A table of PostgreSQL whose partitions take minutes each, as long as that is asked for."""
    url: str = postgres.database("slow")
    postgres.run(
        "CREATE TABLE p (k int, v int, pad text) PARTITION BY LIST (k);"
        + "".join(f"CREATE TABLE p{k} PARTITION OF p FOR VALUES IN ({k});" for k in range(PARTS))
        + f"INSERT INTO p SELECT g % {PARTS}, g, repeat('x', 50000) "
        f"FROM generate_series(1, {PARTS * ROWS}) g; VACUUM ANALYZE p;"
        "CREATE FUNCTION waits(v int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN "
        "IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711) THEN "
        "PERFORM pg_sleep(0.5); END IF; RETURN true; END $$",
        url=url,
    )
    return url


@contextmanager
def started(url: str, dest: Path, workers: int, *options: str) -> Iterator[command.Running]:
    """Start a run whose rows come one by one; it is ended where a test fails.

    When this returns all its workers are in the middle of a unit.
    """
    run = command.Running(
        *("run", url, "--table", "p", "--to", str(dest), "--split", "partition"),
        *("--where", "waits(v)", "--fetch-memory", "64KiB", "--verify", "none"),
        *("--progress", "log", "--parallelism", str(workers), *options),
    )
    try:
        run.wait_until(lambda: reading(dest) == workers, "rows of all workers")
        yield run
    finally:
        if run.process.poll() is None:
            run.signal(signal.SIGTERM)
            run.finish()


def live(dest: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((dest / "_run" / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found


def at_work(dest: Path) -> tuple[int, int]:
    """Return how many workers may work, and how many are held up in the middle of a unit."""
    known = live(dest).get("parallelism") or {}
    waiting = [each for each in live(dest).get("workers", ()) if each["waits_for"] == "limit"]
    assert len(waiting) <= PARTS
    return known.get("workers", 0), len(waiting)


def reading(dest: Path) -> int:
    """Return how many workers have read rows of their unit."""
    return sum(each["rows"] > 0 for each in live(dest).get("workers", ()))


@dataclass
class Sessions:
    """Clients of the server that are at a statement."""

    postgres: Any
    sql: str
    clients: list[subprocess.Popen[bytes]]

    def count(self) -> int:
        """Return how many are at it."""
        at_it = f"SELECT count(*) FROM pg_stat_activity WHERE query = '{self.sql}'"
        return int(self.postgres.run(at_it))

    def kill(self) -> None:
        """End them all."""
        for each in self.clients:
            each.kill()
            each.wait()
        self.postgres.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE pid <> pg_backend_pid() AND query = '{self.sql}'"
        )


@contextmanager
def sessions(postgres: Any, url: str, sql: str, count: int = 1) -> Iterator[Sessions]:
    command_line = [postgres.psql, "-X", "-q", "-c", sql, url]
    quiet = subprocess.DEVNULL
    busy = [Program(command_line, stdout=quiet, stderr=quiet) for _ in range(count)]
    found = Sessions(postgres, sql.replace("'", "''"), busy)
    try:
        command.wait_for(lambda: found.count() == count, "sessions at work")
        yield found
    finally:
        found.kill()


def steps_of(dest: Path) -> list[dict[str, Any]]:
    """Return how many workers worked when, by the manifest."""
    found: list[dict[str, Any]] = command.manifest_of(dest)["parallelism_steps"]
    return found


@pytest.mark.long("runs under limits")
def test_a_loaded_database_and_a_hand_hold_workers_up(
    slow: str, postgres: Any, tmp_path: Path
) -> None:
    """Both in the middle of units; when the load has gone they go on, and every row is there."""
    dest = tmp_path / "out"
    with ExitStack() as ends:
        slowed = ends.enter_context(sessions(postgres, slow, SLOWED))
        run = ends.enter_context(started(slow, dest, 4, "--max-db-load", "7"))
        # One other session is active all the time.
        with sessions(postgres, slow, "SELECT pg_sleep(600)", 5):
            run.wait_until(lambda: at_work(dest) == (1, 3), "three workers held up")
            assert "(--max-db-load 7)" in live(dest)["parallelism"]["limit"]
            page = command.run("status", str(dest))
            assert re.search(
                r"^workers +1 of 4 \(fixed\), 3 paused within a unit", page, re.MULTILINE
            )
            assert len(re.findall("a limit on the run", page)) == 3
        run.wait_until(lambda: at_work(dest) == (4, 0), "all four at work again")
        told = command.run("set", str(dest), "--parallelism", "2")
        assert re.search("has applied the change: 2 of 4 workers", told)
        run.wait_until(lambda: at_work(dest) == (2, 2), "two workers held up by hand")
        refused = command.error_of("set", str(dest), "--parallelism", "9", status=6)
        assert "the run has seats for 4 workers, but the request asks for 9" in refused
        answer = json.loads(command.run("set", str(dest), "--parallelism", "auto", "--json"))
        assert (answer["taken"], answer["parallelism"]["workers"]) == (True, 4)
        slowed.kill()
        status, _, err = run.finish()
    assert status == 0, err
    assert "active sessions (--max-db-load 7)" in err
    steps = steps_of(dest)
    assert [(each["workers"], each["cause"]) for each in steps if each["cause"] != "limit"] == [
        *((4, "start"), (2, "asked"), (4, "asked"))
    ]
    assert {(1, "limit"), (4, "limit")} <= {(each["workers"], each["cause"]) for each in steps}
    rows = duckdb.sql(f"SELECT count(*), count(DISTINCT v) FROM '{dest}/*.csv'").fetchall()
    assert rows == [(PARTS * ROWS, PARTS * ROWS)]
    assert "no run is writing to" in command.error_of(
        "set", str(dest), "--parallelism", "2", status=6
    )


@pytest.mark.long("runs under limits")
def test_a_run_that_ends_held_up_leaves_no_worker(slow: str, postgres: Any, tmp_path: Path) -> None:
    """Workers that wait for leave to go on end with the run."""
    dest = tmp_path / "out"
    with sessions(postgres, slow, SLOWED), ExitStack() as ends:
        run = ends.enter_context(started(slow, dest, 2))
        assert live(dest)["parallelism"] is None
        command.run("set", str(dest), "--parallelism", "1", "--max-cpu", "99%")
        run.wait_until(lambda: at_work(dest) == (1, 1), "one worker held up")
        workers = run.workers()
        assert len(workers) == 2
        run.signal(signal.SIGTERM)
        assert run.finish()[0] == 130
    assert not any(worker.is_running() for worker in workers)


def test_a_user_who_sees_no_sessions_is_told(slow: str, postgres: Any, tmp_path: Path) -> None:
    """Before anything is read, with the grant that is missing."""
    postgres.run("DROP ROLE IF EXISTS blind; CREATE ROLE blind LOGIN", url=slow)
    postgres.run("GRANT SELECT ON p TO blind", url=slow)
    refused = command.error_of(
        *("run", slow.replace("postgres@", "blind@"), "--table", "p", "--to", str(tmp_path / "o")),
        *("--max-db-load", "4"),
        status=3,
    )
    assert "user blind may not see which other sessions are active" in refused
    assert "GRANT pg_read_all_stats TO blind" in refused
    assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of some units."""
    path = tmp_path_factory.mktemp("file") / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, md5(i::text) h FROM range(400000) r(i)")
    return f"duckdb://{path}"


def unload(file: str, dest: Path, *options: str) -> dict[str, Any]:
    """Unload it and return the manifest."""
    command.run("run", file, "--table", "t", "--to", str(dest), "--unit-bytes", "1MB", *options)
    return command.manifest_of(dest)


def test_adaptive_begins_with_few_and_writes_the_same(file: str, tmp_path: Path) -> None:
    """The steps are in the manifest, and the rows equal a run without it."""
    found = unload(file, tmp_path / "a", "--parallelism", "adaptive", "--max-sessions", "4")
    assert found["options"]["adaptive"] is True
    assert (found["options"]["parallelism"], found["options"]["max_sessions"]) == (0, 4)
    first = found["parallelism_steps"][0]
    assert (first["workers"], first["of"], first["cause"]) == (2, 3, "start")
    assert found["totals"]["rows"] == 400_000
    plain = unload(file, tmp_path / "b", "--parallelism", "3")
    assert "parallelism_steps" not in plain
    sums = [
        {each["path"]: each["checksum"] for unit in one["units"] for each in unit["files"]}
        for one in (found, plain)
    ]
    assert sums[0] == sums[1]


@pytest.mark.long("runs under limits")
def test_slow_hours_and_sessions_bound_a_fixed_number(file: str, tmp_path: Path) -> None:
    """Slow hours let one worker work; sessions leave that many seats."""
    # One minute a day is not among them: another one then.
    minute = time.strftime("%H:%M", time.localtime(time.time() - 3600))
    later = time.strftime("%H:%M", time.localtime(time.time() - 3660))
    found = unload(
        *(file, tmp_path / "a", "--parallelism", "3"), *("--slow-between", f"{minute}-{later}")
    )
    last = found["parallelism_steps"][-1]
    assert (last["workers"], last["of"], last["cause"]) == (1, 3, "limit")
    assert f"--slow-between {minute}-{later} ({time.localtime().tm_zone})" in last["reason"]
    assert (found["options"]["slow_parallelism"], found["options"].get("max_cpu")) == (1, None)
    seated = unload(file, tmp_path / "b", "--parallelism", "4", "--max-sessions", "3")
    assert len(seated["workers"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-db-load", "4"), "--max-db-load does not apply to duckdb sources"),
        (("--max-sessions", "1"), "1 is below 2"),
        (("--max-cpu", "0"), "is not above 0 %"),
        (("--slow-between", "8-18"), "is not HH:MM-HH:MM, such as 08:00-18:00"),
        (("--slow-between", "08:00-08:00"), "begins and ends at the same time"),
        (("--slow-parallelism", "2"), "does not apply without --slow-between"),
        (("--parallelism", "many"), "is neither auto, adaptive nor a number of workers"),
    ],
)
def test_what_makes_no_sense_is_refused(
    file: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    """With the option's name, before anything is done."""
    refused = command.error_of(
        "run", file, "--table", "t", "--to", str(tmp_path / "o"), *options, status=2
    )
    assert message in refused


@pytest.mark.long("runs under limits")
def test_busy_cpus_hold_workers_up(slow: str, postgres: Any, tmp_path: Path) -> None:
    """Programs that burn CPUs leave one worker; the other workers wait in their units.

    The limit is low when it counts, so any machine exceeds it, with any share of its CPUs.
    """
    dest = tmp_path / "out"
    with sessions(postgres, slow, SLOWED) as slowed, ExitStack() as ends:
        run = ends.enter_context(started(slow, dest, 3, "--max-cpu", "100%"))
        burning = [sys.executable, "-c", "while True: pass"]
        # On half of the CPUs, which is far beyond: the other tests need some, too.
        burners = [Program(burning) for _ in range(0, len(os.sched_getaffinity(0)), 2)]
        try:
            command.run("set", str(dest), "--max-cpu", "1%")
            run.wait_until(lambda: at_work(dest) == (1, 2), "two workers held up")
            assert "(--max-cpu 1%)" in live(dest)["parallelism"]["limit"]
        finally:
            for each in burners:
                each.kill()
                each.wait()
        command.run("set", str(dest), "--max-cpu", "0")
        run.wait_until(lambda: at_work(dest) == (3, 0), "all at work again")
        slowed.kill()
        assert run.finish()[0] == 0
    assert command.manifest_of(dest)["totals"]["rows"] == PARTS * ROWS
