"""From a job to plan, columns and seats, on real DuckDB files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from numa.model import Node, Topology
from partition_planner.model import Plan, RowRange
from partition_planner.planner import plan_of_units
from unloader.errors import PlanFailed, UsageError
from unloader.model import (
    OutputOptions,
    Request,
    SeatOptions,
    SecretReference,
    Selection,
    SourceSpec,
)
from unloader.request.names import parse_table
from unloader.resolve import resolution
from unloader.resolve.resolved import ResolvedTable
from unloader.selection.asked import TablesRequest
from unloader.sources.registry import password_of, source_of
from writers.model import TextFormat

ROWS = 40_000
MAP = (
    "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name, "
    "'p' || range AS partition_name, range AS position, range * 10000 AS first_rowid, "
    "range * 10000 + 9999 AS last_rowid FROM range(4)"
)


@contextmanager
def prepared(job: Request, planned: Plan | None = None) -> Iterator[ResolvedTable]:
    """Open the source, and give the only table of a job."""
    with resolution.prepared(TablesRequest.one(job), planned=planned) as ready:
        yield ready.tables[0]


def counted(table: ResolvedTable) -> int:
    """Return the number of rows in the source that the table is to have."""
    source = table.extract.source
    with closing(source_of(source.kind).open_catalog(source)) as catalog:
        catalog.snapshot("snapshot")
        return catalog.count(table.extract)


def write(path: Path, *statements: str) -> None:
    """Run statements on a DuckDB file."""
    with closing(duckdb.connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of four mapped partitions, and one without any."""
    file = tmp_path / "t.db"
    table = f"SELECT range AS id, range * 2 AS \"Twice\", 'x' AS word FROM range({ROWS})"
    write(file, f"CREATE TABLE t AS {table}", f"CREATE TABLE plain AS {table}", MAP)
    return file


def job_of(path: Path, table: str | None = "t", **changes: Any) -> Request:
    """Return a job on a DuckDB file; `changes` are fields of its selection."""
    return Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{path}"),
        selection=Selection(table=parse_table(table) if table else None, **changes),
        output=OutputOptions(destination="/nowhere", format=TextFormat()),
        parallelism=2,
    )


def names_of(job: Request) -> tuple[list[str], list[str]]:
    """Return the columns and the partitions, in unit order, of what a job comes to."""
    with prepared(job) as ready:
        columns = [column.name for column in ready.extract.projection.columns]
        units = sorted(ready.plan.units, key=lambda unit: unit.id)
        return columns, [unit.partition or "" for unit in units]


def test_everything_by_default(path: Path) -> None:
    """All columns in table order, all partitions, and no more seats than units or workers."""
    assert names_of(job_of(path)) == (["id", "Twice", "word"], ["p0", "p1", "p2", "p3"])
    with prepared(job_of(path)) as ready:
        assert len(ready.seating.seats) == 2
        assert ready.extract.table.partitions == ()
        assert len(ready.plan.table.partitions) == 4
        assert ready.extract.snapshot is not None
    many = replace(job_of(path), parallelism=64, split="partition")
    with prepared(many) as ready:
        assert len(ready.seating.seats) == 4


@pytest.mark.parametrize(
    ("quota", "nodes", "workers"), [(None, (), 6), (None, (1,), 4), (3.9, (1,), 3), (0.2, (), 1)]
)
def test_automatic_parallelism_keeps_to_quota_and_nodes(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quota: float | None,
    nodes: tuple[int, ...],
    workers: int,
) -> None:
    """Plan and seats are for the CPUs of the nodes asked for, and at most for the quota.

    The machine's description is handed in: neither its nodes nor its quota are ours to set.
    """
    shape = Topology(
        nodes=(
            Node(id=0, cpus=(0, 1), memory_bytes=1 << 30),
            Node(id=1, cpus=(2, 3, 4, 5), memory_bytes=1 << 30),
        ),
        cpu_quota=quota,
        note=None,
    )
    monkeypatch.setattr("unloader.placement.seating.detect", lambda: shape)
    seats = SeatOptions(nodes=nodes)
    job = job_of(path)
    job = replace(job, parallelism=None, split="range", unit_bytes=10_000, seats=seats)
    with prepared(job) as ready:
        assert ready.plan.limits.parallelism == workers
        assert len(ready.seating.seats) == workers
        assert {seat.node for seat in ready.seating.seats} <= set(nodes or (0, 1))


