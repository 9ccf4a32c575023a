"""Seats of a run on machines of several shapes, and what the user hears about them."""

from __future__ import annotations

import pytest

from numa.errors import PlacementError
from numa.model import Node, Topology
from unloader.errors import ConfigError
from unloader.model import SeatOptions
from unloader.seating import machine, seat_workers


def topology(nodes: int, cpus: int = 4, note: str | None = None) -> Topology:
    """Return a machine of equal nodes."""
    return Topology(
        nodes=tuple(
            Node(id=at, cpus=tuple(range(at * cpus, (at + 1) * cpus)), memory_bytes=1 << 30)
            for at in range(nodes)
        ),
        cpu_quota=None,
        note=note,
    )


def test_workers_are_spread_evenly_over_the_nodes() -> None:
    """Six workers on two nodes are three on each, and the same seats every time."""
    seating = seat_workers(topology(2), 6, SeatOptions())
    assert [seat.node for seat in seating.seats] == [0, 1, 0, 1, 0, 1]
    assert [seat.worker for seat in seating.seats] == list(range(6))
    assert all(seat.memory_node == seat.node for seat in seating.seats)
    assert seating.memory_policy == "preferred"
    assert seating == seat_workers(topology(2), 6, SeatOptions())


def test_fewer_workers_sit_on_the_first_seats_of_more() -> None:
    """A process started before the plan stands keeps its seat when the plan wants fewer."""
    many, few = (seat_workers(topology(4), count, SeatOptions()).seats for count in (16, 3))
    assert many[:3] == few


def test_options_are_passed_on() -> None:
    """Nodes, placement, binding and memory policy are those asked for."""
    options = SeatOptions(nodes=(1,), placement="close", bind="core", memory_policy="interleave")
    seating = seat_workers(topology(2), 2, options)
    assert [(seat.node, seat.cpus) for seat in seating.seats] == [(1, (4,)), (1, (5,))]
    assert seating.memory_policy == "interleave"


def test_off_binds_nothing_and_says_nothing() -> None:
    """With --numa off no worker is bound, whatever else is asked for, and no line is lost on it."""
    options = SeatOptions(numa="off", bind="core", memory_policy="bind")
    seating = seat_workers(topology(1, note="no /sys here"), 3, options)
    assert all(seat.cpus == () and seat.memory_node is None for seat in seating.seats)
    assert (seating.memory_policy, seating.notice) == ("local", None)


def test_a_machine_of_less_than_was_asked_for_is_told_once() -> None:
    """With --numa auto a machine without NUMA is used as it is, with one line about it."""
    seating = seat_workers(topology(1, note="no NUMA here"), 2, SeatOptions())
    assert seating.notice is not None
    assert "no NUMA here" in seating.notice
    assert "\n" not in seating.notice


@pytest.mark.parametrize("shape", [topology(1), topology(2, note="CPUs of one node only")])
def test_require_refuses_a_machine_that_cannot_give_it(shape: Topology) -> None:
    """With --numa require one node, or less than the whole truth, is a configuration error."""
    with pytest.raises(ConfigError, match=r"--numa require cannot be met.*--numa auto"):
        seat_workers(shape, 2, SeatOptions(numa="require"))


def test_a_node_that_is_not_there_is_named() -> None:
    """--numa-nodes with an unknown node names it and those there are."""
    with pytest.raises(PlacementError, match=r"node 9 is not there.*0, 1"):
        seat_workers(topology(2), 2, SeatOptions(nodes=(0, 9)))


def test_this_machine_has_a_seat() -> None:
    """The machine the tests run on can seat a worker on CPUs it may use."""
    here = machine()
    (seat,) = seat_workers(here, 1, SeatOptions()).seats
    assert set(seat.cpus) <= {cpu for node in here.nodes for cpu in node.cpus}
