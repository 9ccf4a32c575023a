"""One node that the kernel shows as two (numa=fake): both list the same CPUs."""

from __future__ import annotations

import pytest
from vm_checks import UNITS, Place, check_finished, check_local, check_policy, check_seats
from vm_machine import Boot, Ended, GuestNode, Machine, Scenario

MACHINE = Machine(
    cpus="2", nodes=(GuestNode(cpus="0-1", mebibytes=2048),), kernel_arguments="numa=fake=2"
)
PLACES = (Place(node=0, cpus="0-1", memory_node=0),) * 2


@pytest.fixture(scope="module")
def run(boot_guest: Boot) -> Ended:
    """The only run of the boot."""
    scenario = Scenario(name="two", options=("--parallelism", "2", *UNITS))
    return boot_guest(MACHINE, (scenario,))["two"]


def test_the_files_are_those_of_the_host(run: Ended, expected: dict[str, bytes]) -> None:
    """A run on fake nodes writes the bytes that it writes on a real one."""
    check_finished(run, expected)


def test_a_cpu_of_two_nodes_is_seated_on_the_first(run: Ended) -> None:
    """A CPU that two nodes list counts for the lowest, and the other node gets no worker."""
    check_seats(run, PLACES)


def test_memory_is_local(run: Ended) -> None:
    """At least 95 % of each worker's memory is on the node of its seat."""
    check_policy(run, PLACES, "preferred")
    check_local(run, PLACES)
