"""The planner's decisions on tables whose right plan is known."""

from __future__ import annotations

import pytest
from msgspec import structs

from partition_planner.model import (
    KeyRange,
    KeySample,
    NamedPartition,
    PartitionInfo,
    Plan,
    PlanError,
    PlanLimits,
    RowExtent,
    RowRange,
    TableInfo,
    WholeTable,
)
from partition_planner.planner import plan

MIB = 1 << 20


def table_of(
    *sizes: int | None, partitions: tuple[PartitionInfo, ...] | None = None, **changes: object
) -> TableInfo:
    made = tuple(
        PartitionInfo(
            name=f"p{at}",
            relation=("s", f"t_p{at}"),
            position=at,
            bytes=None if size is None else size * MIB,
            extents=() if size is None else (RowExtent(first=0, last=size * 128),),
        )
        for at, size in enumerate(sizes)
    )
    table = TableInfo(
        schema="s",
        name="t",
        columns=(),
        partitions=made if partitions is None else partitions,
        named_partitions=True,
        row_ranges=True,
    )
    return structs.replace(table, **changes)  # type: ignore[arg-type]


def slices(*extents: tuple[int, int]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(name=f"p{at}", position=at, extents=(RowExtent(first=first, last=last),))
        for at, (first, last) in enumerate(extents)
    )


def scattered(*extents: tuple[int, int]) -> tuple[RowExtent, ...]:
    """Extents that need not touch."""
    return tuple(RowExtent(first=first, last=last) for first, last in extents)


def holding(extents: tuple[RowExtent, ...]) -> PartitionInfo:
    """A partition of these extents."""
    return PartitionInfo(name="p", position=0, extents=extents)


def numbered(*, rows: int, step: int) -> KeySample:
    return KeySample(column="ID", keys=tuple(map(str, range(step, rows, step))))


def key_pieces(made: Plan) -> list[KeyRange]:
    """The ranges of keys in the order of the table."""
    units = sorted(made.units, key=lambda unit: unit.id)
    return [unit.selectors[0] for unit in units if isinstance(unit.selectors[0], KeyRange)]


def pieces(made: Plan, partition: str | None) -> list[RowRange]:
    """The ranges of one partition in order."""
    units = sorted(made.units, key=lambda unit: unit.id)
    ranges = [unit.selectors[0] for unit in units if unit.partition == partition]
    assert all(isinstance(selector, RowRange) for selector in ranges)
    return [selector for selector in ranges if isinstance(selector, RowRange)]


def test_partition_never_cuts() -> None:
    """Split partition leaves even a partition of a thousand times the others' size whole."""
    made = plan(table_of(1, 1000, 1), PlanLimits(parallelism=8, split="partition", unit_bytes=1))
    assert [unit.partition for unit in made.units] == ["p1", "p0", "p2"]
    assert made.units[0].selectors[0] == NamedPartition(partition="p1", relation=("s", "t_p1"))


def test_balanced_partitions_are_left_whole() -> None:
    """Partitions that keep all workers busy to within 10 % are the units."""
    made = plan(table_of(*[100] * 32), PlanLimits(parallelism=16))
    assert all(isinstance(unit.selectors[0], NamedPartition) for unit in made.units)
    assert made.makespan == made.lower_bound == 200 * MIB


def test_skew_of_a_thousand_to_one_is_cut_away() -> None:
    """Of one huge partition among small ones only the huge one is cut, and all workers finish."""
    made = plan(table_of(*[8] * 15, 8000), PlanLimits(parallelism=8))
    cut = {unit.partition for unit in made.units if isinstance(unit.selectors[0], RowRange)}
    assert cut == {"p15"}
    # The target is ceil(8120 MiB / 32), and 8000 MiB need 32 pieces of it.
    ranges = pieces(made, "p15")
    assert len(ranges) == 32
    assert ranges[0].first is None
    assert ranges[-1].last is None
    assert [low.last for low in ranges[:-1]] == [high.first for high in ranges[1:]]
    assert made.makespan <= 1.1 * made.lower_bound


