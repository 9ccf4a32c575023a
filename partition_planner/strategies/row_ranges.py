"""Ranges of row addresses.

Every address belongs to exactly one range, those outside the extent included: extents come from
statistics that may be stale, so the outermost ranges are open and only inner boundaries are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from partition_planner.errors import PlanError
from partition_planner.parts import Draft, Part, share
from partition_planner.table import RowExtent
from partition_planner.work import RowRange


class OpenEnds(NamedTuple):
    """Which ends of a part are open; an end that is not open adjoins another part."""

    first: bool
    last: bool


BOTH_OPEN = OpenEnds(first=True, last=True)


def cut(part: Part, pieces: int, ends: OpenEnds) -> Iterator[Draft]:
    """Yield the part as adjoining ranges of equally many addresses, give or take one, in order.

    The estimates of the pieces sum to those of the part.

    Args:
        part: A part with an extent.
        pieces: At least 1, and no more than the part has addresses unless it is 1.
        ends: Which of the part's ends are open.
    """
    assert part.extent is not None, "only a part with an extent is cut"
    start, length = part.extent.first, part.extent.addresses
    for piece in range(pieces):
        offsets = (length * piece // pieces, length * (piece + 1) // pieces)
        opens = ends.first and piece == 0
        closes = not (ends.last and piece == pieces - 1)
        yield Draft(
            partition=part.name,
            selector=RowRange(
                partition=part.name,
                relation=part.relation,
                first=None if opens else start + offsets[0],
                last=start + offsets[1] if closes else None,
            ),
            rows=_estimate(part.rows, offsets, length),
            bytes=_estimate(part.bytes, offsets, length),
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
        PlanError: A part has no extent, or two neighbours overlap or leave a gap, so that rows
            would be doubled or lost. The message names them.
    """
    for part in parts:
        if part.extent is None:
            raise PlanError(
                f"Partition {part.name!r} of {label} has neither a name the database can select by "
                "nor a known extent. Next: run with --split none, which makes the table one unit."
            )
    filled = [at for at, part in enumerate(parts) if part.addresses]
    ordered = sorted(filled, key=lambda at: _extent(parts[at]).first)
    for lower, upper in pairwise(ordered):
        _check_adjoining(parts[lower], parts[upper], label)
    lowest, highest = (ordered[0], ordered[-1]) if ordered else (0, 0)
    return [OpenEnds(first=at == lowest, last=at == highest) for at in range(len(parts))]


def _check_adjoining(lower: Part, upper: Part, label: str) -> None:
    end, start = _extent(lower).last, _extent(upper).first
    if end == start:
        return
    if end < start:
        what = f"leave out the addresses [{end}, {start}), so rows could be lost"
    else:
        shared = min(end, _extent(upper).last)
        what = f"share the addresses [{start}, {shared}), so rows would be doubled"
    raise PlanError(
        f"Partitions {lower.name!r} and {upper.name!r} of {label} {what}. "
        "Next: run with --split none, which reads the table as one unit."
    )


def _extent(part: Part) -> RowExtent:
    assert part.extent is not None, "checked by open_ends"
    return part.extent


def _estimate(total: int | None, offsets: tuple[int, int], length: int) -> int | None:
    if total is None or length == 0:
        return total
    return share(total, offsets, length)
