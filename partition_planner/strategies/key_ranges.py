"""Ranges of keys.

Every key belongs to exactly one range under any order that agrees with the sample's: ranges adjoin,
the outermost are open, and no boundary occurs twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from partition_planner.parts import Draft, Part, estimate
from partition_planner.spreads import Keys
from partition_planner.work import KeyRange


def cut_keys(part: Part, pieces: int) -> Iterator[Draft]:
    """Yield the part as adjoining ranges of about equally many sampled keys, in order.

    The estimates of the pieces sum to those of the part. Where keys repeat there may be fewer
    pieces.

    Args:
        part: A part with keys.
        pieces: At least 1.
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
