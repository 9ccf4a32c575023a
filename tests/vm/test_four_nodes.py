"""Four nodes of one CPU: one worker each, fewer under a quota, and a CPU unplugged in mid-run."""

from __future__ import annotations

import pytest
from vm_checks import UNITS, Place, check_finished, check_local, check_policy, check_seats
from vm_machine import Ended, GuestNode, Machine, Scenario

MACHINE = Machine(
    cpus="4,sockets=4,cores=1,threads=1",
    nodes=tuple(GuestNode(cpus=str(node), mebibytes=1024) for node in range(4)),
)
SCENARIOS = (
    Scenario(name="even", options=("--parallelism", "4", *UNITS)),
    Scenario(name="quota", options=UNITS, cgroup={"cpu.max": "200000 100000"}),
    Scenario(
        name="unplugged",
        options=("--parallelism", "2", "--numa-nodes", "2,3", *UNITS),
        unplugged=(3,),
    ),
)
FOUR = tuple(Place(node=node, cpus=str(node), memory_node=node) for node in range(4))
PLACES = {"even": FOUR, "quota": FOUR[:2], "unplugged": FOUR[2:]}
every_scenario = pytest.mark.parametrize("name", list(PLACES))


@every_scenario
def test_the_files_are_those_of_the_host(
    runs: dict[str, Ended], expected: dict[str, bytes], name: str
) -> None:
    """A run on four nodes writes the bytes that it writes on one, also if a CPU goes."""
    check_finished(runs[name], expected)


@pytest.mark.parametrize("name", ["even", "quota"])
def test_seats(runs: dict[str, Ended], name: str) -> None:
    """Each worker has a node of its own; a quota of two CPUs makes two workers, on the first."""
    check_seats(runs[name], PLACES[name])


@every_scenario
def test_memory_is_local(runs: dict[str, Ended], name: str) -> None:
    """At least 95 % of each worker's memory is on its node, also when its CPU is gone."""
    check_local(runs[name], PLACES[name])


@every_scenario
def test_memory_policy(runs: dict[str, Ended], name: str) -> None:
    """Each worker prefers the memory of its own node."""
    check_policy(runs[name], PLACES[name], "preferred")


def test_a_worker_whose_cpu_is_unplugged_goes_on_elsewhere(runs: dict[str, Ended]) -> None:
    """The other worker keeps its seat; the one without a CPU is let go, not lost or replaced."""
    run = runs["unplugged"]
    assert run.unplugged, "the run was over before its CPU went"
    kept, moved = run.seen
    assert (kept.allowed, kept.ran_on) == (("2",), {2})
    assert moved.allowed[0] == "3"
    assert moved.ran_on - {3}
    assert [worker["restarts"] for worker in run.manifest["workers"]] == [0, 0]


def test_a_worker_that_left_its_seat_is_told(runs: dict[str, Ended]) -> None:
    """The manifest and the user read which worker runs outside its seat, and only then."""
    run = runs["unplugged"]
    assert run.unplugged, "the run was over before its CPU went"
    found = " ".join(run.manifest["warnings"])
    assert "worker 1 " in found
    assert "outside its seat of CPU 3" in found
    assert "worker 0 " not in found
    assert "outside its seat of CPU 3" in run.stderr
    assert runs["even"].manifest["warnings"] == runs["quota"].manifest["warnings"] == []