def test_columns_come_in_the_order_asked_for(path: Path) -> None:
    """--columns decides the order, --exclude keeps the table's order; case is ignored."""
    assert names_of(job_of(path, columns=("WORD", "id")))[0] == ["word", "id"]
    assert names_of(job_of(path, exclude=("twice",)))[0] == ["id", "word"]


def test_table_and_query_exclude_each_other(path: Path) -> None:
    """Exactly one of the two must be given."""
    for job in (job_of(path, None), job_of(path, query="SELECT 1")):
        with pytest.raises(UsageError, match="--table or --query"), prepared(job):
            pass


def test_a_query_is_one_unit_with_its_own_columns(path: Path) -> None:
    """Columns can be chosen from a query as from a table."""
    job = job_of(path, None, query="SELECT id + 1 AS next, word FROM t;", columns=("next",))
    assert names_of(job) == (["next"], [""])


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [(("p1",), ["p1"]), (("P[0-2]", "p3"), ["p0", "p1", "p2", "p3"]), (("*2", "p0"), ["p0", "p2"])],
)
def test_partitions_by_glob(path: Path, patterns: tuple[str, ...], kept: list[str]) -> None:
    """Patterns choose partitions that are ranges of the table; case is ignored."""
    job = job_of(path, partitions=patterns)
    assert names_of(replace(job, parallelism=2, split="partition"))[1] == kept


def test_chosen_ranges_hold_their_own_rows_alone(path: Path) -> None:
    """A partition in the middle is counted by its own bounds, not to the end of the table."""
    job = replace(job_of(path, partitions=("p1", "p2")), parallelism=2, split="partition")
    with prepared(job) as ready:
        assert counted(ready) == 20_000


def test_one_unit_of_chosen_partitions(path: Path) -> None:
    """In one unit only the chosen partitions are read, one after the other."""
    job = job_of(path, partitions=("p1", "p3"))
    with prepared(replace(job, parallelism=2, split="none")) as ready:
        (unit,) = ready.plan.units
        assert (unit.partition, unit.partitions) == (None, ("p1", "p3"))
        assert counted(ready) == 20_000


@pytest.fixture
def partitioned(postgres: Any) -> str:
    """A PostgreSQL table of three partitions that the server selects by name."""
    url: str = postgres.database("preparation")
    postgres.run(
        "CREATE TABLE t (k integer) PARTITION BY LIST (k);"
        "CREATE TABLE t_one PARTITION OF t FOR VALUES IN (1);"
        "CREATE TABLE t_two PARTITION OF t FOR VALUES IN (2);"
        'CREATE TABLE "T_Three" PARTITION OF t FOR VALUES IN (3);'
        "INSERT INTO t SELECT 1 + g % 3 FROM generate_series(1, 90) g; ANALYZE t",
        url=url,
    )
    return url


def on(job: Request, url: str) -> Request:
    """Return the job on a PostgreSQL database."""
    return replace(job, source=SourceSpec(kind="postgresql", location=url))


def test_a_plan_made_earlier_is_taken_as_it_is(path: Path) -> None:
    """The run uses its units and limits, although rows have been added since."""
    job = replace(job_of(path, "plain"), parallelism=3, split="range")
    with prepared(job) as ready:
        plan = ready.plan
    write(path, "INSERT INTO plain VALUES (-1, -1, 'new')")
    with prepared(replace(job, parallelism=9), planned=plan) as ready:
        assert ready.plan == plan
        assert counted(ready) == ROWS + 1


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP COLUMN word",
        "ALTER TABLE t ADD COLUMN more INTEGER",
        "ALTER TABLE t ALTER word TYPE BLOB",
        "UPDATE unloader_partitions SET partition_name = 'renamed' WHERE position = 2",
    ],
)
def test_a_plan_that_no_longer_fits_is_refused(path: Path, change: str) -> None:
    """Columns or partitions that have changed since make the plan a plan error."""
    with prepared(job_of(path)) as ready:
        plan = ready.plan
    write(path, change)
    with (
        pytest.raises(PlanFailed, match=r"no longer fits.*make a new plan"),
        prepared(job_of(path), planned=plan),
    ):
        pass
    with (
        pytest.raises(PlanFailed, match=r"it is for main\.t, not for main\.plain"),
        prepared(job_of(path, "plain"), planned=plan),
    ):
        pass