def test_cutting_that_gains_nothing_is_left_out() -> None:
    """Beside a huge partition that cannot be cut the others stay whole."""
    table = table_of(1000, 50, 50)
    fixed = structs.replace(table.partitions[0], extents=())
    table = structs.replace(table, partitions=(fixed, *table.partitions[1:]))
    made = plan(table, PlanLimits(parallelism=8))
    assert all(isinstance(unit.selectors[0], NamedPartition) for unit in made.units)


def test_unit_bytes_is_obeyed_as_given() -> None:
    """An explicit size cuts everything larger, even below 8 MiB and for one worker."""
    made = plan(table_of(1, 3, 10), PlanLimits(parallelism=1, unit_bytes=3 * MIB))
    counts = dict.fromkeys(("p0", "p1", "p2"), 0)
    for unit in made.units:
        counts[unit.partition or ""] += 1
    assert counts == {"p0": 1, "p1": 1, "p2": 4}


@pytest.mark.parametrize(("mebibytes", "units"), [(1, 1), (8, 1), (9, 2), (64, 8), (10_000, 32)])
def test_unpartitioned_table_feeds_every_worker_but_stays_whole_if_tiny(
    mebibytes: int, units: int
) -> None:
    """A table without partitions is cut into four units a worker, none planned for below 8 MiB."""
    table = table_of(
        bytes=mebibytes * MIB,
        rows=mebibytes * 1000,
        extents=(RowExtent(first=5, last=5 + 1_000_000),),
    )
    made = plan(table, PlanLimits(parallelism=8))
    assert len(made.units) == units
    assert sum(unit.rows or 0 for unit in made.units) == mebibytes * 1000
    assert sum(unit.bytes or 0 for unit in made.units) == mebibytes * MIB


def test_without_cheap_ranges_an_unpartitioned_table_is_one_unit() -> None:
    """A database that scans everything for each range is asked once."""
    table = table_of(bytes=1 << 40, extents=(RowExtent(first=0, last=1 << 30),), row_ranges=False)
    assert len(plan(table, PlanLimits(parallelism=8, unit_bytes=1)).units) == 1


def test_without_cheap_ranges_extents_are_one_unit_unless_asked_for() -> None:
    """Partitions that are mere extents are read together by auto, apart by partition."""
    table = table_of(partitions=slices((0, 9), (9, 18)), named_partitions=False, row_ranges=False)
    assert len(plan(table, PlanLimits(parallelism=2)).units) == 1
    assert len(plan(table, PlanLimits(parallelism=2, split="partition")).units) == 2


