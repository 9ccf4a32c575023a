"""Ranges of row addresses.

Every address belongs to exactly one range, those outside the extents and between them included:
extents come from statistics that may be stale, or are a sample, so the outermost ranges are open
and only inner boundaries are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from partition_planner.errors import PlanError
from partition_planner.parts import Draft, Part, estimate
from partition_planner.spreads import Addresses
from partition_planner.table import RowExtent
from partition_planner.work import RowRange


class OpenEnds(NamedTuple):
    """Which ends of a part are open; an end that is not open adjoins another part."""

    first: bool
    last: bool


BOTH_OPEN = OpenEnds(first=True, last=True)


def cut(part: Part, pieces: int, ends: OpenEnds) -> Iterator[Draft]:
    """Yield the part as adjoining ranges of equally many known addresses, give or take one.

    They come in order. Addresses between two extents belong to the piece in which the lower extent
    ends. The estimates of the pieces sum to those of the part.

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
    """Return which ends of parts that are nothing but their extents are open, in the order given.

    The part at the lowest addresses is open at its start, the one at the highest at its end. An
    empty extent stays an empty range, which adjoins nothing and selects nothing, unless all are
    empty: then the first part is open at both ends and has whatever rows there are by now.

    Args:
        parts: Partitions that cannot be selected by name.
        label: The table's name, for messages.

    Raises:
        PlanError: A part has no extent, or more than one, or two neighbours overlap or leave a gap,
            so that rows would be doubled or lost. The message names them.
    """
    extents = [_only_extent(part, label) for part in parts]
    filled = [at for at, extent in enumerate(extents) if extent.addresses]
    ordered = sorted(filled, key=lambda at: extents[at].first)
    for lower, upper in pairwise(ordered):
        problem = _problem(extents[lower], extents[upper])
        if problem:
            raise PlanError(
                f"Partitions {parts[lower].name!r} and {parts[upper].name!r} of {label} {problem}.",
                "run with --split none, which reads the table as one unit.",
            )
    lowest, highest = (ordered[0], ordered[-1]) if ordered else (0, 0)
    return [OpenEnds(first=at == lowest, last=at == highest) for at in range(len(parts))]


def _only_extent(part: Part, label: str) -> RowExtent:
    extents = part.spread.extents if isinstance(part.spread, Addresses) else ()
    if len(extents) == 1:
        return extents[0]
    found = f"has {len(extents)} extents instead of one" if extents else "has no known extent"
    raise PlanError(
        f"Partition {part.name!r} of {label} has no name for a SELECT, and it {found}.",
        "run with --split none, which makes the table one unit.",
    )


def _problem(lower: RowExtent, upper: RowExtent) -> str | None:
    """Return what is wrong between two neighbours, or None if they adjoin."""
    if lower.last < upper.first:
        return f"leave out the addresses [{lower.last}, {upper.first}), so rows could be lost"
    if lower.last > upper.first:
        shared = min(lower.last, upper.last)
        return f"share the addresses [{upper.first}, {shared}), so rows would be duplicated"
    return None
