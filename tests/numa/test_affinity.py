"""Binding of the calling thread, against the real kernel, whatever it allows."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from numa import mempolicy
from numa.affinity import MEMORY_POLICIES, probe_memory_policy, seated, warning_of
from numa.errors import PlacementError
from numa.model import Node, Seat, Topology
from numa.placement import place
from numa.topology import detect

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)
REFUSED = probe_memory_policy()


def first_seat() -> Seat:
    """A seat on one real core, so that it differs from the affinity mask where there are two."""
    return place(detect(), 1, bind="core")[0]


def memory_state() -> object:
    """The thread's memory policy, or None where the kernel does not tell."""
    return mempolicy.current() if REFUSED is None else None


@needs_affinity
@pytest.mark.parametrize("policy", MEMORY_POLICIES)
def test_thread_is_bound_and_restored(policy: str) -> None:
    """Inside, CPUs and policy are those reported; after it both are as before."""
    seat = first_seat()
    before = os.sched_getaffinity(0), memory_state()
    with seated(seat, policy) as report:
        assert tuple(sorted(os.sched_getaffinity(0))) == seat.cpus == report.cpus
        if report.memory_policy is not None:
            assert memory_state() != before[1]
    assert (os.sched_getaffinity(0), memory_state()) == before


@needs_affinity
def test_report_agrees_with_the_probe() -> None:
    """A policy is reported as set exactly where the probe found that it can be."""
    seat = first_seat()
    with seated(seat, "preferred") as report:
        if REFUSED is None and seat.memory_node is not None:
            assert (report.memory_policy, report.note) == ("preferred", None)
            assert mempolicy.current().nodes == {seat.memory_node}
        else:
            assert report.memory_policy is None
            assert report.note is not None
    assert probe_memory_policy() == REFUSED


@needs_affinity
def test_restored_after_an_exception() -> None:
    """An exception inside leaves no binding behind."""
    before = os.sched_getaffinity(0), memory_state()
    with pytest.raises(LookupError), seated(first_seat(), "bind"):
        raise LookupError
    assert (os.sched_getaffinity(0), memory_state()) == before


@needs_affinity
def test_only_the_calling_thread_is_bound() -> None:
    """Another thread keeps its CPUs while this one is bound."""
    seen: list[set[int]] = []
    bound, looked = threading.Event(), threading.Event()

    def look() -> None:
        bound.wait()
        seen.append(set(os.sched_getaffinity(0)))
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    everything = set(os.sched_getaffinity(0))
    with seated(first_seat(), "preferred"):
        bound.set()
        looked.wait()
    thread.join()
    assert seen == [everything]


@needs_affinity
def test_process_started_inside_is_born_bound() -> None:
    """A child started inside has the seat's CPUs, and the policy, where there is one."""
    seat = first_seat()
    code = (
        "import os, sys; from numa import mempolicy; "
        "policy = mempolicy.current().mode if sys.argv[1] else None; "
        "print(sorted(os.sched_getaffinity(0)), policy)"
    )
    with seated(seat, "preferred") as report:
        command = [sys.executable, "-c", code, report.memory_policy or ""]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        printed = subprocess.check_output(command, text=True, env=environment)
    policy = mempolicy.PREFERRED if report.memory_policy else None
    assert printed.strip() == f"{list(seat.cpus)} {policy}"


@needs_affinity
def test_refused_cpus_are_a_note() -> None:
    """CPUs refused on a node without others leave CPUs and memory unbound, and are named."""
    before = os.sched_getaffinity(0), memory_state()
    with seated(Seat(worker=0, node=1000, cpus=(1000,), memory_node=0), "preferred") as report:
        assert (os.sched_getaffinity(0), memory_state()) == before
    assert (report.cpus, report.memory_policy) == (None, None)
    assert "CPUs 1000 refused" in (report.note or "")