@pytest.mark.parametrize(
    ("table", "limits", "words"),
    [
        (table_of(1), {"parallelism": 0}, ["Parallelism 0", "--parallelism"]),
        (table_of(1), {"split": "hash"}, ["'hash'", "--split"]),
        (table_of(1), {"unit_bytes": 0}, ["0 bytes", "--unit-bytes"]),
        (table_of(), {"split": "partition"}, ["s.t", "no partitions"]),
        (table_of(1, row_ranges=False), {"split": "range"}, ["s.t", "scan"]),
        (table_of(None, None), {"split": "range"}, ["s.t", "neither known extents nor keys"]),
        (table_of(1 << 20, 1 << 20), {"unit_bytes": 1}, ["268435456 units", "--unit-bytes"]),
        (
            table_of(partitions=slices((0, 10), (12, 20)), named_partitions=False),
            {},
            ["'p0'", "'p1'", "[10, 12)", "lost"],
        ),
        (
            table_of(partitions=slices((5, 20), (0, 10)), named_partitions=False),
            {},
            ["'p0'", "'p1'", "[5, 10)", "duplicated"],
        ),
        (table_of(None, named_partitions=False), {}, ["'p0'", "no known extent"]),
        (
            table_of(partitions=(holding(scattered((0, 2), (4, 9))),), named_partitions=False),
            {},
            ["'p'", "2 extents instead of one"],
        ),
        (table_of(extents=scattered((0, 9), (5, 12))), {}, ["[0, 9)", "[5, 12)", "out of order"]),
        (
            table_of(partitions=(holding(scattered((7, 9), (0, 2))),)),
            {},
            ["[7, 9)", "[0, 2)", "'p'"],
        ),
        (table_of(extents=scattered((0, 9), (9, 9))), {}, ["[9, 9)", "empty"]),
        (
            table_of(keys=KeySample(column="K", keys=()), extents=()),
            {"split": "range"},
            ["s.t", "neither known extents nor keys"],
        ),
        (table_of(partitions=slices((0, 1)) * 2), {}, ["two partitions", "'p0'"]),
        (table_of(bytes=-1), {}, ["-1 bytes", "s.t"]),
        (
            table_of(partitions=(PartitionInfo(name="p", position=0, rows=-3),)),
            {},
            ["-3 rows", "'p'"],
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_names(
    table: TableInfo, limits: dict[str, object], words: list[str]
) -> None:
    """Every refusal names the mistake and ends in the next step."""
    asked = PlanLimits(**{"parallelism": 4, **limits})  # type: ignore[arg-type]
    with pytest.raises(PlanError) as caught:
        plan(table, asked)
    text = str(caught.value)
    assert "Next: " in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("split", ["auto", "range"])
def test_a_table_without_extents_is_cut_by_its_keys(split: str) -> None:
    """An index-organised table feeds all workers: four ranges of keys each, none twice."""
    sample = numbered(rows=10_000_000, step=9973)
    table = table_of(rows=10_000_000, bytes=1 << 30, keys=sample)
    made = plan(table, PlanLimits(parallelism=4, split=split))
    ranges = key_pieces(made)
    assert len(ranges) == len(made.units) == 16
    assert (ranges[0].first, ranges[-1].last) == (None, None)
    assert [low.last for low in ranges[:-1]] == [high.first for high in ranges[1:]]
    assert {each.column for each in ranges} == {"ID"}
    inner = [int(each.first) for each in ranges if each.first is not None]
    assert inner == sorted(inner)
    assert sum(unit.rows or 0 for unit in made.units) == 10_000_000
    assert made.makespan <= 1.02 * made.lower_bound


def test_extents_go_before_keys_and_keys_need_cheap_ranges() -> None:
    """Keys are used only where no extents are known and ranges are read without a scan."""
    sample = numbered(rows=1000, step=10)
    both = table_of(bytes=1 << 30, keys=sample, extents=scattered((0, 1 << 17)))
    assert len(pieces(plan(both, PlanLimits(parallelism=4)), None)) == 16
    scanned = table_of(bytes=1 << 30, keys=sample, row_ranges=False)
    assert [unit.selectors[0] for unit in plan(scanned, PlanLimits(parallelism=4)).units] == [
        WholeTable()
    ]


def test_a_partition_without_extents_stays_whole_beside_those_that_have_them() -> None:
    """A partition whose rows are in unknown places is one unit, of its known size or an average."""
    table = table_of(1600, 1600, 1600)
    known, sized, unknown = table.partitions
    sized = structs.replace(sized, extents=())
    unknown = structs.replace(unknown, extents=(), bytes=None)
    table = structs.replace(table, partitions=(known, sized, unknown))
    made = plan(table, PlanLimits(parallelism=2, split="range"))
    whole = [unit for unit in made.units if isinstance(unit.selectors[0], NamedPartition)]
    assert [(unit.partition, unit.bytes) for unit in whole] == [("p1", 1600 * MIB), ("p2", None)]
    # The average of those known, so that it is begun as early as they are.
    assert made.units[:2] == tuple(whole)
    assert len(pieces(made, "p0")) == 3


def test_sub_partitions_say_what_they_are() -> None:
    """Whole or cut, by addresses or keys, a unit of a sub-partition tells the source so."""
    leaf = PartitionInfo(name="a/b", kind="subpartition", position=0, bytes=1 << 30, object_id=77)
    cuttable = structs.replace(leaf, extents=scattered((5, 10), (90, 95)))
    keyed = structs.replace(leaf, keys=KeySample(column="K", keys=("1", "2")))
    small = structs.replace(leaf, name="a/c", position=1, bytes=1)
    for first in (leaf, cuttable, keyed):
        table = table_of(partitions=(first, small))
        units = plan(table, PlanLimits(parallelism=4)).units
        assert len(units) > 2 or first is leaf
        for unit in units:
            assert not isinstance(unit.selectors[0], WholeTable)
            assert unit.selectors[0].kind == "subpartition"
            assert not isinstance(unit.selectors[0], RowRange) or unit.selectors[0].object_id == 77
