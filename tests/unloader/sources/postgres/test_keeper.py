"""A kept snapshot outlives every kill of the run: that state is read again, or it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from processes.command import wait_for
from processes.program import Program

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, SessionOptions, Snapshot, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.postgres import keeping
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from writers.model import TextFormat

ROOT = Path(__file__).parents[4]
RUN_ID = "20260102T030405Z-abcdef"
ROWS = 1000
LONG = 3600.0

RUN = """
import json, sys, time
import msgspec
from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.postgres import keeping
sys.path.insert(0, sys.argv[1])
from test_keeper import extract_of, hold
from unloader.sources.postgres.source import PostgresSource
keeping.TICK_SECONDS = 0.2
spec = msgspec.json.decode(sys.argv[2], type=SourceSpec)
catalog = PostgresSource().open_catalog(spec)
snapshot = catalog.snapshot("snapshot")
hold(catalog, extract_of(catalog, spec, snapshot))
catalog.keep_until_gone(tuple(sys.argv[3:]))
print(snapshot.value, flush=True)
time.sleep(600)
"""
"""What a run does up to its first unit."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for records, in which no keeper is left at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(keeping, "TICK_SECONDS", 0.2)
    yield keeping.folder()
    for keeper in keeping.living():
        keeping.end(keeper)


@pytest.fixture
def url(postgres: Any) -> str:
    """A database with a table."""
    found: str = postgres.database("keeping")
    postgres.run(
        f"CREATE TABLE t AS SELECT g AS k, 'row ' || g AS v FROM generate_series(1, {ROWS}) g",
        url=found,
    )
    return found


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that names the run in its destination."""
    found = tmp_path / "lock"
    found.write_text(f'{{"run_id": "{RUN_ID}"}}')
    return found


def spec_of(url: str, seconds: float = LONG) -> SourceSpec:
    """Return a source whose snapshot is to be kept."""
    session = SessionOptions(keep_snapshot_seconds=seconds, run_id=RUN_ID, lock_timeout_seconds=0.3)
    return SourceSpec(kind="postgresql", location=url, session=session)


def extract_of(catalog: PostgresCatalog, spec: SourceSpec, snapshot: Snapshot) -> Extract:
    """Return the extract of the whole table."""
    table = catalog.describe(parse_table("t"))
    return Extract(
        source=spec,
        snapshot=snapshot,
        table=table,
        query=None,
        where=None,
        projection=project(catalog, table, None, (OutputNeeds(text=TextFormat()),)),
    )


def hold(catalog: PostgresCatalog, extract: Extract) -> None:
    """Lock what a run reads."""
    catalog.hold(extract, plan(extract.table, PlanLimits(parallelism=2)).selectors)


@dataclass(frozen=True)
class Killed:
    snapshot: Snapshot
    keeper: keeping.Keeper


@pytest.fixture
def killed(url: str, mark: Path) -> Killed:
    """A run that was killed while it held its snapshot."""
    return kill(spec_of(url), mark)


def kill(spec: SourceSpec, mark: Path) -> Killed:
    """Start a run, and kill its whole process group once it has its snapshot."""
    given = msgspec.json.encode(spec).decode()
    with Program(
        [sys.executable, "-c", RUN, str(Path(__file__).parent), given, str(mark)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/support'}"},
    ) as run:
        assert run.stdout is not None
        value = run.stdout.readline().strip()
        assert value, "no snapshot"
        os.killpg(run.pid, signal.SIGKILL)
        # No one else has the run's output open: else anyone who reads it would wait for the keeper.
        assert run.stdout.read() == ""
    (keeper,) = keeping.living()
    assert keeper.record.snapshot == value
    taken_at = keeper.record.taken_at
    return Killed(Snapshot(kind="exported-snapshot", value=value, taken_at=taken_at), keeper)


def again(url: str, snapshot: Snapshot) -> PostgresCatalog:
    found = PostgresSource().at_snapshot(spec_of(url), snapshot.kind, snapshot.value)
    assert found is not None
    return PostgresSource().open_catalog(found)


def backend_lives(postgres: Any, keeper: keeping.Keeper) -> bool:
    """Return whether the keeper's own session is on the server."""
    number = keeper.record.server_process
    found: str = postgres.run(f"SELECT application_name FROM pg_stat_activity WHERE pid = {number}")
    return found == f"unloader-keeper:{RUN_ID}"


def test_the_state_of_a_killed_run_is_read_again(postgres: Any, url: str, killed: Killed) -> None:
    """After a kill of the whole process group: rows changed, deleted and added since are not seen."""
    postgres.run(
        "DELETE FROM t WHERE k % 2 = 0; UPDATE t SET v = 'new'; INSERT INTO t VALUES (0, 'new');"
        "VACUUM t",
        url=url,
    )
    assert backend_lives(postgres, killed.keeper)
    with closing(again(url, killed.snapshot)) as catalog:
        entered = catalog.snapshot("snapshot")
        assert (entered.kind, entered.value) == (killed.snapshot.kind, killed.snapshot.value)
        assert keeping.living()[0].in_use
        extract = extract_of(catalog, spec_of(url), entered)
        hold(catalog, extract)
        assert catalog.count(extract) == ROWS
        (unit,) = plan(extract.table, PlanLimits(parallelism=1, split="none")).units
        with closing(PostgresSource().open_reader(spec_of(url), killed.snapshot)) as reader:
            text = reader.encoded(extract, *unit.pieces, text=TextFormat())
            lines = b"".join(bytes(chunk) for chunks in text for chunk in chunks).splitlines()
        assert sorted(lines) == sorted(f"{k},row {k}".encode() for k in range(1, ROWS + 1))
        catalog.check_snapshot()
    assert [each.in_use for each in keeping.living()] == [False]