@needs_affinity
def test_a_seat_whose_cpus_are_off_takes_others_of_its_node() -> None:
    """A core that has gone leaves the worker on its node, with its memory, and a note."""
    before = os.sched_getaffinity(0), memory_state()
    node = detect().nodes[0]
    seat = Seat(worker=0, node=node.id, cpus=(1000,), memory_node=first_seat().memory_node)
    with seated(seat, "preferred") as report:
        assert tuple(sorted(os.sched_getaffinity(0))) == report.cpus == node.cpus
        assert (report.memory_policy is None) == (REFUSED is not None or seat.memory_node is None)
    assert (os.sched_getaffinity(0), memory_state()) == before
    assert "CPUs 1000 refused (EINVAL" in (report.note or "")


@needs_affinity
def test_partly_refused_cpus_are_a_note() -> None:
    """Of CPUs that are there only in part the report has those that were had."""
    cpu = min(os.sched_getaffinity(0))
    seat = Seat(worker=0, node=0, cpus=(cpu, 1000), memory_node=None)
    with seated(seat, "local") as report:
        assert report.cpus == (cpu,)
    assert f"only {cpu} could be had" in (report.note or "")


@needs_affinity
@pytest.mark.parametrize("node", [1000, 5000])
def test_refused_memory_node_leaves_the_cpus_bound(node: int) -> None:
    """A node the kernel does not have is a note; the CPUs are bound all the same."""
    cpu = min(os.sched_getaffinity(0))
    with seated(Seat(worker=0, node=0, cpus=(cpu,), memory_node=node), "bind") as report:
        assert os.sched_getaffinity(0) == {cpu}
    assert (report.cpus, report.memory_policy) == ((cpu,), None)
    assert "memory policy bind not set" in (report.note or "")


def test_unbound_seat_changes_nothing() -> None:
    """A seat without CPUs and memory node is no binding and no cause for a note."""
    before = memory_state()
    with seated(Seat(worker=0, node=0, cpus=(), memory_node=None), "preferred") as report:
        assert memory_state() == before
    assert (report.cpus, report.memory_policy, report.note) == (None, None, None)


def test_seat_without_memory_says_so() -> None:
    """A bound seat whose node has no memory of ours goes without a policy, and says it."""
    cpus = detect().nodes[0].cpus
    with seated(Seat(worker=0, node=3, cpus=cpus, memory_node=None), "preferred") as report:
        pass
    assert report.memory_policy is None
    assert report.note is not None


def test_unknown_policy_is_refused() -> None:
    """A policy that does not exist is an error with the choice there is."""
    with pytest.raises(PlacementError, match="local, preferred"), seated(first_seat(), "near"):
        pass


@pytest.mark.skipif(
    mempolicy.unsupported() is not None, reason=f"no filter: {mempolicy.unsupported()}"
)
def test_refused_policy_leaves_the_cpus_bound() -> None:
    """Where the kernel refuses the call, as containers do, workers run with CPUs bound and a note.

    The refusal is a real one: a system-call filter in a process of its own.
    """
    program = Path(__file__).with_name("refused_policy.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, program], text=True, env=environment)
    seen = json.loads(printed)
    assert seen["probe"].startswith("EPERM")
    assert seen["probe"] in seen["warning"]
    assert seen["cpus"] == seen["affinity"] == list(first_seat().cpus)
    assert seen["policy"] is None
    assert "EPERM" in seen["note"]


def test_warning() -> None:
    """One line says that the machine is degraded, has one node, or refuses the policy."""
    nodes = tuple(Node(id=node, cpus=(node,), memory_bytes=1) for node in (0, 1))
    two = warning_of(Topology(nodes=nodes, cpu_quota=None, note=None), "preferred")
    one = warning_of(Topology(nodes=nodes[:1], cpu_quota=None, note=None), "preferred")
    none = warning_of(Topology(nodes=nodes[:1], cpu_quota=None, note="no sysfs"), "preferred")
    assert "one NUMA node" in (one or "")
    assert (none or "").startswith("no sysfs")
    assert "\n" not in f"{one}{none}"
    if REFUSED is None:
        assert two is None
    else:
        assert REFUSED in (two or "")
