"""Two nodes of two cores of two threads: an even spread, a container with a CPU off, a cpuset."""

from __future__ import annotations

import pytest
from vm_checks import UNITS, Place, check_finished, check_local, check_policy, check_seats
from vm_machine import Ended, GuestNode, Machine, Scenario

MACHINE = Machine(
    cpus="8,sockets=2,cores=2,threads=2",
    nodes=(GuestNode(cpus="0-3", mebibytes=1024), GuestNode(cpus="4-7", mebibytes=1024)),
)
TWO = ("--parallelism", "2", *UNITS)
SCENARIOS = (
    Scenario(name="cores", options=(*TWO, "--bind", "core")),
    Scenario(name="refused", options=TWO, offline=(4,), refused=True),
    Scenario(
        name="cpuset",
        options=UNITS,
        cgroup={"cpuset.cpus": "4-7", "cpuset.mems": "1", "cpu.max": "200000 100000"},
    ),
)
PLACES = {
    "cores": (Place(node=0, cpus="0-1", memory_node=0), Place(node=1, cpus="4-5", memory_node=1)),
    "refused": (Place(node=0, cpus="0-3", memory_node=0), Place(node=1, cpus="5-7", memory_node=1)),
    "cpuset": (Place(node=1, cpus="4-7", memory_node=1),) * 2,
}
every_scenario = pytest.mark.parametrize("name", list(PLACES))


@every_scenario
def test_the_files_are_those_of_the_host(
    runs: dict[str, Ended], expected: dict[str, bytes], name: str
) -> None:
    """A run on two nodes writes the bytes that it writes on one."""
    check_finished(runs[name], expected)


@every_scenario
def test_seats(runs: dict[str, Ended], name: str) -> None:
    """Workers alternate between the nodes, keep whole cores, leave out CPUs that are off or denied.

    A quota of two CPUs makes two workers, where four CPUs are allowed.
    """
    check_seats(runs[name], PLACES[name])


@every_scenario
def test_memory_is_local(runs: dict[str, Ended], name: str) -> None:
    """At least 95 % of each worker's memory is on its node, even where no policy can be set."""
    check_local(runs[name], PLACES[name])


@every_scenario
def test_memory_policy(runs: dict[str, Ended], name: str) -> None:
    """Memory is preferred from the worker's node, unless the kernel refuses every policy."""
    check_policy(runs[name], PLACES[name], None if name == "refused" else "preferred")


def test_a_refused_policy_is_told_and_costs_nothing_else(runs: dict[str, Ended]) -> None:
    """Where set_mempolicy fails the user reads so in one line, and again in the manifest."""
    refused = runs["refused"]
    assert "memory policy preferred cannot be set (EPERM" in refused.stderr
    assert "binding CPUs only" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert any("EPERM" in warning for warning in refused.manifest["warnings"])


def test_a_placement_that_is_as_planned_warns_of_nothing(runs: dict[str, Ended]) -> None:
    """Without a deviation no warning appears."""
    assert runs["cores"].manifest["warnings"] == runs["cpuset"].manifest["warnings"] == []
    assert runs["cores"].stderr == ""
