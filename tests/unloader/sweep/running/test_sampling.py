"""The units that a sample has."""

from __future__ import annotations

import itertools

import pytest

from unloader.sweep.running.sampling import evenly


@pytest.mark.parametrize(("count", "number"), [(100, 5), (7, 7), (10, 3), (1, 1)])
def test_units_are_at_equal_distances(count: int, number: int) -> None:
    """Each comes once, and no part of the table is left out."""
    chosen = evenly(range(count), number)
    assert len(set(chosen)) == number
    gaps = [later - earlier for earlier, later in itertools.pairwise(chosen)]
    assert all(abs(gap - count / number) <= 1 for gap in gaps)
    assert chosen[0] <= count / number
    assert chosen[-1] >= count - count / number - 1
