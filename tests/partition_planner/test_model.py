"""Plans in files, their parts, and facts about tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace

from partition_planner.costs import unit_costs
from partition_planner.model import (
    ColumnInfo,
    KeySample,
    PartitionInfo,
    Plan,
    PlanError,
    PlanLimits,
    RowExtent,
    TableInfo,
    coalesced,
)
from partition_planner.planner import check_plan, plan, plan_of_units, plan_part

MIB = 1 << 20


@pytest.fixture(name="made")
def _made() -> Plan:
    table = TableInfo(
        schema="s",
        name="t",
        columns=(
            ColumnInfo(name="é", native_type="NUMBER(38)", attributes=(("scale", "0"),)),
            ColumnInfo(name="b", native_type="DATE", nullable=False),
        ),
        partitions=(
            *(
                PartitionInfo(
                    name=f"year/{at}",
                    relation=("s", f"t_{at}"),
                    position=at,
                    rows=size * 1000,
                    bytes=size * MIB,
                    extents=(RowExtent(first=0, last=size * 128),),
                )
                for at, size in enumerate((900, 3, 5))
            ),
            PartitionInfo(
                name="year/3",
                kind="subpartition",
                position=3,
                bytes=300 * MIB,
                rows=300_000,
                keys=KeySample(column="é", keys=tuple(map(str, range(5, 50)))),
            ),
        ),
        named_partitions=True,
        row_ranges=True,
    )
    return plan(table, PlanLimits(parallelism=4))


def test_digest_is_the_hash_of_the_canonical_json(made: Plan) -> None:
    """Anybody can recompute the digest from the plan's own JSON."""
    written = msgspec.to_builtins(made)
    content = {name: written[name] for name in ("table", "partitions", "units", "limits")}
    canonical = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert made.digest == hashlib.sha256(canonical.encode()).hexdigest()


