"""Which attempts are held up under a limit, and which go on."""

from __future__ import annotations

from unloader.engine.steering import Orders, Pauses


def test_units_that_end_make_room_first() -> None:
    """Workers are held up after two seconds, and only if too few units have ended by then."""
    pauses = Pauses()
    assert pauses.orders([0, 1, 2, 3], 2, 10.0, urgent=True) == Orders()
    assert pauses.orders([0, 1, 2, 3], 2, 11.9, urgent=True) == Orders()
    assert pauses.orders([0, 2], 2, 12.5, urgent=True) == Orders()
    assert pauses.orders([0, 1, 2], 2, 13.0, urgent=True) == Orders()


def test_the_highest_places_are_held_up_and_the_lowest_go_on_first() -> None:
    """So the remaining seats are the same as with a lower parallelism."""
    pauses = Pauses()
    pauses.orders([0, 1, 2, 3], 1, 0.0, urgent=True)
    assert pauses.orders([0, 1, 2, 3], 1, 2.0, urgent=True) == Orders(pause=(1, 2, 3))
    assert pauses.orders([0, 1, 2, 3], 1, 3.0, urgent=True) == Orders()
    assert pauses.orders([0, 1, 2, 3], 3, 4.0, urgent=True) == Orders(resume=(1, 2))
    assert pauses.held == {3}


def test_what_is_begun_goes_on_when_another_has_ended() -> None:
    """Also while the limit holds: a session must not wait for an hour."""
    pauses = Pauses()
    pauses.orders([0, 1], 1, 0.0, urgent=True)
    assert pauses.orders([0, 1], 1, 2.0, urgent=True) == Orders(pause=(1,))
    assert pauses.orders([1], 1, 3.0, urgent=True) == Orders(resume=(1,))


def test_a_search_holds_nobody_up() -> None:
    """Workers that it takes away end their units."""
    pauses = Pauses()
    for now in (0.0, 100.0):
        assert pauses.orders([0, 1, 2], 1, now, urgent=False) == Orders()


def test_an_attempt_that_is_lost_is_held_up_no_more() -> None:
    """The next one at its place is another one."""
    pauses = Pauses()
    pauses.orders([0, 1], 1, 0.0, urgent=True)
    pauses.orders([0, 1], 1, 2.0, urgent=True)
    pauses.ended(1)
    assert pauses.orders([0, 1], 2, 3.0, urgent=True) == Orders()
