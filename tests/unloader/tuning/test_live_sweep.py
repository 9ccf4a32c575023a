"""How a sweep runs its points: where it writes, in which order, and which units it samples."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from unloader.errors import OutputFailed
from unloader.tuning.live_sweep import evenly, places, rounds


@pytest.mark.parametrize(("below", "text"), [("", "is not a directory"), ("x", "cannot create")])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str, text: str) -> None:
    """A destination that is a file, or below one, is an error that names it, and it stays."""
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    with pytest.raises(OutputFailed, match=text) as caught, places((str(file / below),), "id"):
        pass
    assert str(file) in caught.value.message
    assert file.read_text() == "mine"


def test_what_a_sweep_has_made_is_removed(tmp_path: Path) -> None:
    """Directories of its own go again, those that were there stay."""
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


def test_the_seed_decides_the_order() -> None:
    """The same seed gives the same order, another one another."""
    assert list(rounds(10, 3, seed=1)) == list(rounds(10, 3, seed=1))
    assert list(rounds(10, 3, seed=1)) != list(rounds(10, 3, seed=2))


@pytest.mark.parametrize(("count", "number"), [(100, 5), (7, 7), (10, 3), (1, 1)])
def test_units_are_at_equal_distances(count: int, number: int) -> None:
    """Each comes once, and no part of the table is left out."""
    chosen = evenly(range(count), number)
    assert len(set(chosen)) == number
    gaps = [later - earlier for earlier, later in itertools.pairwise(chosen)]
    assert all(abs(gap - count / number) <= 1 for gap in gaps)
    assert chosen[0] <= count / number
    assert chosen[-1] >= count - count / number - 1
