"""A node of three CPUs, one of one CPU without memory, one of memory alone; they differ in distance."""

from __future__ import annotations

import pytest
from vm_checks import UNITS, Place, check_finished, check_local, check_policy, check_seats
from vm_machine import Ended, GuestNode, Machine, Scenario

MACHINE = Machine(
    cpus="4,sockets=2,cores=2,threads=1",
    nodes=(
        GuestNode(cpus="0-2", mebibytes=1024),
        GuestNode(cpus="3", mebibytes=0),
        GuestNode(cpus=None, mebibytes=1024),
    ),
    distances=((0, 1, 21), (0, 2, 31), (1, 2, 15)),
)
SCENARIOS = (
    Scenario(name="four", options=("--parallelism", "4", *UNITS)),
    Scenario(
        name="forbidden",
        options=("--parallelism", "2", "--memory-policy", "bind", *UNITS),
        cgroup={"cpuset.cpus": "0-3", "cpuset.mems": "0"},
    ),
)
LARGE = Place(node=0, cpus="0-2", memory_node=0)
SMALL = Place(node=1, cpus="3", memory_node=2)
PLACES = {
    "four": (LARGE, SMALL, LARGE, LARGE),
    "forbidden": (LARGE, Place(node=1, cpus="3", memory_node=0)),
}
every_scenario = pytest.mark.parametrize("name", list(PLACES))


@every_scenario
def test_the_files_are_those_of_the_host(
    runs: dict[str, Ended], expected: dict[str, bytes], name: str
) -> None:
    """A run on uneven nodes writes the bytes that it writes on one."""
    check_finished(runs[name], expected)


@every_scenario
def test_seats(runs: dict[str, Ended], name: str) -> None:
    """The larger node gets the more workers, by its CPUs; no worker sits on a node without CPUs."""
    check_seats(runs[name], PLACES[name])


@every_scenario
def test_memory_is_on_the_nearest_node_that_has_some(runs: dict[str, Ended], name: str) -> None:
    """A worker on a node without memory has 95 % of it on the nearest one that it may use."""
    check_local(runs[name], PLACES[name])


@every_scenario
def test_memory_policy(runs: dict[str, Ended], name: str) -> None:
    """The policy, also a hard one, names the node that the memory is to come from."""
    check_policy(runs[name], PLACES[name], "bind" if name == "forbidden" else "preferred")


def test_borrowed_memory_is_told(runs: dict[str, Ended]) -> None:
    """The user reads which node's workers take memory from elsewhere, and the true reason."""
    borrowed = "memory for the workers on node 1 is taken from node"
    assert f"{borrowed} 2: it has no memory" in runs["four"].stderr
    assert f"{borrowed} 0: it has no memory" in runs["forbidden"].stderr
