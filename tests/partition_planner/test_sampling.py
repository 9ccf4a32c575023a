"""Samples of a table's units: how large they are, their places, and refusals."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from msgspec import convert
from msgspec.json import encode
from msgspec.structs import replace

from partition_planner.model import (
    ColumnInfo,
    NamedPartition,
    PartitionInfo,
    Plan,
    PlanError,
    PlanLimits,
    RowExtent,
    RowRange,
    TableInfo,
)
from partition_planner.planner import LEAST_UNIT_BYTES, check_plan, plan, sampled_plan

COLUMNS = (ColumnInfo(name="id", native_type="BIGINT", nullable=False),)
MIB = 1 << 20


def table_of(size: int, **changes: object) -> TableInfo:
    """Return a table of some bytes whose blocks of 8 KiB can be read in ranges."""
    table = TableInfo(
        schema="s",
        name="t",
        columns=COLUMNS,
        rows=size // 128,
        bytes=size,
        extents=(RowExtent(first=0, last=size // 8192),),
        named_partitions=False,
        row_ranges=True,
    )
    return replace(table, **changes)


def parts_of(*sizes: int) -> tuple[PartitionInfo, ...]:
    """Return partitions of some bytes that are read whole."""
    return tuple(
        PartitionInfo(name=f"p{at}", position=at, rows=size // 128, bytes=size)
        for at, size in enumerate(sizes)
    )


def spans(made: Plan) -> list[tuple[int, int]]:
    """Return the ranges that a plan reads, ascending; an open end is the lowest or highest."""
    found = []
    for selector in made.selectors:
        assert isinstance(selector, RowRange)
        found.append((selector.first or 0, selector.last or 1 << 40))
    return sorted(found)


@pytest.mark.parametrize("share", [0.005, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("parallelism", [1, 8])
def test_a_sample_is_as_large_as_asked_for_and_lies_everywhere(
    share: float, parallelism: int
) -> None:
    """Units come to the share, no two of them overlap, and each part of the table has some."""
    size = 256 * MIB
    made = sampled_plan(table_of(size), PlanLimits(parallelism=parallelism), share)
    assert made.sampled is not None
    unit = max(each.bytes or 0 for each in made.units)
    assert abs(sum(each.bytes or 0 for each in made.units) - share * size) <= unit
    assert made.sampled.cost_share == pytest.approx(share, abs=unit / size)
    assert len(made.units) >= min(8, 4 * parallelism)
    found = spans(made)
    assert all(before[1] <= after[0] for before, after in pairwise(found))
    quarters = {first * 4 // (size // 8192) for first, _ in found}
    assert quarters == {0, 1, 2, 3}


def test_the_units_are_those_of_a_whole_plan() -> None:
    """They have ids and selectors of the same cut, so that the rest could be read as well."""
    limits = PlanLimits(parallelism=2, unit_bytes=MIB)
    whole = {unit.id: unit for unit in plan(table_of(100 * MIB), limits).units}
    made = sampled_plan(table_of(100 * MIB), limits, 0.05)
    assert len(made.units) == 5
    assert all(whole[unit.id] == unit for unit in made.units)
    assert made.sampled is not None
    assert (made.sampled.share, made.sampled.of_units) == (0.05, 100)
    assert made == sampled_plan(table_of(100 * MIB), limits, 0.05)


def test_a_small_table_is_read_whole() -> None:
    """Below the least size of a unit there is one, and it is taken; an empty table is accepted."""
    for size in (0, LEAST_UNIT_BYTES):
        made = sampled_plan(table_of(size), PlanLimits(parallelism=2), 0.01)
        assert len(made.units) == 1
        assert made.sampled is not None
        assert made.sampled.of_units == 1
    unknown = table_of(0, bytes=None, rows=0, extents=(), row_ranges=False)
    assert len(sampled_plan(unknown, PlanLimits(parallelism=2), 0.01).units) == 1


def test_partitions_are_taken_by_their_size() -> None:
    """Whole ones, near the share; one with an estimate of zero is not ignored."""
    sizes = (MIB, 9 * MIB, 0, 5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB)
    table = table_of(
        sum(sizes), partitions=parts_of(*sizes), named_partitions=True, extents=(), row_ranges=False
    )
    made = sampled_plan(table, PlanLimits(parallelism=2, split="partition"), 0.5)
    names = sorted(each.partition or "" for each in made.selectors)
    assert all(isinstance(each, NamedPartition) for each in made.selectors)
    assert 0.4 <= sum(sizes[int(name[1])] for name in names) / sum(sizes) <= 0.6
    tiny = sampled_plan(table, PlanLimits(parallelism=2, split="partition"), 0.001)
    assert [each.partition for each in tiny.selectors] == ["p0"]
    chosen = sampled_plan(table, PlanLimits(parallelism=2), 0.4, ["p1", "p3", "p4"])
    assert chosen.partitions == ("p1", "p3", "p4")
    assert {each.partition for each in chosen.selectors} < {"p1", "p3", "p4"}


def test_what_is_read_in_one_go_is_no_sample() -> None:
    """A view of unknown size, and a large table that must not be cut, are refused by name."""
    view = table_of(0, bytes=None, rows=None, extents=(), row_ranges=False)
    with pytest.raises(PlanError, match=r"s\.t is read as one work unit.*--sample-by COLUMN"):
        sampled_plan(view, PlanLimits(parallelism=2), 0.01)
    with pytest.raises(PlanError, match="one work unit"):
        sampled_plan(table_of(100 * MIB), PlanLimits(parallelism=2, split="none"), 0.01)
    for share in (0.0, 1.0):
        with pytest.raises(PlanError, match="above 0 and below 1"):
            sampled_plan(table_of(MIB), PlanLimits(parallelism=2), share)


def test_a_sample_comes_back_from_json_and_an_edited_one_does_not() -> None:
    """The digest covers the sampled table; a whole plan mentions no sample."""
    made = sampled_plan(table_of(100 * MIB), PlanLimits(parallelism=2), 0.02)
    document = json.loads(encode(made))
    read = convert(document, Plan)
    check_plan(read)
    assert read == made
    document["sampled"]["of_units"] += 1
    with pytest.raises(PlanError, match="edited after it was made"):
        check_plan(convert(document, Plan))
    del document["sampled"]
    with pytest.raises(PlanError, match="edited after it was made"):
        check_plan(convert(document, Plan))
