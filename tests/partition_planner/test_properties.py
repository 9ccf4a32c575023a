"""What holds for every table and every limit: nothing lost, nothing doubled, nothing random."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from msgspec.json import decode, encode

from partition_planner.costs import simulate
from partition_planner.model import (
    ColumnInfo,
    KeyRange,
    KeySample,
    NamedPartition,
    PartitionInfo,
    Plan,
    PlanLimits,
    RowExtent,
    RowRange,
    Selector,
    TableInfo,
    WholeTable,
)
from partition_planner.planner import check_plan, plan

estimates = st.none() | st.sampled_from([0, 1]) | st.integers(0, 1 << 42)
lone_extents = st.builds(
    lambda first, length: (RowExtent(first=first, last=first + length),),
    st.integers(-50, 50),
    st.integers(-2, 25),
)
scattered_extents = st.lists(st.integers(-60, 60), max_size=12, unique=True).map(
    lambda ends: tuple(
        RowExtent(first=first, last=last) for first, last in list(pairwise(sorted(ends)))[::2]
    )
)
extents = st.just(()) | lone_extents | scattered_extents
KEYS = [f"k{rank * 7 % 23}" for rank in range(23)]
"""Keys in the order of some database, which differs from the order of their text."""
key_samples = st.none() | st.builds(
    KeySample,
    column=st.text(max_size=3),
    keys=st.lists(st.integers(0, 22), max_size=15).map(
        lambda ranks: tuple(KEYS[rank] for rank in sorted(ranks))
    ),
)
object_ids = st.none() | st.integers(1, 1 << 40)
columns = st.lists(
    st.builds(
        ColumnInfo,
        name=st.text(max_size=5),
        native_type=st.text(max_size=5),
        nullable=st.none() | st.booleans(),
        attributes=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2).map(
            tuple
        ),
    ),
    max_size=3,
).map(tuple)


@st.composite
def named_tables(draw: st.DrawFn) -> TableInfo:
    """Tables whose partitions, if any, are selected by name."""
    positions = draw(st.lists(st.integers(0, 99), max_size=6, unique=True))
    partitions = tuple(
        PartitionInfo(
            name=f"p{position}",
            kind=draw(st.sampled_from(("partition", "subpartition"))),
            relation=draw(st.none() | st.just(("s", f"r{position}"))),
            position=position,
            rows=draw(estimates),
            bytes=draw(estimates),
            extents=draw(extents),
            keys=draw(key_samples),
            object_id=draw(object_ids),
        )
        for position in positions
    )
    return TableInfo(
        schema=draw(st.none() | st.text(max_size=3)),
        name=draw(st.text(max_size=3)),
        columns=draw(columns),
        partitions=partitions,
        rows=draw(estimates),
        bytes=draw(estimates),
        extents=draw(extents),
        keys=draw(key_samples),
        object_id=draw(object_ids),
        ranges_from=draw(st.none() | st.text(max_size=3)),
        named_partitions=True,
        row_ranges=draw(st.booleans()),
    )


@st.composite
def extent_tables(draw: st.DrawFn) -> TableInfo:
    """Tables whose partitions are adjoining extents, some empty, at positions in any order."""
    start = draw(st.integers(-50, 50))
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=6))
    positions = draw(st.permutations(range(len(lengths))))
    partitions = []
    for position, length in zip(positions, lengths, strict=True):
        partitions.append(
            PartitionInfo(
                name=f"p{position}",
                position=position,
                rows=draw(estimates),
                bytes=draw(estimates),
                extents=(RowExtent(first=start, last=start + length),),
            )
        )
        start += length
    return TableInfo(
        schema=None,
        name="t",
        columns=(),
        partitions=tuple(draw(st.permutations(partitions))),
        named_partitions=False,
        row_ranges=draw(st.booleans()),
    )


def can_be_cut(carrier: TableInfo | PartitionInfo) -> bool:
    """Whether there is anything known to cut it by."""
    return bool(carrier.extents or (carrier.keys and carrier.keys.keys))


@st.composite
def tasks(draw: st.DrawFn) -> tuple[TableInfo, PlanLimits]:
    """A table with limits that it can be planned under."""
    table = draw(named_tables() | extent_tables())
    splits = ["auto", "none"]
    if table.partitions:
        splits.append("partition")
    carriers = table.partitions or (table,)
    if table.row_ranges and any(map(can_be_cut, carriers)):
        splits.append("range")
    limits = PlanLimits(
        parallelism=draw(st.integers(1, 64)),
        split=draw(st.sampled_from(splits)),
        unit_bytes=draw(st.none() | st.integers(1, 1 << 40)),
    )
    return table, limits


Row = tuple[str | None, int, float]
"""Partition, address, and rank of the key: between 2 and 3 if it comes between two of KEYS."""


def rows_of(carrier: TableInfo | PartitionInfo, partition: str | None) -> Iterator[Row]:
    """Yield a row at every address and key of a table or partition.

    Addresses reach to between the extents and a few beyond, where later rows may have landed.
    """
    ends = [0, *(end for extent in carrier.extents for end in (extent.first, extent.last))]
    for address in range(min(ends) - 4, max(ends) + 4):
        yield partition, address, 0.0
    for half in range(-1, 2 * len(KEYS) + 1):
        yield partition, 0, half / 2


def model_rows(table: TableInfo) -> Iterator[Row]:
    """Yield a row at every address and key that the table may have by now."""
    if not table.partitions:
        yield from rows_of(table, None)
    for partition in table.partitions:
        yield from rows_of(partition, partition.name if table.named_partitions else None)


def selects(selector: Selector, table: TableInfo, row: Row) -> bool:
    """Whether a source would return the row for the selector."""
    partition, address, rank = row
    if isinstance(selector, WholeTable):
        return True
    if isinstance(selector, NamedPartition):
        return selector.partition == partition
    if table.named_partitions and selector.partition != partition:
        return False
    if isinstance(selector, KeyRange):
        return (selector.first is None or KEYS.index(selector.first) <= rank) and (
            selector.last is None or rank < KEYS.index(selector.last)
        )
    return (selector.first is None or selector.first <= address) and (
        selector.last is None or address < selector.last
    )


@given(tasks())
def test_every_row_is_in_exactly_one_unit(task: tuple[TableInfo, PlanLimits]) -> None:
    """A row at any address or key, inside or outside stale extents, is selected by one unit."""
    table, limits = task
    selectors = plan(table, limits).selectors
    for row in model_rows(table):
        assert sum(selects(selector, table, row) for selector in selectors) == 1, row


@st.composite
def choices(draw: st.DrawFn) -> tuple[TableInfo, PlanLimits, tuple[str, ...]]:
    """A table of partitions with limits, and some of its partitions."""
    table, limits = draw(tasks().filter(lambda task: bool(task[0].partitions)))
    names = [partition.name for partition in table.partitions]
    return table, limits, tuple(draw(st.sets(st.sampled_from(names), min_size=1)))


@given(choices())
def test_of_chosen_partitions_every_row_and_no_other(
    task: tuple[TableInfo, PlanLimits, tuple[str, ...]],
) -> None:
    """However some partitions are split, their rows are in one unit each, others' rows in none."""
    table, limits, chosen = task
    made = plan(table, limits, chosen)
    owners = plan(table, PlanLimits(parallelism=1, split="partition")).selectors
    for row in model_rows(table):
        (owner,) = (each.partition for each in owners if selects(each, table, row))
        found = sum(selects(selector, table, row) for selector in made.selectors)
        assert found == (owner in chosen), row
    assert set(made.partitions or ()) == set(chosen)
    assert {name for unit in made.units for name in unit.partitions} == set(chosen)
    assert decode(encode(made), type=Plan) == made
    check_plan(made)