def _selector(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first selector of a kind."""
    selectors: list[dict[str, Any]] = [unit["selectors"][0] for unit in plan["units"]]
    return next(each for each in selectors if each["kind"] == kind)


def _unit(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first unit with a selector of a kind."""
    units: list[dict[str, Any]] = plan["units"]
    return next(unit for unit in units if unit["selectors"][0]["kind"] == kind)


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, tuple[Edit, str]] = {
    "a smaller range": (lambda j: _selector(j, "row_range").update(last=1), "edited"),
    "a piece removed": (lambda j: j["units"].remove(_unit(j, "row_range")), "edited"),
    "a unit doubled": (lambda j: j["units"].append(j["units"][0]), "edited"),
    "units reordered": (lambda j: j["units"].reverse(), "edited"),
    "no unit": (lambda j: j["units"].clear(), "no units"),
    "another table": (lambda j: j["table"].update(name="u"), "edited"),
    "a column removed": (lambda j: j["table"]["columns"].pop(), "edited"),
    "another parallelism": (lambda j: j["limits"].update(parallelism=9), "edited"),
    "another digest": (lambda j: j.update(digest="0" * 64), "edited"),
    "another makespan": (lambda j: j.update(makespan=1.0), "makespan"),
    "another bound": (lambda j: j.update(lower_bound=0), "lower_bound"),
    "another measure": (lambda j: j.update(cost_unit="rows"), "cost_unit"),
    "a missing key": (lambda j: j["table"].pop("columns"), "missing required field `columns`"),
    "an unknown key": (
        lambda j: j["units"][1].update(where="1=1"),
        "unknown field `where` - at `$.units[1]`",
    ),
    "a wrong type": (lambda j: j["units"][2].update(rows="7"), "`$.units[2].rows`"),
    "a true number": (lambda j: j["limits"].update(parallelism=True), "`$.limits.parallelism`"),
    "a fraction": (lambda j: j["limits"].update(unit_bytes=1.0), "`$.limits.unit_bytes`"),
    "no worker": (lambda j: j["limits"].update(parallelism=0), "Parallelism 0"),
    "an unknown selector": (lambda j: j["units"][0]["selectors"][0].update(kind="sql"), "'sql'"),
    "a broken relation": (
        lambda j: j["table"]["partitions"][0].update(relation=["s"]),
        "`$.table.partitions[0].relation`",
    ),
    "a list for a table": (lambda j: j.update(table=[]), "got `array` - at `$.table`"),
    "an extent of one end": (
        lambda j: j["table"]["partitions"][0].update(extents=[[5]]),
        "`$.table.partitions[0].extents[0]`",
    ),
    "an extent of flags": (
        lambda j: j["table"].update(extents=[[False, True]]),
        "`$.table.extents[0][0]`",
    ),
    "a key that is no text": (
        lambda j: j["table"].update(keys={"column": "K", "keys": ["1", 2]}),
        "`$.table.keys.keys[1]`",
    ),
    "another kind of partition": (
        lambda j: j["table"]["partitions"][1].update(kind="range"),
        "`$.table.partitions[1].kind`",
    ),
    "another segment": (lambda j: _selector(j, "row_range").update(object_id=9), "edited"),
    "another piece of keys": (lambda j: _selector(j, "key_range").update(last="?"), "edited"),
    "a partition forgotten": (
        lambda j: j.update(
            units=[u for u in j["units"] if u["selectors"][0]["partition"] != "year/1"]
        ),
        "leave out year/1",
    ),
    "fewer partitions": (
        lambda j: j.update(partitions=["year/0", "year/1", "year/2"]),
        "read year/3, which was not requested",
    ),
    "a unit of the whole table": (
        lambda j: j["units"][0]["selectors"].append({"kind": "whole_table"}),
        "read the whole table, which was not requested",
    ),
    "a unit of nothing": (lambda j: j["units"][0]["selectors"].clear(), "`$.units[0].selectors`"),
    "a newer version": (
        lambda j: j.update(format_version=6),
        "Invalid value 6 - at `$.format_version`",
    ),
    "an older version": (
        lambda j: j.update(format_version=4),
        "Invalid value 4 - at `$.format_version`",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused(made: Plan, edit: str) -> None:
    """Any change to a stored plan is refused with a message that names it."""
    change, words = EDITS[edit]
    changed = json.loads(msgspec.json.encode(made))
    change(changed)
    with pytest.raises((PlanError, msgspec.ValidationError)) as caught:
        check_plan(msgspec.convert(changed, Plan))
    assert words in str(caught.value)


extents = st.lists(
    st.builds(
        lambda first, length: RowExtent(first=first, last=first + length),
        st.integers(0, 60),
        st.integers(-3, 12),
    ),
    max_size=12,
)


def addresses(found: tuple[RowExtent, ...] | list[RowExtent]) -> set[int]:
    """Every address of the extents."""
    return {address for extent in found for address in range(extent.first, extent.last)}


@given(extents)
def test_coalesced_extents_are_the_same_addresses_in_the_fewest_pieces(
    given_extents: list[RowExtent],
) -> None:
    """Order, repeats, overlaps and touching ends disappear; no address does."""
    made = coalesced(given_extents)
    assert addresses(made) == addresses(given_extents)
    assert all(low.last < high.first for low, high in pairwise(made))
    assert all(extent.addresses for extent in made)


MIB = 1 << 20


def whole(sizes: list[int]) -> Plan:
    """Return a plan with a unit for each partition, of these sizes."""
    table = TableInfo(
        schema="s",
        name="t",
        columns=(ColumnInfo(name="id", native_type="BIGINT", nullable=False),),
        rows=sum(sizes) // 128,
        bytes=sum(sizes),
        named_partitions=True,
        row_ranges=False,
        partitions=tuple(
            PartitionInfo(name=f"p{at:04}", position=at, rows=size // 128, bytes=size)
            for at, size in enumerate(sizes)
        ),
    )
    return plan(table, PlanLimits(parallelism=4, split="partition"))


@given(st.lists(st.integers(0, 100 * MIB), min_size=1, max_size=60), st.integers(1, 80))
def test_the_parts_are_the_plan(sizes: list[int], of: int) -> None:
    """Each unit is in one part; the first parts have units; none has much more than its share."""
    made = whole(sizes)
    parts = [plan_part(made, number, of) for number in range(1, of + 1)]
    there = [part for part in parts if part is not None]
    assert parts == there + [None] * (of - len(there))
    assert len(there) == min(of, len(made.units))
    assert sorted(unit.id for part in there for unit in part.units) == sorted(
        unit.id for unit in made.units
    )
    _, costs = unit_costs(made.table, made.units)
    by_id = {unit.id: cost for unit, cost in zip(made.units, costs, strict=True)}
    totals = [sum(by_id[unit.id] for unit in part.units) for part in there]
    # The bound of handing out largest first: a share and one more unit.
    assert max(totals) <= sum(costs) / of + max(costs) + 1e-6
    for number, part in enumerate(there, start=1):
        assert part.part is not None
        assert (part.part.number, part.part.of, part.part.plan_digest) == (number, of, made.digest)
        assert part.part.of_units == len(made.units)
        assert not part.has_all_units
        assert decode(encode(part), type=Plan) == part
        check_plan(part)


def test_parts_have_digests_of_their_own() -> None:
    """A part is not the plan, even where it has all units; an edited one is refused."""
    made = whole([MIB])
    part = plan_part(made, 1, 1)
    assert part is not None
    assert part.units == made.units
    assert part.digest != made.digest
    assert part.part is not None
    for other in (replace(part.part, number=2), None):
        with pytest.raises(PlanError, match="edited"):
            check_plan(replace(part, part=other))


def test_a_part_reads_no_other_partitions() -> None:
    """Some are left out, none is added."""
    made = whole([MIB, MIB])
    part = plan_part(made, 1, 2)
    assert part is not None
    with pytest.raises(PlanError, match="which was not requested"):
        plan_of_units(
            table=replace(made.table, partitions=made.table.partitions[:1]),
            partitions=("p0000",),
            units=made.units,
            limits=made.limits,
            part=part.part,
        )
