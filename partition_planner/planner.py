"""Tables in, work units out: all units of a table, a sample of them, or one machine's part.

The promise: every row of the table belongs to exactly one unit, even with wrong estimates. Nothing
is random: same table and limits, same plan, to the last bit.

Every address, and every key under any order that agrees with the sample's, belongs to exactly one
range. Ranges adjoin, the outermost are open, and no boundary occurs twice. Extents come from
statistics that may be stale, or are a sample, so only inner boundaries are exact. Addresses between
two extents belong to the piece in which the lower extent ends.

Cutting has a price: more statements, files and connections' round trips. So parts stay whole unless
the estimates show idle workers, and the planner's own target size is never below `MIN_UNIT_BYTES`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from partition_planner.costs import (
    Addresses,
    Costs,
    Keys,
    Part,
    dealt,
    measure,
    parts_of,
    share,
    shares,
    simulated,
    unit_costs,
)
from partition_planner.model import (
    KeyRange,
    NamedPartition,
    PartitionInfo,
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

MIN_UNIT_BYTES = 8 << 20
"""Guess: below it the round trips of a unit weigh more than the time a finer cut can save."""

UNITS_PER_WORKER = 4
"""With four units each, the last one to finish is at most a quarter of a fair share late."""

THRESHOLDS = ((2, 1), (4, 3))
"""A part is cut only above this number of targets, as fractions; the second if the first did not
do.

