"""The order of a sweep's measurements."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from unloader.sweep.running.order import rounds


@pytest.mark.parametrize("points", [1, 2, 3, 10])
def test_each_round_has_every_point_once(points: int) -> None:
    """No point comes again before all others, and none twice in a row if there are others."""
    found = list(rounds(points, 20, seed=7))
    assert all(sorted(order) == list(range(points)) for order in found)
    flat = [at for order in found for at in order]
    assert Counter(flat) == dict.fromkeys(range(points), 20)
    if points > 1:
        assert all(one != other for one, other in itertools.pairwise(flat))


def test_the_seed_decides_the_order() -> None:
    """The same seed gives the same order, another one another."""
    assert list(rounds(10, 3, seed=1)) == list(rounds(10, 3, seed=1))
    assert list(rounds(10, 3, seed=1)) != list(rounds(10, 3, seed=2))
