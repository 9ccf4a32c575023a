"""Tables in, work units out.

The promise: every row of the table belongs to exactly one unit, even with wrong estimates. Same
table and limits, same plan, to the last bit.

Ranges of keys.

Every key belongs to exactly one range under any order that agrees with the sample's: ranges adjoin,
the outermost are open, and no boundary occurs twice.

Ranges of row addresses.

Every address belongs to exactly one range, those outside the extents and between them included:
extents come from statistics that may be stale, or are a sample, so the outermost ranges are open
and only inner boundaries are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from partition_planner import cutting
from partition_planner.costs import measure
from partition_planner.errors import PlanError
from partition_planner.model import Plan, PlanLimits, TableInfo, WorkUnit
from partition_planner.parts import Draft, Part, estimate, parts_of, total
from partition_planner.spreads import Addresses, Keys
from partition_planner.table import RowExtent
from partition_planner.work import KeyRange, NamedPartition, RowRange, WholeTable

MAX_CUT_UNITS = 1_000_000
"""Cutting stops with an error above it: such a plan is a mistyped size, not a wish."""


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
        WorkUnit(
            id=f"{ordinal:0{width}d}",
            selectors=draft.selectors,
            rows=draft.rows,
            bytes=draft.bytes,
        )
        for ordinal, draft in enumerate(drafts, start=1)
    )
    chosen = tuple(part.name for part in parts if part.name and part.name in (partitions or ()))
    return Plan.of(table=table, partitions=chosen or None, units=units, limits=limits)


def _drafts(
    table: TableInfo,
    parts: tuple[Part, ...],
    limits: PlanLimits,
    partitions: Collection[str] | None,
) -> Iterator[Draft]:
    for part in parts:
        for kind, value in (("rows", part.rows), ("bytes", part.bytes)):
            if value is not None and value < 0:
                where = "" if part.name is None else f" in partition {part.name!r}"
                raise PlanError(
                    f"The statistics of {table.label} give {value} {kind}{where}.",
                    "renew the statistics of the table; unknown values must be None.",
                )
    if limits.split == "none" and partitions is None:
        yield _whole_table(table, parts)
        return
    extents_only = bool(table.partitions) and not table.named_partitions
    _check_split(table, parts, limits.split)
    # For all partitions, since the ends of one are open only where it has no neighbour.
    ends = open_ends(parts, table.label) if extents_only else [BOTH_OPEN] * len(parts)
    costly_ranges = limits.split == "auto" and extents_only and not table.row_ranges
    if costly_ranges and partitions is None:
        yield _whole_table(table, parts)
        return
    chosen = [
        (part, end)
        for part, end in zip(parts, ends, strict=True)
        if partitions is None or part.name in partitions
    ]
    if costly_ranges or limits.split == "none":
        # One unit that reads the partitions in their order.
        drafts = [draft for part, end in chosen for draft in _read(table, part, 1, end)]
        yield Draft(
            selectors=tuple(selector for draft in drafts for selector in draft.selectors),
            rows=total(draft.rows for draft in drafts),
            bytes=total(draft.bytes for draft in drafts),
        )
        return
    counts = [1] * len(chosen)
    if limits.split != "partition" and table.row_ranges:
        cut_parts = [part for part, _ in chosen]
        decide = cutting.to_size if limits.split == "range" else cutting.to_balance
        counts = decide(cut_parts, measure(table, cut_parts), limits)
        if sum(counts) > max(MAX_CUT_UNITS, len(chosen)):
            raise PlanError(
                f"To cut {table.label} would make {sum(counts)} units, more than {MAX_CUT_UNITS}.",
                "give a larger --unit-bytes or a lower --parallelism.",
            )
    for (part, end), pieces in zip(chosen, counts, strict=True):
        yield from _read(table, part, pieces, end)


def _read(table: TableInfo, part: Part, pieces: int, ends: OpenEnds) -> Iterator[Draft]:
    if pieces > 1 and isinstance(part.spread, Keys):
        yield from cut_keys(part, pieces)
    elif pieces > 1 or (part.name is not None and not table.named_partitions):
        yield from cut(part, pieces, ends)
    elif part.name is None:
        yield _whole_table(table, (part,))
    else:
        # An empty partition is a unit like any other: its statistics may be stale.
        selector = NamedPartition(partition=part.name, kind=part.kind, relation=part.relation)
        yield Draft(selectors=(selector,), rows=part.rows, bytes=part.bytes)


def _whole_table(table: TableInfo, parts: Sequence[Part]) -> Draft:
    """Return the one unit that reads every row of the table.

    Its estimates are the table's own, or else the sum of the parts' where every part has one.
    """
    rows, size = table.rows, table.bytes
    return Draft(
        selectors=(WholeTable(),),
        rows=total(part.rows for part in parts) if rows is None else rows,
        bytes=total(part.bytes for part in parts) if size is None else size,
    )


def _check_split(table: TableInfo, parts: Sequence[Part], split: str) -> None:
    for part in parts:
        extents = part.spread.extents if isinstance(part.spread, Addresses) else ()
        for lower, upper in pairwise(extents):
            if upper.first < lower.last or not (lower.addresses and upper.addresses):
                where = "" if part.name is None else f" of partition {part.name!r}"
                raise PlanError(
                    f"The extents [{lower.first}, {lower.last}) and [{upper.first}, {upper.last})"
                    f"{where} of {table.label} are empty or out of order, so their sums mean "
                    "nothing.",
                    "run with --split none; the source must coalesce its extents.",
                )
    if split == "partition" and not table.partitions:
        raise PlanError(f"{table.label} has no partitions to split by.", "run with --split auto.")
    if split == "range" and not table.row_ranges:
        raise PlanError(
            f"{table.label} cannot be read by ranges of row addresses or keys: each range would "
            "scan the whole table.",
            "run with --split auto.",
        )
    if split == "range" and all(part.spread is None for part in parts):
        raise PlanError(
            f"{table.label} has neither known extents nor keys, so it cannot be cut into ranges.",
            "run with --split auto.",
        )
    name, count = Counter(part.name for part in parts).most_common(1)[0]
    if count > 1:
        raise PlanError(
            f"{table.label} has two partitions named {name!r}, so rows could be duplicated.",
            "run with --split none, which reads the table as one unit.",
        )


def cut_keys(part: Part, pieces: int) -> Iterator[Draft]:
    """Yield the part as adjoining ranges of about equally many sampled keys, in order.

    The estimates of the pieces sum to the part's estimates. Where keys repeat there may be fewer
    pieces.
    """
    assert isinstance(part.spread, Keys), "only a part with keys is cut by them"
    spread = part.spread
    for start, stop in pairwise(spread.cuts(pieces)):
        yield Draft(
            selectors=(
                KeyRange(
                    partition=part.name,
                    kind=part.kind,
                    relation=part.relation,
                    column=spread.column,
                    first=None if start == 0 else spread.at(start),
                    last=None if stop == spread.weight else spread.at(stop),
                ),
            ),
            rows=estimate(part.rows, (start, stop), spread.weight),
            bytes=estimate(part.bytes, (start, stop), spread.weight),
        )


class OpenEnds(NamedTuple):
    """Which ends of a part are open; an end that is not open adjoins another part."""

    first: bool
    last: bool


BOTH_OPEN = OpenEnds(first=True, last=True)


def cut(part: Part, pieces: int, ends: OpenEnds) -> Iterator[Draft]:
    """Yield the part as adjoining ranges of equally many known addresses, give or take one.

    They come in order. Addresses between two extents belong to the piece in which the lower extent
    ends. The estimates of the pieces sum to the part's estimates.

    Args:
        part: A part with extents.
        pieces: At least 1, and no more than the part has addresses unless it is 1.
        ends: Which of the part's ends are open.
    """
    assert isinstance(part.spread, Addresses), "only a part with extents is cut into addresses"
    spread = part.spread
    for piece, (start, stop) in enumerate(pairwise(spread.cuts(pieces))):
        opens = ends.first and piece == 0
        closes = not (ends.last and piece == pieces - 1)
        yield Draft(
            selectors=(
                RowRange(
                    partition=part.name,
                    kind=part.kind,
                    relation=part.relation,
                    object_id=part.object_id,
                    first=None if opens else spread.at(start),
                    last=spread.at(stop) if closes else None,
                ),
            ),
            rows=estimate(part.rows, (start, stop), spread.weight),
            bytes=estimate(part.bytes, (start, stop), spread.weight),
        )


def open_ends(parts: Sequence[Part], label: str) -> list[OpenEnds]:
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
    return [OpenEnds(first=at == lowest, last=at == highest) for at in range(len(parts))]