LPT ends more than a third late only with a unit larger than 4/3 of the target, which is a third
of a fair share. Cutting all such units makes 4/3 of the lower bound a promise.
"""

WELL_BALANCED = (11, 10)
"""A schedule within 10 % of the lower bound is left alone."""

MAX_TRIED = 100_000
"""Pieces in all plans for fewer workers that are looked at: about a tenth of a second."""

LEAST_UNITS = 8
"""This number of places of a table is looked at by a sample, if the table is large enough."""

LEAST_UNIT_BYTES = 64 << 10
"""Guess: a smaller piece of a sample costs a round trip and saves nothing."""

MOST_UNITS = 50_000
"""The whole of a sample is cut into no more units: each takes some memory and time to plan."""

_Draft = tuple[tuple[Selector, ...], int | None, int | None]
"""The selectors of a unit, its rows and its bytes."""

_Ends = tuple[bool, bool]
"""Whether the first and the last end of a part are open; the others adjoin another part."""


def plan(table: TableInfo, limits: PlanLimits, partitions: Collection[str] | None = None) -> Plan:
    """Return the table, or some partitions, cut into work units, largest first, equals by id.

    With `split` "none" it is one unit. "partition" makes one unit of each partition.
    "range" cuts everything that has extents or keys to the target size. "auto" takes partitions as
    units and cuts only where workers would idle otherwise; a table without partitions is cut if
    ranges are cheap to read, and partitions that are mere extents stay together as one unit if
    ranges are not. The target size is `unit_bytes`, or else a quarter of a worker's share but at
    least `MIN_UNIT_BYTES`. Of `partitions`, at least one, no row of another is read; None reads the
    table, which "none" reads without looking at its partitions.

    PlanError is raised if a limit makes no sense, the table lacks data for the split or a requested
    partition, or partitions known by their extents alone overlap or leave gaps; and if an estimate
    is negative, extents are not ascending and disjoint, or a partition's name occurs twice.
    """
    limits.check()
    split, parts = limits.split, parts_of(table)
    missing = sorted(set(partitions or ()) - {part.name for part in parts if part.name is not None})
    if partitions is not None and (missing or not partitions):
        what = f"no partition {missing[0]!r}" if missing else "none of the requested partitions"
        raise PlanError(f"{table.label} has {what}.", "name partitions that it has.")
    for part in parts:
        for kind, value in (("rows", part.info.rows), ("bytes", part.info.bytes)):
            if value is not None and value < 0:
                raise PlanError(
                    f"The statistics of {table.label} give {value} {kind}{_in(part, 'in')}.",
                    "renew the statistics of the table; unknown values must be None.",
                )
    # The one unit that reads every row. The table's own estimates are preferred to the parts'.
    rows = known_sum(part.info.rows for part in parts) if table.rows is None else table.rows
    size = known_sum(part.info.bytes for part in parts) if table.bytes is None else table.bytes
    drafts: list[_Draft] = [((WholeTable(),), rows, size)]
    extents_only = bool(table.partitions) and not table.named_partitions
    costly_ranges = split == "auto" and extents_only and not table.row_ranges
    if split != "none" or partitions is not None:
        _check_split(table, parts, split)
        # For all partitions, since the ends of one are open only where it has no neighbour.
        ends = _open_ends(parts, table.label) if extents_only else [(True, True)] * len(parts)
        if not costly_ranges or partitions is not None:
            chosen = [
                (part, end)
                for part, end in zip(parts, ends, strict=True)
                if partitions is None or part.name in partitions
            ]
            together = costly_ranges or split == "none"
            counts, of_all = [1] * len(chosen), [part for part, _ in chosen]
            if not together and split != "partition" and table.row_ranges:
                counts = _pieces_of(of_all, measure(table, of_all), limits)
            if sum(counts) > max(MAX_CUT_UNITS, len(chosen)):
                raise PlanError(
                    f"To cut {table.label} would make {sum(counts)} units, more than "
                    f"{MAX_CUT_UNITS}.",
                    "give a larger --unit-bytes or a lower --parallelism.",
                )
            (whole,), drafts = drafts, []
            for (part, end), pieces in zip(chosen, counts, strict=True):
                info = part.info
                if pieces > 1 or (part.name is not None and not table.named_partitions):
                    drafts += _ranges(part, pieces, end)
                elif isinstance(info, PartitionInfo):
                    # An empty one is a unit like any other: its statistics may be stale.
                    named = NamedPartition(
                        partition=info.name, kind=info.kind, relation=info.relation
                    )
                    drafts.append(((named,), info.rows, info.bytes))
                else:
                    drafts.append(whole)
            if together:
                # One unit that reads the partitions in their order.
                read = tuple(selector for selectors, _, _ in drafts for selector in selectors)
                rows = known_sum(each for _, each, _ in drafts)
                drafts = [(read, rows, known_sum(each for _, _, each in drafts))]
    width = max(4, len(str(len(drafts))))
    units = tuple(
        WorkUnit(id=f"{ordinal:0{width}d}", selectors=selectors, rows=rows, bytes=size)
        for ordinal, (selectors, rows, size) in enumerate(drafts, start=1)
    )
    names = tuple(part.name for part in parts if part.name and part.name in (partitions or ()))
    return plan_of_units(table=table, partitions=names or None, units=units, limits=limits)


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

    Raises PlanError if the units read other partitions than those asked for.
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
    run = simulated(costs, [by_unit[at] for at in order], limits.parallelism)
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
    """Raise PlanError if a plan that was read has no units, or was changed after it was made."""
    plan.limits.check()
    problem = "it has no units"
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
        if not changed:
            return
        problem = f"it was edited after it was made: {changed[0]}"
    raise PlanError(f"The plan cannot be used: {problem}.", "make the plan again from the source.")


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of values; None if one of them is unknown."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


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
    advice, problem = "--split auto", ""
    if split == "partition" and not table.partitions:
        problem = "has no partitions to split by"
    elif split == "range" and not table.row_ranges:
        problem = (
            "cannot be read by ranges of row addresses or keys: each range would scan the whole "
            "table"
        )
    elif split == "range" and all(part.spread is None for part in parts):
        problem = "has neither known extents nor keys, so it cannot be cut into ranges"
    elif count > 1:
        problem = f"has two partitions named {name!r}, so rows could be duplicated"
        advice = "--split none, which reads the table as one unit"
    if problem:
        raise PlanError(f"{table.label} {problem}.", f"run with {advice}.")


def _ranges(part: Part, pieces: int, ends: _Ends) -> Iterator[_Draft]:
    """Yield a part with extents or keys as adjoining ranges of about equal weight, in order.

    The estimates of the pieces sum to the part's estimates. `pieces` is no more than the part has
    addresses, unless it is 1; where keys repeat there may be fewer. `ends` are the open ends.
    """
    info, spread = part.info, part.spread
    assert spread is not None, "only a part with extents or keys is cut"
    leaf = info if isinstance(info, PartitionInfo) else None
    kind, relation = (leaf.kind, leaf.relation) if leaf else ("partition", None)
    for piece, (start, stop) in enumerate(pairwise(cuts := spread.cuts(pieces))):
        opens, closes = ends[0] and piece == 0, not (ends[1] and piece == len(cuts) - 2)
        selector: Selector
        if isinstance(spread, Keys):
            selector = KeyRange(
                partition=part.name,
                kind=kind,
                relation=relation,
                column=spread.column,
                first=None if opens else spread.at(start),
                last=spread.at(stop) if closes else None,
            )
        else:
            selector = RowRange(
                partition=part.name,
                kind=kind,
                relation=relation,
                object_id=info.object_id,
                first=None if opens else spread.at(start),
                last=spread.at(stop) if closes else None,
            )
        rows, size = (
            total if not (total and spread.weight) else share(total, (start, stop), spread.weight)
            for total in (info.rows, info.bytes)
        )
        yield (selector,), rows, size


def _open_ends(parts: Sequence[Part], label: str) -> list[_Ends]:
    """Return the open ends of parts known by their extents alone, in the order given.

    The part at the lowest addresses is open at its start, the one at the highest at its end. An
    empty extent stays an empty range, which adjoins nothing and selects nothing, unless all are
    empty. Then the first part is open at both ends and has all rows that exist by now. PlanError
    names parts without exactly one extent, or that overlap or leave a gap: rows would be doubled or
    lost.
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
    ordered = sorted(filled, key=lambda at: extents[at].first) or [0]
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
    return [(at == ordered[0], at == ordered[-1]) for at in range(len(parts))]


