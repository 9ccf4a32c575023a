"""The snapshot of a PostgreSQL run, entered by another parent: that one state, or it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace
from processes.command import wait_for

from unloader.errors import SnapshotGone
from unloader.failures import failure_of
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.projection import OutputNeeds, project
from writers.model import TextFormat


@pytest.fixture
def url(postgres: Any) -> str:
    """A database with a table of five rows."""
    found: str = postgres.database("exported")
    postgres.run("CREATE TABLE t AS SELECT g AS k FROM generate_series(1, 5) g", url=found)
    return found


@pytest.fixture
def first(url: str) -> Iterator[PostgresCatalog]:
    """The parent that took the snapshot."""
    opened = PostgresSource().open_catalog(SourceSpec(kind="postgresql", location=url))
    yield opened
    opened.close()


def at(url: str, snapshot: Snapshot) -> SourceSpec:
    """Return the source as a later parent opens it."""
    spec = SourceSpec(kind="postgresql", location=url)
    found = PostgresSource().at_snapshot(spec, snapshot.kind, snapshot.value)
    assert found is not None
    return found


def counted(catalog: PostgresCatalog, snapshot: Snapshot) -> int:
    """Return how many rows the table has at the snapshot of a catalog."""
    table = catalog.describe(parse_table("t"))
    extract = Extract(
        source=SourceSpec(kind="postgresql", location=""),
        snapshot=snapshot,
        table=table,
        query=None,
        where=None,
        projection=project(catalog, table, None, (OutputNeeds(text=TextFormat()),)),
    )
    return catalog.count(extract)


def test_another_parent_reads_the_same_state(
    postgres: Any, url: str, first: PostgresCatalog
) -> None:
    """Rows that came and went since do not count, and the snapshot has the same kind and value."""
    taken = first.snapshot("snapshot")
    postgres.run("DELETE FROM t WHERE k < 4; INSERT INTO t VALUES (9)", url=url)
    with closing(PostgresSource().open_catalog(at(url, taken))) as second:
        entered = second.snapshot("snapshot")
        assert (entered.kind, entered.value) == (taken.kind, taken.value)
        assert counted(second, entered) == 5
        second.check_snapshot()
    with closing(PostgresSource().open_reader(SourceSpec(kind="postgresql", location=url), taken)):
        pass


def test_a_snapshot_that_nobody_holds_is_gone(
    postgres: Any, url: str, first: PostgresCatalog
) -> None:
    """Parents and workers report it with the next step, and no attempt is repeated."""
    taken = first.snapshot("snapshot")
    spec = at(url, taken)
    first.close()
    # The server's process of that session ends after us, and the snapshot with it.
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'exported'"
    wait_for(lambda: postgres.run(sessions) == "0", "the end of the session")
    with closing(PostgresSource().open_catalog(spec)) as second:
        with pytest.raises(SnapshotGone, match="cannot be imported") as caught:
            second.snapshot("snapshot")
        assert caught.value.hint
    with pytest.raises(SnapshotGone, match="cannot be imported") as caught:
        PostgresSource().open_reader(SourceSpec(kind="postgresql", location=url), taken)
    failure = failure_of(caught.value)
    assert (failure.error, failure.retryable) == ("SnapshotGone", False)


def test_a_number_that_was_given_out_again_is_another_snapshot(
    postgres: Any, url: str, first: PostgresCatalog
) -> None:
    """A restarted server numbers snapshots again: one that sees something else is not entered."""
    taken = first.snapshot("snapshot")
    number, _, state = taken.value.partition(" state=")
    other = replace(taken, value=f"{number} state={state[::-1]}")
    assert other != taken
    with (
        closing(PostgresSource().open_catalog(at(url, other))) as second,
        pytest.raises(SnapshotGone, match="now a different snapshot"),
    ):
        second.snapshot("snapshot")
    with pytest.raises(SnapshotGone, match="now a different snapshot"):
        PostgresSource().open_reader(SourceSpec(kind="postgresql", location=url), other)


def test_what_is_no_exported_snapshot_leads_nowhere(url: str) -> None:
    """A value of another kind, or one without its visible transactions, is not tried."""
    spec = SourceSpec(kind="postgresql", location=url)
    assert PostgresSource().at_snapshot(spec, "scn", "4711") is None
    assert PostgresSource().at_snapshot(spec, "exported-snapshot", "00000003-0000001B-1") is None
