"""Tables in, work units out.

The promise: every row of the table belongs to exactly one unit, even with wrong estimates. Same
table and limits, same plan, to the last bit.

Every address, and every key under any order that agrees with the sample's, belongs to exactly one
range. Ranges adjoin, the outermost are open, and no boundary occurs twice. Extents come from
statistics that may be stale, or are a sample, so only inner boundaries are exact. Addresses between
two extents belong to the piece in which the lower extent ends.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from partition_planner.costs import (
    Addresses,
    Keys,
    Part,
    Simulation,
    measure,
    parts_of,
    share,
    unit_costs,
)
from partition_planner.cutting import pieces_of
from partition_planner.model import (
    KeyRange,
    NamedPartition,
    Plan,
    PlanError,
    PlanLimits,
    PlanPart,
    RowExtent,
    RowRange,
    SampledUnits,
    Selector,
    TableInfo,
    WholeTable,
    WorkUnit,
)

MAX_CUT_UNITS = 1_000_000
"""Cutting stops with an error above it: such a plan is a mistyped size, not a wish."""

_Draft = tuple[tuple[Selector, ...], int | None, int | None]
"""Selectors, rows and bytes of a unit: its id needs the number of all units."""

_Ends = tuple[bool, bool]
"""Whether the first and the last end of a part are open; the others adjoin another part."""


def plan(table: TableInfo, limits: PlanLimits, partitions: Collection[str] | None = None) -> Plan:
    """Return the table, or some partitions, cut into work units, largest first, equals by id.

    With `split` "none" it is one unit. "partition" makes one unit of each partition.
    "range" cuts everything that has extents or keys to the target size. "auto" takes partitions as
    units and cuts only where workers would idle otherwise; a table without partitions is cut if
    ranges are cheap to read, and partitions that are mere extents stay together as one unit if
    ranges are not. The target size is `unit_bytes`, or else a quarter of a worker's share but at
    least `cutting.MIN_UNIT_BYTES`.

    Args:
        table: The source's description of it.
        limits: The user's decisions.
        partitions: Names of the partitions to read, at least one; no row of another is read. None
            reads the table, which "none" reads without looking at its partitions.

    Raises:
        PlanError: A limit makes no sense, or the table lacks data for the split or a requested
            partition. An estimate is negative, extents are not ascending and disjoint, or a
            partition's name occurs twice. Partitions known by their extents alone overlap or leave
            gaps.
    """
    limits.check()
    parts = parts_of(table)
    known = {part.name for part in parts}
    missing = sorted(name for name in partitions or () if name not in known)
    if partitions is not None and (missing or not partitions):
        what = f"no partition {missing[0]!r}" if missing else "none of the requested partitions"
        raise PlanError(f"{table.label} has {what}.", "name partitions that it has.")
    drafts = list(_drafts(table, parts, limits, partitions))
    width = max(4, len(str(len(drafts))))
    units = tuple(
        WorkUnit(id=f"{ordinal:0{width}d}", selectors=selectors, rows=rows, bytes=size)
        for ordinal, (selectors, rows, size) in enumerate(drafts, start=1)
    )
    chosen = tuple(part.name for part in parts if part.name and part.name in (partitions or ()))
    return plan_of_units(table=table, partitions=chosen or None, units=units, limits=limits)


def plan_of_units(
    *,
    table: TableInfo,
    partitions: tuple[str, ...] | None,
    units: tuple[WorkUnit, ...],
    limits: PlanLimits,
    sampled: SampledUnits | None = None,
    part: PlanPart | None = None,
) -> Plan:
    """Return the plan of these units, in any order, with all values computed from them.

    Raises:
        PlanError: The units read other partitions than those asked for.
    """
    read = {selector.partition for unit in units for selector in unit.selectors}
    asked: set[str | None] = {leaf.name for leaf in table.partitions}
    if partitions is not None:
        asked = set(partitions)
    elif read == {None}:
        asked = read
    # The units of a sample or a part need not read each partition.
    left_out = sorted(name for name in asked - read if name is not None)
    unasked = sorted("the whole table" if name is None else name for name in read - asked)
    if unasked or (left_out and sampled is None and part is None):
        problem = f"leave out {left_out[0]}" if left_out else ""
        raise PlanError(
            f"The work units of {table.label} "
            f"{problem or f'read {unasked[0]}, which was not requested'}.",
            "make a new plan; if that does not help, report it.",
        )
    costs, by_unit = unit_costs(table, units)
    order = sorted(range(len(units)), key=lambda at: (-by_unit[at], units[at].id))
    units = tuple(units[at] for at in order)
    run = Simulation.of(costs, [by_unit[at] for at in order], limits.parallelism)
    encode = msgspec.json.Encoder(order="sorted").encode
    digest = hashlib.sha256(
        b'{"limits":%b,"partitions":%b,"table":%b,"units":['
        % (encode(limits), encode(partitions), encode(table))
    )
    # Unit by unit: the text of all together would be the largest object a plan ever needs.
    for at, unit in enumerate(units):
        digest.update((b"," if at else b"") + encode(unit))
    if sampled is not None:
        digest.update(b',"sampled":' + encode(sampled))
    if part is not None:
        digest.update(b',"part":' + encode(part))
    digest.update(b"]}")
    return Plan(
        table=table,
        partitions=partitions,
        units=units,
        limits=limits,
        sampled=sampled,
        part=part,
        digest=digest.hexdigest(),
        makespan=run.makespan,
        lower_bound=run.lower_bound,
        cost_unit=costs.unit,
    )


_DERIVED = {
    "units": "its units are not largest first",
    "digest": "its digest is not the digest of its table, partitions, units and limits",
    "makespan": "its makespan is not the makespan of its units",
    "lower_bound": "its lower_bound is not the lower bound of its units",
    "cost_unit": "its cost_unit is not the measure of its units",
}
"""What follows from the rest of a plan, and the error if it does not."""


def check_plan(plan: Plan) -> None:
    """Check a plan that was read: its values make sense and follow from its units and table.

    Raises:
        PlanError: It has no units, or was changed after it was made.
    """
    plan.limits.check()
    problem = "" if plan.units else "it has no units"
    if plan.units:
        again = plan_of_units(
            table=plan.table,
            partitions=plan.partitions,
            units=plan.units,
            limits=plan.limits,
            sampled=plan.sampled,
            part=plan.part,
        )
        changed = [
            what for name, what in _DERIVED.items() if getattr(again, name) != getattr(plan, name)
        ]
        problem = f"it was edited after it was made: {changed[0]}" if changed else ""
    if problem:
        raise PlanError(
            f"The plan cannot be used: {problem}.", "make the plan again from the source."
        )


def _drafts(
    table: TableInfo,
    parts: tuple[Part, ...],
    limits: PlanLimits,
    partitions: Collection[str] | None,
) -> Iterator[_Draft]:
    for part in parts:
        for kind, value in (("rows", part.rows), ("bytes", part.bytes)):
            if value is not None and value < 0:
                raise PlanError(
                    f"The statistics of {table.label} give {value} {kind}{_in(part, 'in')}.",
                    "renew the statistics of the table; unknown values must be None.",
                )
    # The one unit that reads every row. The table's own estimates are preferred to the parts'.
    rows = _total(part.rows for part in parts) if table.rows is None else table.rows
    size = _total(part.bytes for part in parts) if table.bytes is None else table.bytes
    whole: _Draft = ((WholeTable(),), rows, size)
    if limits.split == "none" and partitions is None:
        yield whole
        return
    extents_only = bool(table.partitions) and not table.named_partitions
    _check_split(table, parts, limits.split)
    # For all partitions, since the ends of one are open only where it has no neighbour.
    ends = _open_ends(parts, table.label) if extents_only else [(True, True)] * len(parts)
    costly_ranges = limits.split == "auto" and extents_only and not table.row_ranges
    if costly_ranges and partitions is None:
        yield whole
        return
    chosen = [
        (part, end)
        for part, end in zip(parts, ends, strict=True)
        if partitions is None or part.name in partitions
    ]
    counts, chosen_parts = [1] * len(chosen), [part for part, _ in chosen]
    together = costly_ranges or limits.split == "none"
    if not together and limits.split != "partition" and table.row_ranges:
        counts = pieces_of(chosen_parts, measure(table, chosen_parts), limits)
        if sum(counts) > max(MAX_CUT_UNITS, len(chosen)):
            raise PlanError(
                f"To cut {table.label} would make {sum(counts)} units, more than {MAX_CUT_UNITS}.",
                "give a larger --unit-bytes or a lower --parallelism.",
            )
    drafts: list[_Draft] = []
    for (part, end), pieces in zip(chosen, counts, strict=True):
        if pieces > 1 or (part.name is not None and not table.named_partitions):
            drafts += _ranges(part, pieces, end)
        elif part.name is None:
            drafts.append(whole)
        else:
            # An empty partition is a unit like any other: its statistics may be stale.
            selector = NamedPartition(partition=part.name, kind=part.kind, relation=part.relation)
            drafts.append(((selector,), part.rows, part.bytes))
    if together:
        # One unit that reads the partitions in their order.
        yield (
            tuple(selector for selectors, _, _ in drafts for selector in selectors),
            _total(rows for _, rows, _ in drafts),
            _total(size for _, _, size in drafts),
        )
    else:
        yield from drafts


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum of estimates, None if one of them is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _in(part: Part, word: str) -> str:
    return "" if part.name is None else f" {word} partition {part.name!r}"


def _check_split(table: TableInfo, parts: Sequence[Part], split: str) -> None:
    for part in parts:
        extents = part.spread.extents if isinstance(part.spread, Addresses) else ()
        for lower, upper in pairwise(extents):
            if upper.first < lower.last or not (lower.addresses and upper.addresses):
                raise PlanError(
                    f"The extents [{lower.first}, {lower.last}) and [{upper.first}, {upper.last})"
                    f"{_in(part, 'of')} of {table.label} are empty or out of order, so their sums "
                    "mean nothing.",
                    "run with --split none; the source must coalesce its extents.",
                )
    name, count = Counter(part.name for part in parts).most_common(1)[0]
    for found, problem, advice in (
        (
            split == "partition" and not table.partitions,
            "has no partitions to split by",
            "--split auto",
        ),
        (
            split == "range" and not table.row_ranges,
            "cannot be read by ranges of row addresses or keys: each range would scan the whole "
            "table",
            "--split auto",
        ),
        (
            split == "range" and all(part.spread is None for part in parts),
            "has neither known extents nor keys, so it cannot be cut into ranges",
            "--split auto",
        ),
        (
            count > 1,
            f"has two partitions named {name!r}, so rows could be duplicated",
            "--split none, which reads the table as one unit",
        ),
    ):
        if found:
            raise PlanError(f"{table.label} {problem}.", f"run with {advice}.")


def _ranges(part: Part, pieces: int, ends: _Ends) -> Iterator[_Draft]:
    """Yield the part as adjoining ranges of about equally many addresses or keys, in order.

    The estimates of the pieces sum to the part's estimates. Where keys repeat there may be fewer
    pieces.

    Args:
        part: A part with extents or keys.
        pieces: At least 1, and no more than the part has addresses unless it is 1.
        ends: Which of the part's ends are open.
    """
    spread = part.spread
    assert spread is not None, "only a part with extents or keys is cut"
    weight = spread.weight
    name, kind, relation = part.name, part.kind, part.relation
    for piece, (start, stop) in enumerate(pairwise(cuts := spread.cuts(pieces))):
        opens, closes = ends[0] and piece == 0, not (ends[1] and piece == len(cuts) - 2)
        selector: Selector
        if isinstance(spread, Keys):
            selector = KeyRange(
                partition=name,
                kind=kind,
                relation=relation,
                column=spread.column,
                first=None if opens else spread.at(start),
                last=spread.at(stop) if closes else None,
            )
        else:
            selector = RowRange(
                partition=name,
                kind=kind,
                relation=relation,
                object_id=part.object_id,
                first=None if opens else spread.at(start),
                last=spread.at(stop) if closes else None,
            )
        rows, size = (
            total if total is None or weight == 0 else share(total, (start, stop), weight)
            for total in (part.rows, part.bytes)
        )
        yield (selector,), rows, size


def _open_ends(parts: Sequence[Part], label: str) -> list[_Ends]:
    """Return the open ends of parts known by their extents alone, in the order given.

    The part at the lowest addresses is open at its start, the one at the highest at its end. An
    empty extent stays an empty range, which adjoins nothing and selects nothing, unless all are
    empty. Then the first part is open at both ends and has all rows that exist by now.

    Raises:
        PlanError: A part has no extent, or more than one, or two neighbours overlap or leave a gap,
            so that rows would be doubled or lost. The message names them.
    """
    extents: list[RowExtent] = []
    for part in parts:
        known = part.spread.extents if isinstance(part.spread, Addresses) else ()
        if len(known) != 1:
            found = f"has {len(known)} extents instead of one" if known else "has no known extent"
            raise PlanError(
                f"Partition {part.name!r} of {label} has no name for a SELECT, and it {found}.",
                "run with --split none, which makes the table one unit.",
            )
        extents += known
    filled = [at for at, extent in enumerate(extents) if extent.addresses]
    ordered = sorted(filled, key=lambda at: extents[at].first)
    for at, after in pairwise(ordered):
        lower, upper = extents[at], extents[after]
        if lower.last == upper.first:
            continue
        shared = min(lower.last, upper.last)
        problem = (
            f"leave out the addresses [{lower.last}, {upper.first}), so rows could be lost"
            if lower.last < upper.first
            else f"share the addresses [{upper.first}, {shared}), so rows would be duplicated"
        )
        raise PlanError(
            f"Partitions {parts[at].name!r} and {parts[after].name!r} of {label} {problem}.",
            "run with --split none, which reads the table as one unit.",
        )
    lowest, highest = (ordered[0], ordered[-1]) if ordered else (0, 0)
    return [(at == lowest, at == highest) for at in range(len(parts))]
