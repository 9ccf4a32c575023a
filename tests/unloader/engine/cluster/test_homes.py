"""Which Dask worker gets which places and seats."""

from __future__ import annotations

from itertools import chain

from unloader.engine.cluster.agent import Home, shared, vacant_for


def home(address: str, machine: str, threads: int) -> Home:
    """Return a Dask worker on a machine."""
    return Home(address=address, host=machine, machine=machine, threads=threads)


HOMES = (home("a1", "a", 2), home("a2", "a", 1), home("b1", "b", 4))


def test_few_places_are_shared_out_over_machines_first() -> None:
    """Each machine has as many as any other, until it has no more threads."""
    assert shared(HOMES, 2) == {"a1": ((0, 0),), "b1": ((1, 0),)}
    found = shared(HOMES, 7)
    assert {address: len(each) for address, each in found.items()} == {"a1": 2, "a2": 1, "b1": 4}
    assert sorted(place for place, _ in chain(*found.values())) == list(range(7))


def test_no_two_of_a_machine_have_one_seat() -> None:
    """The seats of a machine are numbered over all of its Dask workers."""
    found = shared(HOMES, 7)
    assert sorted(seat for _, seat in (*found["a1"], *found["a2"])) == [0, 1, 2]
    assert [seat for _, seat in found["b1"]] == [0, 1, 2, 3]


def test_one_that_has_come_takes_vacant_places_of_its_machine_first() -> None:
    """It takes vacant seats of its machine, and not more than it has threads."""
    vacant = {2: "b", 5: "a", 3: "a", 0: "b"}
    assert vacant_for(home("a3", "a", 3), vacant, {0, 2}) == ((0, 4), (3, 1), (5, 3))
    assert vacant_for(home("c1", "c", 1), vacant, set()) == ((0, 0),)
    assert vacant_for(home("c1", "c", 9), {}, set()) == ()
