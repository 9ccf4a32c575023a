"""How a sweep runs its points: where it writes, in which order, and which units it samples."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from unloader.tuning.live_sweep import evenly, places, rounds


def test_what_a_sweep_has_made_is_removed(tmp_path: Path) -> None:
    """Its directories are removed, the ones that were there stay."""
    (tmp_path / "there").mkdir()
    with places((str(tmp_path / "there"), str(tmp_path / "new" / "one")), "id"):
        assert (tmp_path / "new" / "one" / "_sweep-id").is_dir()
    assert [each.name for each in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("points", [1, 2, 3, 10])
def test_each_round_has_every_point_once(points: int) -> None:
    """No point comes again before all others, and none twice in a row if there are others."""
    found = list(rounds(points, 20, seed=7))
    assert all(sorted(order) == list(range(points)) for order in found)
    flat = [at for order in found for at in order]
    assert Counter(flat) == dict.fromkeys(range(points), 20)
    if points > 1:
        assert all(one != other for one, other in itertools.pairwise(flat))


@pytest.mark.parametrize(("count", "number"), [(100, 5), (7, 7), (10, 3), (1, 1)])
def test_units_are_at_equal_distances(count: int, number: int) -> None:
    """Each comes once, and no part of the table is left out."""
    chosen = evenly(range(count), number)
    assert len(set(chosen)) == number
    gaps = [later - earlier for earlier, later in itertools.pairwise(chosen)]
    assert all(abs(gap - count / number) <= 1 for gap in gaps)
    assert chosen[0] <= count / number
    assert chosen[-1] >= count - count / number - 1