def test_a_plan_whose_segments_are_gone_is_refused(path: Path) -> None:
    """Addresses within a segment that the table no longer has would mean other rows.

    No database here has such segments, so a plan is given ranges of one.
    """
    job = replace(job_of(path, "plain"), parallelism=3, split="range", unit_bytes=1 << 20)
    with prepared(job) as ready:
        plan = ready.plan
    assert all(isinstance(selector, RowRange) for selector in plan.selectors)
    units = tuple(
        replace(unit, selectors=(replace(selector, object_id=73_196),))
        for unit, selector in zip(plan.units, plan.selectors, strict=True)
        if isinstance(selector, RowRange)
    )
    table = replace(plan.table, object_id=73_196)
    stale = plan_of_units(table=table, partitions=None, units=units, limits=plan.limits)
    with pytest.raises(PlanFailed, match=r"other segments"), prepared(job, planned=stale):
        pass


def test_workers_are_not_sent_what_only_planning_needs(path: Path) -> None:
    """What travels with each task is as small for a table of many extents as for one of none."""
    for table in ("t", "plain"):
        with prepared(job_of(path, table)) as ready:
            assert ready.plan.table.partitions or ready.plan.table.extents
            sent = ready.extract.table
            assert (sent.partitions, sent.extents, sent.keys) == ((), (), None)


def test_a_partition_added_since_is_not_passed_over(postgres: Any, partitioned: str) -> None:
    """Rows of a partition that the plan does not know would be missing without a word."""
    job = on(job_of(Path()), partitioned)
    with prepared(job) as ready:
        plan = ready.plan
    chosen = replace(job, selection=replace(job.selection, partitions=("t_one",)))
    with prepared(chosen) as ready:
        some = ready.plan
    postgres.run(
        "CREATE TABLE t_four PARTITION OF t FOR VALUES IN (4); INSERT INTO t VALUES (4)",
        url=partitioned,
    )
    with pytest.raises(PlanFailed, match="partitions were added"), prepared(job, planned=plan):
        pass
    with prepared(chosen, planned=some) as ready:
        assert counted(ready) == 30


def test_a_partition_gone_since_is_told(postgres: Any, partitioned: str) -> None:
    """A plan with a partition that is no more is refused before a worker looks for it."""
    with prepared(on(job_of(Path()), partitioned)) as ready:
        plan = ready.plan
    postgres.run("ALTER TABLE t DETACH PARTITION t_two", url=partitioned)
    with (
        pytest.raises(PlanFailed, match="partitions were dropped"),
        prepared(on(job_of(Path()), partitioned), planned=plan),
    ):
        pass


def test_the_file_is_let_go_at_the_end(path: Path) -> None:
    """After the context, in error or not, the file can be written again."""

    def fail() -> None:
        with prepared(job_of(path)):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    write(path, "DROP TABLE t")


def test_a_password_ends_with_its_line(tmp_path: Path) -> None:
    """Only the first line of a password file counts; an editor may add more."""
    file = tmp_path / "password"
    file.write_bytes(b"tiger\r\n# of SCOTT\n")
    secret = SecretReference(kind="file", name=str(file))
    assert password_of(SourceSpec(kind="oracle", location="", secret=secret)) == "tiger"


def test_the_ids_of_runs_sort_by_time() -> None:
    """Also within a second: --keep and --resume-or-start go by it."""
    ids = [resolution.new_run_id() for _ in range(2000)]
    assert len({*ids}) == len(ids)
    times = [each[:-6] for each in ids]  # The last six digits are random.
    assert times == sorted(times)
