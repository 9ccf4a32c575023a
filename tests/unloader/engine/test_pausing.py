"""Which attempts are held up under a limit, and which go on."""

from __future__ import annotations

from collections.abc import Callable

from unloader.engine.steering import Concurrency


def decider(*, urgent: bool = True) -> Callable[[list[int], int, float], dict[int, bool]]:
    """Return what decides about running places, from how many may work and the time."""
    held = set[int]()
    control = Concurrency(most=4, wanted=4 if urgent else None, began=0.0, first=1)

    def decide(running: list[int], allowed: int, now: float) -> dict[int, bool]:
        if urgent:
            control.ask(allowed, now, "a user")
        return control.pauses(running, held, now)

    return decide


def test_units_that_end_make_room_first() -> None:
    """Workers are held up after two seconds, and only if too few units have ended by then."""
    decide = decider()
    assert decide([0, 1, 2, 3], 2, 10.0) == {}
    assert decide([0, 1, 2, 3], 2, 11.9) == {}
    assert decide([0, 2], 2, 12.5) == {}
    assert decide([0, 1, 2], 2, 13.0) == {}


def test_the_highest_places_are_held_up_and_the_lowest_go_on_first() -> None:
    """So the remaining seats are the same as with a lower parallelism."""
    decide = decider()
    decide([0, 1, 2, 3], 1, 0.0)
    assert decide([0, 1, 2, 3], 1, 2.0) == {1: True, 2: True, 3: True}
    assert decide([0, 1, 2, 3], 1, 3.0) == {}
    assert decide([0, 1, 2, 3], 3, 4.0) == {1: False, 2: False}
    assert decide([0, 1, 2, 3], 4, 5.0) == {3: False}


def test_what_is_begun_goes_on_when_another_has_ended() -> None:
    """Also while the limit holds: a session must not wait for an hour."""
    decide = decider()
    decide([0, 1], 1, 0.0)
    assert decide([0, 1], 1, 2.0) == {1: True}
    assert decide([1], 1, 3.0) == {1: False}


def test_a_search_holds_nobody_up() -> None:
    """Workers that it takes away end their units."""
    decide = decider(urgent=False)
    for now in (0.0, 100.0):
        assert decide([0, 1, 2], 1, now) == {}
