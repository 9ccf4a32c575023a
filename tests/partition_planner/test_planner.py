"""The planner's decisions on tables whose right plan is known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec import structs

from partition_planner.errors import PlanError
from partition_planner.model import (
    KeyRange,
    KeySample,
    NamedPartition,
    PartitionInfo,
    Plan,
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
    """A table of named partitions with so many MiB, 128 addresses each MiB."""
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
    """Partitions that are nothing but their extents."""
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
    """Each so many-th of the keys 0 to `rows`, as text; its order is not that of the text."""
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


def test_none_makes_one_unit_that_sums_the_partitions() -> None:
    """Split none reads the whole table at once and estimates it from its partitions."""
    made = plan(table_of(10, 20, 30), PlanLimits(parallelism=4, split="none"))
    (unit,) = made.units
    assert unit.selectors[0] == WholeTable()
    assert (unit.id, unit.partition, unit.bytes, unit.rows) == ("0001", None, 60 * MIB, None)
    assert made.makespan == 60 * MIB


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


def test_second_threshold_cuts_when_the_first_leaves_workers_idle() -> None:
    """32 equal partitions on 15 workers, none twice the target, still end within 4/3."""
    whole = plan(table_of(*[100] * 32), PlanLimits(parallelism=15, split="partition"))
    made = plan(table_of(*[100] * 32), PlanLimits(parallelism=15))
    assert whole.makespan > 1.4 * 3200 * MIB / 15
    assert made.makespan <= 4 / 3 * 3200 * MIB / 15


def test_cutting_that_gains_nothing_is_left_out() -> None:
    """Beside a huge partition that cannot be cut the others stay whole."""
    table = table_of(1000, 50, 50)
    fixed = structs.replace(table.partitions[0], extents=())
    table = structs.replace(table, partitions=(fixed, *table.partitions[1:]))
    made = plan(table, PlanLimits(parallelism=8))
    assert all(isinstance(unit.selectors[0], NamedPartition) for unit in made.units)


def test_one_worker_never_cuts_by_itself() -> None:
    """At parallelism 1 partitions and unpartitioned tables stay whole."""
    assert len(plan(table_of(1, 100_000), PlanLimits(parallelism=1)).units) == 2
    alone = table_of(bytes=1 << 40, extents=(RowExtent(first=0, last=1 << 27),))
    assert [unit.selectors[0] for unit in plan(alone, PlanLimits(parallelism=1)).units] == [
        WholeTable()
    ]


def test_unit_bytes_is_obeyed_as_given() -> None:
    """An explicit size cuts whatever is larger, even below 8 MiB and for one worker."""
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


def test_never_more_pieces_than_addresses() -> None:
    """A partition of three addresses yields three units however large it is said to be."""
    table = table_of(bytes=1 << 40, extents=(RowExtent(first=7, last=10),))
    made = plan(table, PlanLimits(parallelism=64, split="range"))
    assert [(piece.first, piece.last) for piece in pieces(made, None)] == [
        (None, 8),
        (8, 9),
        (9, None),
    ]


@pytest.mark.parametrize("split", ["auto", "none", "range"])
def test_one_row_and_no_row_are_one_unit(split: str) -> None:
    """A table of one row, or of none, is a plan of one unit that reads everything."""
    for rows in (0, 1):
        table = table_of(rows=rows, bytes=rows * 8192, extents=(RowExtent(first=0, last=rows),))
        made = plan(table, PlanLimits(parallelism=8, split=split))
        assert [unit.selectors[0] for unit in made.units] == [WholeTable()]


def test_empty_named_partitions_are_units() -> None:
    """A partition said to be empty is read all the same: the statistics may be stale."""
    made = plan(table_of(0, 0, 5, None), PlanLimits(parallelism=4))
    assert sorted(unit.partition or "" for unit in made.units) == ["p0", "p1", "p2", "p3"]
    assert all(isinstance(unit.selectors[0], NamedPartition) for unit in made.units)


def test_nothing_known_makes_every_unit_alike() -> None:
    """Without any estimate each unit counts 1 and the makespan is in units."""
    made = plan(table_of(*[None] * 9), PlanLimits(parallelism=4))
    assert (made.cost_unit, made.makespan, made.lower_bound) == ("units", 3.0, 2.25)


def test_rows_stand_in_for_bytes_and_addresses_for_rows() -> None:
    """A table that knows only rows, or only addresses, is still cut to feed all workers."""
    extent = RowExtent(first=0, last=100_000_000)
    by_rows = plan(table_of(rows=100_000_000, extents=(extent,)), PlanLimits(parallelism=4))
    assert (by_rows.cost_unit, len(by_rows.units)) == ("rows", 16)
    by_address = plan(table_of(extents=(extent,)), PlanLimits(parallelism=4))
    assert (by_address.cost_unit, len(by_address.units)) == ("units", 16)
    assert by_address.makespan == by_address.lower_bound == 4.0


def test_a_partition_of_unknown_size_is_taken_for_an_average_one() -> None:
    """One partition without statistics does not spoil the estimates of the others."""
    made = plan(table_of(10, None, 30), PlanLimits(parallelism=3, split="partition"))
    assert made.cost_unit == "bytes"
    assert [unit.partition for unit in made.units] == ["p2", "p1", "p0"]
    assert made.makespan == 30 * MIB
    assert {unit.partition: unit.bytes for unit in made.units}["p1"] is None


def test_extents_are_open_at_the_outer_ends_of_the_table_only() -> None:
    """Of adjoining extents the first starts open, the last ends open, the rest is exact."""
    table = table_of(partitions=slices((0, 10), (10, 10), (10, 30)), named_partitions=False)
    made = plan(table, PlanLimits(parallelism=2, split="partition"))
    found = {name: pieces(made, name) for name in ("p0", "p1", "p2")}
    assert [(piece.first, piece.last) for piece in found["p0"]] == [(None, 10)]
    assert [(piece.first, piece.last) for piece in found["p1"]] == [(10, 10)]
    assert [(piece.first, piece.last) for piece in found["p2"]] == [(10, None)]


def test_ten_thousand_partitions_keep_their_order() -> None:
    """Ids grow to five digits for 10,000 partitions and sort as their positions do."""
    made = plan(table_of(*range(10_000)), PlanLimits(parallelism=16, split="partition"))
    ordered = sorted(made.units, key=lambda unit: unit.id)
    assert [unit.partition for unit in ordered] == [f"p{at}" for at in range(10_000)]
    assert (ordered[0].id, ordered[-1].id) == ("00001", "10000")
    assert [unit.partition for unit in made.units] == [f"p{9999 - at}" for at in range(10_000)]


@pytest.mark.parametrize(
    ("table", "limits", "words"),
    [
        (table_of(1), {"parallelism": 0}, ["Parallelism 0", "--parallelism"]),
        (table_of(1), {"split": "hash"}, ["'hash'", "--split"]),
        (table_of(1), {"unit_bytes": 0}, ["0 bytes", "--unit-bytes"]),
        (table_of(), {"split": "partition"}, ["s.t", "no partitions"]),
        (table_of(1, row_ranges=False), {"split": "range"}, ["s.t", "scan"]),
        (table_of(None, None), {"split": "range"}, ["s.t", "neither known extents nor keys"]),
        (
            table_of(1 << 20, 1 << 20),
            {"unit_bytes": 1},
            ["268435456 units", "--unit-bytes"],
        ),
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
            table_of(
                partitions=(holding(scattered((0, 2), (4, 9))),),
                named_partitions=False,
            ),
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
    """Every refusal names what is wrong and ends in what to do next."""
    asked = PlanLimits(**{"parallelism": 4, **limits})  # type: ignore[arg-type]
    with pytest.raises(PlanError) as caught:
        plan(table, asked)
    text = str(caught.value)
    assert "Next: " in text
    for word in words:
        assert word in text


def test_none_reads_a_table_whose_partitions_contradict_each_other() -> None:
    """The way out that the refusals offer works: split none does not look at partitions."""
    table = table_of(partitions=slices((0, 10), (12, 20)), named_partitions=False)
    made = plan(table, PlanLimits(parallelism=4, split="none"))
    assert [unit.selectors[0] for unit in made.units] == [WholeTable()]


def test_the_widest_addresses_are_cut_exactly() -> None:
    """An extent over all 64-bit rowids is cut without loss of a bit."""
    table = table_of(extents=(RowExtent(first=-(1 << 63), last=(1 << 63) - 1),))
    made = plan(table, PlanLimits(parallelism=3))
    ranges = pieces(made, None)
    assert [low.last for low in ranges[:-1]] == [high.first for high in ranges[1:]]
    widths = {(high.first or 0) - (low.first or 0) for low, high in pairwise(ranges[1:])}
    assert max(widths) - min(widths) <= 1


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


def test_keys_alone_feed_every_worker() -> None:
    """Where nothing but a sample of keys is known the table is cut all the same."""
    table = table_of(keys=numbered(rows=1000, step=5))
    made = plan(table, PlanLimits(parallelism=4))
    assert (made.cost_unit, len(key_pieces(made))) == ("units", 16)


def test_two_keys_make_three_ranges_at_most() -> None:
    """Even of a terabyte no more can be made of a small sample."""
    table = table_of(bytes=1 << 40, keys=KeySample(column="K", keys=("x", "a")))
    made = plan(table, PlanLimits(parallelism=64))
    assert [(each.first, each.last) for each in key_pieces(made)] == [
        (None, "x"),
        ("x", "a"),
        ("a", None),
    ]


def test_a_partition_without_extents_stays_whole_beside_those_that_have_them() -> None:
    """A partition whose rows lie nobody knows where is one unit, of its own size or an average."""
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


def test_a_hundred_thousand_extents_are_cut_where_their_sum_says() -> None:
    """So many extents, each far from the next, are cut into even pieces, and all is added once."""
    extents = scattered(*[(at << 32, (at << 32) + 8 * (1 + at % 3)) for at in range(100_000)])
    weight = sum(extent.addresses for extent in extents)
    table = table_of(bytes=weight * 8192, extents=extents, object_id=5)
    made = plan(table, PlanLimits(parallelism=64))
    ranges = pieces(made, None)
    assert len(ranges) == 256
    sizes = [unit.bytes or 0 for unit in made.units]
    assert max(sizes) - min(sizes) <= 8192
    inner = [each.first or 0 for each in ranges[1:]]
    assert inner == sorted(set(inner))
    assert all(address & 0xFFFFFFFF < 24 for address in inner)