@given(tasks())
def test_same_facts_give_the_same_plan(task: tuple[TableInfo, PlanLimits]) -> None:
    """Equal facts, made apart, give equal plans; a plan equals its copy in JSON or a pickle."""
    table, limits = task
    made = plan(table, limits)
    again = plan(pickle.loads(pickle.dumps(table)), convert(to_builtins(limits), PlanLimits))
    assert again == made
    assert again.digest == made.digest
    assert decode(encode(made), type=Plan) == made
    assert pickle.loads(pickle.dumps(made)) == made
    check_plan(made)


@given(tasks())
def test_units_are_in_order_and_say_what_they_read(task: tuple[TableInfo, PlanLimits]) -> None:
    """Units sorted by id follow the partitions' positions and, within one, addresses or keys.

    Each has the kind, relation and segment of its partition, and a cut leaves no piece empty.
    """
    table, limits = task
    units = sorted(plan(table, limits).units, key=lambda unit: unit.id)
    assert [int(unit.id) for unit in units] == list(range(1, len(units) + 1))
    assert len({len(unit.id) for unit in units}) == 1
    assert len(units[0].id) >= 4
    infos = {partition.name: partition for partition in table.partitions}
    places = []
    for unit in units:
        info, selector = infos.get(unit.partition or ""), unit.selectors[0]
        first: float | None = None
        if isinstance(selector, (NamedPartition, RowRange, KeyRange)):
            said = (selector.partition, selector.kind, selector.relation)
            known = (info.name, info.kind, info.relation) if info else (None, "partition", None)
            assert said == known
        if isinstance(selector, RowRange):
            first = selector.first
            assert selector.object_id == (info or table).object_id
            # A partition that is an empty extent stays the empty range that it is.
            if table.named_partitions and first is not None:
                assert selector.last is None or first < selector.last
        if isinstance(selector, KeyRange):
            sample = (info or table).keys
            assert sample is not None
            assert selector.column == sample.column
            if selector.first is not None:
                first = KEYS.index(selector.first)
                assert selector.first != selector.last
        places.append((info.position if info else 0, float("-inf") if first is None else first))
    assert places == sorted(places)


