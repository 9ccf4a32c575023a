"""The order in which points are measured, so that what changes over time hits all points alike."""

from __future__ import annotations

import random
from collections.abc import Iterator


def rounds(points: int, repeats: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield rounds in which each point comes once, each round in another order.

    The same seed gives the same order. A point does not come twice in a row if there are others.

    Args:
        points: How many there are.
        repeats: Number of rounds.
        seed: Decides the order.
    """
    shuffler = random.Random(seed)
    last = -1
    for _ in range(repeats):
        order = list(range(points))
        shuffler.shuffle(order)
        if points > 1 and order[0] == last:
            order.append(order.pop(0))
        last = order[-1]
        yield tuple(order)