@pytest.mark.long(OTHER_ROUTES)
def test_truncate_waits_for_the_keeper(postgres: Any, url: str, killed: Killed) -> None:
    """What a snapshot does not cover is locked beyond the death of the run, until the keeper ends."""
    with pytest.raises(AssertionError, match="lock timeout"):
        postgres.run("SET lock_timeout = '100ms'; TRUNCATE t", url=url)
    keeping.end(killed.keeper)
    postgres.run("SET lock_timeout = '180s'; TRUNCATE t", url=url)


def test_the_snapshot_of_an_ended_keeper_is_gone(
    postgres: Any, url: str, killed: Killed, state: Path
) -> None:
    """An ended keeper leaves no process, session or file, and the snapshot is reported as gone."""
    keeping.end(killed.keeper)
    assert list(state.iterdir()) == []
    with suppress(psutil.NoSuchProcess):
        # Where no one buries orphans.
        assert psutil.Process(killed.keeper.record.process).status() == psutil.STATUS_ZOMBIE
    wait_for(lambda: not backend_lives(postgres, killed.keeper), "the session ends")
    with closing(again(url, killed.snapshot)) as catalog, pytest.raises(SnapshotGone):
        catalog.snapshot("snapshot")


@pytest.mark.parametrize("how", ["another run's", *also(OTHER_ROUTES, "removed")])
def test_a_keeper_ends_with_its_run(url: str, killed: Killed, mark: Path, how: str) -> None:
    """Where the destination is given up, or taken by another run, nothing is kept any more."""
    assert keeping.is_alive(killed.keeper.path)
    if how == "removed":
        mark.unlink()
    else:
        mark.write_text('{"run_id": "another"}')
    wait_for(lambda: not keeping.is_alive(killed.keeper.path), "the keeper ends")
    assert keeping.living() == ()


def test_a_keeper_ends_in_time_but_not_while_it_is_used(url: str, mark: Path) -> None:
    """A run that continues is not cut off; when no one uses the snapshot, its time is up."""
    with closing(PostgresSource().open_catalog(spec_of(url, seconds=0.3))) as catalog:
        catalog.snapshot("snapshot")
        catalog.keep_until_gone((str(mark),))
        (keeper,) = keeping.living()
        time.sleep(1.0)
        catalog.check_snapshot()
        assert keeping.is_alive(keeper.path)
    wait_for(lambda: not keeping.is_alive(keeper.path), "the keeper ends")


def test_a_lost_session_is_noticed(postgres: Any, url: str, killed: Killed) -> None:
    """When the server ends the keeper's session, the keeper ends as well."""
    postgres.run(f"SELECT pg_terminate_backend({killed.keeper.record.server_process})")
    wait_for(lambda: not keeping.is_alive(killed.keeper.path), "the keeper ends")
    wait_for(lambda: not backend_lives(postgres, killed.keeper), "the session ends")
    with closing(again(url, killed.snapshot)) as catalog, pytest.raises(SnapshotGone):
        catalog.snapshot("snapshot")


def test_a_run_that_ends_before_it_has_a_destination_keeps_nothing(url: str) -> None:
    """There is nothing to be continued: the keeper ends immediately. So it is for a plan."""
    with closing(PostgresSource().open_catalog(spec_of(url))) as catalog:
        catalog.snapshot("snapshot")
        assert catalog.kept_until() == keeping.living()[0].record.kept_until
        (keeper,) = keeping.living()
        assert keeper.in_use
    wait_for(lambda: not keeping.is_alive(keeper.path), "the keeper ends")


def test_a_running_run_notices_the_end_of_its_keeper(postgres: Any, url: str, mark: Path) -> None:
    """No worker can enter the snapshot any more, so no attempt is repeated."""
    with closing(PostgresSource().open_catalog(spec_of(url))) as catalog:
        snapshot = catalog.snapshot("snapshot")
        catalog.keep_until_gone((str(mark),))
        catalog.check_snapshot()
        (keeper,) = keeping.living()
        keeping.end(keeper)
        with pytest.raises(SnapshotGone, match="keeper"):
            catalog.check_snapshot()
        wait_for(lambda: not backend_lives(postgres, keeper), "the session ends")
        with pytest.raises(SnapshotGone):
            PostgresSource().open_reader(spec_of(url), snapshot)


def test_what_the_keeper_is_refused_the_run_is_told(postgres: Any, url: str) -> None:
    """A lock that the keeper cannot get ends the run as it would without a keeper."""
    spec = spec_of(url)
    with closing(keeping.start_keeper(spec, lambda: False)) as kept:
        snapshot = Snapshot(kind="exported-snapshot", value=kept.value, taken_at="")
        with closing(again(url, snapshot)) as catalog:
            extract = extract_of(catalog, spec, catalog.snapshot("snapshot"))
        postgres.run("TRUNCATE t", url=url)
        with pytest.raises(SnapshotGone, match="t was truncated"):
            kept.ask("hold", extract, plan(extract.table, PlanLimits(parallelism=2)).selectors)
    nowhere = replace(spec, location=url.replace("/keeping?", "/no_such_database?"))
    with pytest.raises(SourceError, match="no_such_database"):
        keeping.start_keeper(nowhere, lambda: False)