@given(tasks(), st.integers(1, 64))
def test_a_simulation_stays_within_its_bounds(
    task: tuple[TableInfo, PlanLimits], parallelism: int
) -> None:
    """No schedule beats the lower bound, LPT stays below twice of it; the plan says the same."""
    made = plan(*task)
    run = simulate(made, parallelism)
    assert len(run.finish_times) == parallelism
    assert run.lower_bound <= run.makespan <= 2 * run.lower_bound
    assert max(run.finish_times) == run.makespan
    assert 0 <= run.idle_share < 1
    planned = simulate(made, made.limits.parallelism)
    assert (planned.makespan, planned.lower_bound) == (made.makespan, made.lower_bound)


MIB = 1 << 20


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 2000) | st.integers(0, 20), min_size=1, max_size=20), st.integers(1, 32)
)
def test_auto_cuts_only_large_partitions(mebibytes: list[int], parallelism: int) -> None:
    """Auto leaves partitions whole up to 4/3 of the target and ends within 4/3 of the bound."""
    table = TableInfo(
        schema=None,
        name="t",
        columns=(),
        partitions=tuple(
            PartitionInfo(
                name=f"p{at}",
                position=at,
                bytes=size * MIB,
                extents=(RowExtent(first=0, last=size * 128),),
            )
            for at, size in enumerate(mebibytes)
        ),
        named_partitions=True,
        row_ranges=True,
    )
    made = plan(table, PlanLimits(parallelism=parallelism))
    total = sum(mebibytes) * MIB
    target = max(8 * MIB, -(-total // (4 * parallelism)))
    for partition in table.partitions:
        pieces = [unit for unit in made.units if unit.partition == partition.name]
        if (partition.bytes or 0) * 3 <= target * 4:
            assert len(pieces) == 1
    assert len(made.units) <= len(mebibytes) + 4 * parallelism
    if total >= 32 * MIB * parallelism:
        # One part in a thousand: pieces differ by an address.
        assert made.makespan <= total / parallelism * 4 / 3 * 1.001
