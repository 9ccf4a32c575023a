"""A disk that fills up while a run with --min-free continues: a pause, and then all of it."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import leg, runs
from oracle_server import Fault, OracleServer
from processes import command
from processes.breaking import FaultyCalls

MIB = 2**20
DISKS = "faults of files"
"""The kind of the long tests."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of some 14 MB as text."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, hash(i)::VARCHAR || hash(i + 1)::VARCHAR AS s "
            "FROM range(300000) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> FaultyCalls:
    """The library that makes calls fail."""
    return FaultyCalls.build(tmp_path_factory.mktemp("faults"))


def job(database: str, to: Path, *options: str) -> tuple[str, ...]:
    """Return the command line of a run that stalls soon."""
    return (
        "run", database, "--table", "t", "--to", str(to), "--progress", "log", "--numa", "off",
        "--min-free", "100MiB", "--stall-timeout", "3", *options,
    )  # fmt: skip


def test_a_full_disk_pauses_the_run_until_there_is_room(
    database: str, faults: FaultyCalls, tmp_path: Path
) -> None:
    """No unit begins meanwhile, longer than a stall may last; then the run is whole."""
    told = tmp_path / "free"
    told.write_text(str(99 * MIB))
    to = tmp_path / "out"
    running = command.Forked(
        *job(database, to), env=faults.environment("statvfs", str(told), files=str(to))
    )
    log = running.log_until("waits for disk space")
    assert "99.0 MiB free, and --min-free is 100.0 MiB" in log
    time.sleep(1)
    assert not list((to / "_run" / "staged").iterdir())
    told.write_text(str(500 * MIB))
    status, _, err = running.finish()
    assert status == 0, err
    assert "the run continues" in err
    assert command.manifest_of(to)["totals"]["rows"] == 300_000
    assert {unit["attempts"] for unit in command.manifest_of(to)["units"]} == {1}


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("options", ["--format parquet", *also(DISKS, "--direct-io")])
def test_writes_that_find_no_room_wait_for_it(
    database: str, faults: FaultyCalls, tmp_path: Path, options: str
) -> None:
    """ENOSPC in the middle of a file, longer than a stall may last, costs no attempt and no row."""
    full = tmp_path / "full"
    full.touch()
    to = tmp_path / "out"
    running = command.Forked(
        *job(database, to, "--split", "none", "--overlap-buffer", "256KiB", *options.split()),
        env=faults.environment("write", f"while:{full}", after=600_000),
    )
    log = running.log_until("waits for disk space")
    assert f"a worker waits for space on the disk of {to}" in log
    time.sleep(4)
    full.unlink()
    status, _, err = running.finish()
    assert status == 0, err
    assert "attempt" not in err
    (unit,) = command.manifest_of(to)["units"]
    assert unit["attempts"] == 1
    command.run("verify", str(to))


def test_a_pause_without_end_ends_the_run(
    database: str, faults: FaultyCalls, tmp_path: Path
) -> None:
    """After --pause-timeout the status is 6, and the hint names the next step."""
    told = tmp_path / "free"
    told.write_text("0")
    to = tmp_path / "out"
    error = command.error_of(
        *job(database, to, "--pause-timeout", "0.3"), status=6,
        env=faults.environment("statvfs", str(told), files=str(to)),
    )  # fmt: skip
    assert "0.0 MiB free" in error
    assert "free disk space there" in error.partition("Next: ")[2]


@pytest.mark.long(DISKS)
def test_a_sync_that_finds_no_room_is_a_retry(
    database: str, faults: FaultyCalls, tmp_path: Path
) -> None:
    """An error of a sync cannot be waited for: the unit is read again."""
    to = tmp_path / "out"
    error = command.error_of(
        *job(database, to, "--split", "none", "--retries", "1", "--retry-delay", "0.1"), status=6,
        env=faults.environment("fsync", errno.ENOSPC),
    )  # fmt: skip
    assert os.strerror(errno.ENOSPC) in error
    assert "-a2." in error, "the file of the second attempt"


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_that_ended_without_room_is_resumed(faults: FaultyCalls, tmp_path: Path) -> None:
    """Its finished units are kept and not read again; with room the rest follows."""
    made = leg.database()
    runs.padded_table(made)
    told, to = tmp_path / "free", tmp_path / "out"
    told.write_text(str(500 * MIB))
    with OracleServer(made) as server:
        reading = '"PAD".*PARTITION'
        slow = server.faults.add(Fault(kind="stall", statement=reading, skip=1))
        running = command.Forked(
            *runs.arguments(
                server, "PADDED", to, "--split", "partition", "--parallelism", "1", "--numa", "off",
                "--min-free", "100MiB", "--pause-timeout", "1",
            ),
            env={**runs.ENVIRONMENT, **faults.environment("statvfs", str(told), files=str(to))},
        )  # fmt: skip
        running.wait_until(slow.happened.is_set, "the second unit")
        told.write_text(str(MIB))
        slow.over.set()
        broken = runs.ended(running, to)
        assert broken.status == 6, broken.log
        assert "1.0 MiB free" in broken.error
        assert "resume" in broken.error.partition("Next: ")[2]
        assert command.final_names(to) == []
        kept = sum(name.startswith("staged/") for name in broken.staged)
        assert kept >= 1
        server.sessions.clear()
        done = command.ended("resume", str(to), env={**os.environ, **runs.ENVIRONMENT})
        assert done.returncode == 0, done.stderr
        read = [text for session in server.sessions for text in session.statements]
        assert sum(bool(re.search(reading, text)) for text in read) == len(runs.PARTITIONS) - kept
    assert command.manifest_of(to)["totals"]["rows"] == len(runs.PARTITIONS) * runs.PARTITION_ROWS