def estimated_bytes(table: TableInfo) -> int:
    """Return the size of a table, by the best measure that its source knows."""
    costs = measure(table, parts_of(table))
    return costs.total * costs.bytes_each


def unit_bytes(sizes: Iterable[int], parallelism: int) -> int:
    """Return the size above which a part of any of several tables is cut.

    It is the size for one table as large as all of them together. So a table that is small among
    the others stays whole, and the last unit to end is late by a quarter of a share at most.
    """
    return max(MIN_UNIT_BYTES, -(-sum(sizes) // (UNITS_PER_WORKER * parallelism)))


def _pieces_of(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the number of pieces of each part.

    With `split` "range", or an explicit unit size, every part above the target size is cut.
    Otherwise these are the fewest pieces with which this number of workers finish together. Whole
    parts if they balance within 10 %, else with the largest cut at the first of `THRESHOLDS` that
    balances. If none does, that with the shortest makespan, and of equals the one that cuts least:
    where the largest part cannot be cut, cutting others gains nothing.

    More workers never finish later: pieces made for fewer are taken where they end sooner. (32 even
    parts cut for 25 workers are 128 pieces, six rounds; those cut for 24 are 96 larger ones, but
    four rounds.) Only beyond `MAX_TRIED` pieces that is not looked into.
    """
    smallest = max(1, MIN_UNIT_BYTES // costs.bytes_each)

    def cut(size: int, above: int = 1, below: int = 1) -> list[int]:
        """Cut parts larger than above/below sizes; those with unknown or no addresses stay."""
        return [
            max(1, min(-(-cost // size), part.spread.most_pieces))
            if part.spread is not None and cost * below > size * above
            else 1
            for part, cost in zip(parts, costs.of_part, strict=True)
        ]

    def time(counts: Sequence[int], parallelism: int) -> int:
        each: list[int] = []
        for part, cost, pieces in zip(parts, costs.of_part, counts, strict=True):
            if pieces == 1 or part.spread is None:
                each.append(cost)
            else:
                cuts = pairwise(part.spread.cuts(pieces))
                each += [share(cost, offsets, part.spread.weight) for offsets in cuts]
        return max(dealt(sorted(each, reverse=True), parallelism)[1])

    def target(parallelism: int) -> int:
        return max(smallest, -(-costs.total // (UNITS_PER_WORKER * parallelism)))

    if limits.unit_bytes is not None:
        return cut(max(1, limits.unit_bytes // costs.bytes_each))
    if limits.split == "range":
        return cut(target(limits.parallelism))
    uncut = [
        cost
        for part, cost in zip(parts, costs.of_part, strict=True)
        if part.spread is None or part.spread.most_pieces <= 1
    ]
    is_table = len(parts) == 1 and parts[0].name is None
    tried: list[tuple[int, list[int], int]] = []
    amount = 0
    # The planner makes no more pieces than these, and workers beyond them would have none.
    for parallelism in range(min(limits.parallelism, sum(cut(smallest))), 0, -1):
        best = cut(target(parallelism)) if is_table and parallelism > 1 else [1] * len(parts)
        shortest = time(best, parallelism)
        for above, below in () if is_table and parallelism > 1 else THRESHOLDS:
            if shortest * parallelism * WELL_BALANCED[1] <= costs.total * WELL_BALANCED[0]:
                break
            counts = cut(target(parallelism), above, below)
            if (shorter := time(counts, parallelism)) < shortest:
                best, shortest = counts, shorter
        tried.append((parallelism, best, shortest))
        amount += sum(best)
        # Fewer workers cannot do with less than a fair share, or the largest part that stays whole.
        least = max(-(-costs.total // max(1, parallelism - 1)), max(uncut, default=0))
        if shortest <= least or amount > MAX_TRIED:
            break
    _, best, _ = tried.pop()
    for parallelism, counts, shortest in reversed(tried):
        if shortest <= time(best, parallelism):
            best = counts
    return best


def sampled_plan(
    table: TableInfo, limits: PlanLimits, share: float, partitions: Collection[str] | None = None
) -> Plan:
    """Return a plan with some of the units of the table, or of some partitions, but at least one.

    They cost no more than their share, and are evenly spread in the order of the table. Unless the
    limits name a size, units are small enough for several of them to be taken. Raises PlanError as
    `plan`, or if the table can only be read in one go and may be large.
    """
    if not 0 < share < 1:
        raise PlanError(
            f"A sample cannot have {share:.0%} of the table.", "give a share above 0 and below 1."
        )
    size = estimated_bytes(table)
    if limits.unit_bytes is None:
        # The sample has enough units to keep all workers busy.
        wanted = max(LEAST_UNITS, UNITS_PER_WORKER * limits.parallelism)
        each_bytes = max(LEAST_UNIT_BYTES, int(size * share / wanted), -(-size // MOST_UNITS))
        limits = replace(limits, unit_bytes=each_bytes)
    whole = plan(table, limits, partitions)
    if len(whole.units) == 1:
        # All of a table is taken for a sample only if the table is known to be small.
        infos = [part.info for part in parts_of(table)]
        known = any(info.bytes is not None or info.rows is not None for info in infos)
        small = known and size <= (limits.unit_bytes or LEAST_UNIT_BYTES)
        empty = table.rows == 0 or table.bytes == 0
        if not (small or empty or (table.row_ranges and limits.split != "none")):
            raise PlanError(
                f"{table.label} is read as one work unit, so a sample of its units would be the "
                "whole table.",
                "sample by the values of a column: --sample-by COLUMN.",
            )
    _, each = unit_costs(table, whole.units)
    # A unit reported as empty counts as an average one: estimates may be wrong.
    average = max(1, sum(each) // max(1, len(each)))
    in_order = sorted(zip(whole.units, each, strict=True), key=lambda unit: unit[0].id)
    owed, chosen = 0.0, []
    for unit, cost in in_order:
        weight = cost or average
        owed += share * weight
        # The rest of what a unit owes to the sample is carried on to the next unit.
        if 2 * owed >= weight:
            chosen.append((unit, cost))
            owed -= weight
    chosen = chosen or [min(in_order, key=lambda unit: (unit[1] or average, unit[0].id))]
    taken = sum(cost for _, cost in chosen)
    return plan_of_units(
        table=table,
        partitions=whole.partitions,
        units=tuple(unit for unit, _ in chosen),
        limits=limits,
        sampled=SampledUnits(
            share=share,
            of_units=len(whole.units),
            cost_share=taken / sum(each) if sum(each) else 1.0,
        ),
    )


def plan_part(plan: Plan, number: int, of: int) -> Plan | None:
    """Return the plan of one part; None if it has no unit, as there are more parts than units.

    Each machine finds its part from the plan alone. Every unit is in one part, and the parts are of
    about the same cost. The first parts have units, and the last may have none.
    """
    if not 1 <= number <= of:
        raise PlanError(f"Part {number} of {of} does not exist.", f"give a part from 1/{of} on.")
    if plan.part is not None:
        raise PlanError(
            f"The plan is already part {plan.part.number} of {plan.part.of}.",
            "divide the plan of the whole table.",
        )
    owners = shares(plan, of)
    mine = tuple(unit for unit in plan.units if owners[unit.id] == number - 1)
    if not mine:
        return None
    return plan_of_units(
        table=plan.table,
        partitions=plan.partitions,
        units=mine,
        limits=plan.limits,
        sampled=plan.sampled,
        part=PlanPart(number=number, of=of, of_units=len(plan.units), plan_digest=plan.digest),
    )
