"""Four nodes of one CPU: one worker each, fewer under a quota, and a CPU unplugged in mid-run."""

from __future__ import annotations

import pytest
from vm_checks import UNITS, Place, check_finished, check_local, check_policy
from vm_machine import Boot, Ended, GuestNode, Machine, Scenario

MACHINE = Machine(
    cpus="4,sockets=4,cores=1,threads=1",
    nodes=tuple(GuestNode(cpus=str(node), mebibytes=1024) for node in range(4)),
)
PLACES = tuple(Place(node=node, cpus=str(node), memory_node=node) for node in range(4))


@pytest.fixture(scope="module")
def run(boot_guest: Boot) -> Ended:
    """The only run of the boot; CPU 3 goes once all its workers are at work."""
    options = ("--parallelism", "4", *UNITS)
    scenario = Scenario(name="unplugged", options=options, unplugged=(3,), at_work=4)
    found = boot_guest(MACHINE, (scenario,))["unplugged"]
    assert found.unplugged, "the run was over before its CPU went"
    return found


def test_the_files_are_those_of_the_host(run: Ended, expected: dict[str, bytes]) -> None:
    """A run on four nodes writes the bytes that it writes on one, also if a CPU goes."""
    check_finished(run, expected)


def test_memory_is_local(run: Ended) -> None:
    """At least 95 % of each worker's memory is on its node, also when its CPU is gone."""
    check_policy(run, PLACES, "preferred")
    check_local(run, PLACES)


def test_a_worker_whose_cpu_is_unplugged_goes_on_elsewhere(run: Ended) -> None:
    """The others keep their seats; the one without a CPU is let go, not lost or replaced."""
    *kept, moved = run.seen
    assert [(each.allowed, each.ran_on) for each in kept] == [
        ((place.cpus,), {place.node}) for place in PLACES[:3]
    ]
    assert moved.allowed[0] == "3"
    assert moved.ran_on - {3}
    workers = run.manifest["workers"]
    assert [worker["seat"]["cpus"] for worker in workers] == [[0], [1], [2], [3]]
    assert [worker["restarts"] for worker in workers] == [0] * 4


def test_a_worker_that_left_its_seat_is_told(run: Ended) -> None:
    """The manifest and the user read which worker runs outside its seat, and only that one."""
    found = " ".join(run.manifest["warnings"])
    assert "worker 3 " in found
    assert "outside its seat of CPU 3" in found
    assert not any(f"worker {number} " in found for number in range(3))
    assert "outside its seat of CPU 3" in run.stderr
