"""Binding of the calling thread, against the real kernel with its own limits."""

import json
import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from interrupts import interrupted
from msgspec.structs import replace

from numa import affinity
from numa.affinity import losses, probe_memory_policy, seated
from numa.model import Node, Seat, Topology
from numa.placement import place
from numa.topology import detect, nodes_with_cpus

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)
REFUSED = probe_memory_policy()


def first_seat() -> Seat:
    """A seat on one real core, so that it differs from the affinity mask where there are two."""
    return place(detect(), 1, bind="core")[0]


def memory_state() -> object:
    """The thread's memory policy, or None where the kernel does not tell."""
    return affinity.policy_of_thread() if REFUSED is None else None


@needs_affinity
@pytest.mark.parametrize("policy", ["local", "preferred", "bind", "interleave"])
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
            assert affinity.policy_of_thread()[1] == {seat.memory_node}
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
@pytest.mark.parametrize("policy", ["bind", "interleave"])
def test_an_interrupt_at_any_moment_leaves_no_binding(policy: str) -> None:
    """Ctrl-C between any two lines of the binding or the restoring: the thread is as before."""
    seat = first_seat()
    before = os.sched_getaffinity(0), memory_state()

    def sit() -> None:
        with seated(seat, policy):
            pass

    for line in count(1):
        was_interrupted = interrupted(affinity, line, sit)
        assert (os.sched_getaffinity(0), memory_state()) == before, f"after line {line}"
        if not was_interrupted:
            break
    assert line > 20


@needs_affinity
def test_cpus_that_cannot_be_given_back_leave_the_seat() -> None:
    """If its earlier CPUs are gone, the thread gets all available CPUs, not the seat's."""
    code = (
        "import json, os, sys; from numa.affinity import seated\n"
        "from numa.model import Seat\n"
        "ours, bind = os.sched_getaffinity(0), os.sched_setaffinity\n"
        "def gone(thread, cpus):\n"
        "    if set(cpus) == ours: raise OSError(22, 'Invalid argument')\n"
        "    bind(thread, cpus)\n"
        "os.sched_setaffinity = gone\n"
        "with seated(Seat(worker=0, node=0, cpus=(min(ours),), memory_node=None), 'local'):\n"
        "    inside = os.sched_getaffinity(0)\n"
        "print(json.dumps([sorted(inside), ours <= os.sched_getaffinity(0)]))"
    )
    # A cpuset that changes meanwhile cannot be had everywhere: the refusal is a replaced function.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert json.loads(printed) == [[min(os.sched_getaffinity(0))], True]


@needs_affinity
@pytest.mark.skipif(REFUSED is not None, reason=f"no memory policy here: {REFUSED}")
def test_an_unbound_seat_keeps_the_users_own_policy() -> None:
    """If workers are not bound, the policy of the user's numactl stays, too."""
    node = min(affinity.policy_of_thread(affinity.MEMS_ALLOWED)[1])
    before = affinity.policy_of_thread()
    theirs = (affinity.MODES["interleave"], frozenset((node,)))
    affinity.set_policy_of_thread(*theirs)
    try:
        with seated(Seat(worker=0, node=0, cpus=(), memory_node=None), "local") as report:
            inside = affinity.policy_of_thread()
    finally:
        affinity.set_policy_of_thread(*before)
    assert inside == theirs
    assert (report.memory_policy, report.note) == (None, None)


@needs_affinity
@pytest.mark.skipif(REFUSED is not None, reason=f"no memory policy here: {REFUSED}")
def test_interleaving_leaves_out_nodes_without_cpus() -> None:
    """Interleaving uses the memory of graphics cards and similar devices only as a last resort."""
    allowed = affinity.policy_of_thread(affinity.MEMS_ALLOWED)[1]
    with seated(first_seat(), "interleave"):
        nodes = affinity.policy_of_thread()[1]
    assert nodes == (allowed & nodes_with_cpus() or allowed)


def test_nodes_with_cpus_are_read_from_the_machine(tmp_path: Path) -> None:
    """The kernel's own list counts; without one, or with garbage in it, nothing is known."""
    assert nodes_with_cpus(tmp_path) == frozenset()
    (tmp_path / "has_cpu").write_text("0,8\n")
    assert nodes_with_cpus(tmp_path) == {0, 8}
    (tmp_path / "has_cpu").write_text("nodes\n")
    assert nodes_with_cpus(tmp_path) == frozenset()


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
        "import os, sys; from numa.affinity import policy_of_thread; "
        "policy = policy_of_thread()[0] if sys.argv[1] else None; "
        "print(sorted(os.sched_getaffinity(0)), policy)"
    )
    with seated(seat, "preferred") as report:
        command = [sys.executable, "-c", code, report.memory_policy or ""]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        printed = subprocess.check_output(command, text=True, env=environment)
    policy = affinity.MODES["preferred"] if report.memory_policy else None
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
    """If only some of the CPUs exist, the report has the bound ones."""
    cpu = min(os.sched_getaffinity(0))
    seat = Seat(worker=0, node=0, cpus=(cpu, 1000), memory_node=None)
    with seated(seat, "local") as report:
        assert report.cpus == (cpu,)
    assert f"only {cpu} could be bound" in (report.note or "")


@needs_affinity
@pytest.mark.parametrize("node", [1000, 5000])
def test_refused_memory_node_leaves_the_cpus_bound(node: int) -> None:
    """A node the kernel does not have is a note; the CPUs are bound all the same."""
    cpu = min(os.sched_getaffinity(0))
    with seated(Seat(worker=0, node=0, cpus=(cpu,), memory_node=node), "bind") as report:
        assert os.sched_getaffinity(0) == {cpu}
    assert (report.cpus, report.memory_policy) == ((cpu,), None)
    assert "memory policy bind cannot be set" in (report.note or "")


def test_unbound_seat_changes_nothing() -> None:
    """A seat without CPUs and memory node causes no binding and no note."""
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


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"),
    reason="the filter is for other machines",
)
def test_refused_policy_leaves_the_cpus_bound() -> None:
    """Where the kernel refuses the call, as containers do, workers run with CPUs bound and a note.

    The refusal is a real one: a system-call filter in a separate process.
    """
    program = Path(__file__).with_name("refused_policy.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, program], text=True, env=environment)
    seen = json.loads(printed)
    assert seen["probe"].startswith("EPERM")
    assert any(seen["probe"] in line for line in seen["losses"])
    assert seen["cpus"] == seen["affinity"] == list(first_seat().cpus)
    assert seen["policy"] is None
    assert "EPERM" in seen["note"]


def machine(*nodes: Node, note: str | None = None) -> Topology:
    """Return a machine of these nodes."""
    return Topology(nodes=nodes, cpu_quota=None, note=note)


def node(at: int, **others: Any) -> Node:
    """Return a node of one CPU and some memory, changed by `others`."""
    return Node(**{"id": at, "cpus": (at,), "memory_bytes": 1, **others})


def test_a_machine_of_one_node_loses_nothing() -> None:
    """With a single node that has CPUs, no warning is needed, even if policies are refused.

    Memory beside it without any CPUs, or one CPU of it that is not ours, changes nothing.
    """
    for shape in (
        machine(node(0)),
        machine(node(0, cpus_denied=(1,))),
        machine(node(0, memory_bytes=None)),
    ):
        assert losses(shape, "preferred") == losses(shape, "local") == ()
    expander = machine(node(0), node(1, cpus=()))
    assert not any("one NUMA node" in line for line in losses(expander, "preferred"))


def test_what_is_lost_is_a_line_each() -> None:
    """A degraded topology, nodes that are denied as a whole, and a refused policy: one line each."""
    denied = machine(node(0), *(node(at, cpus=(), cpus_denied=(at,)) for at in (1, 2, 5)))
    (line,) = [line for line in losses(denied, "local") if "one NUMA node" in line]
    assert "on node 0, because this process may use no CPU of node 1-2,5" in line
    both = losses(replace(denied, note="no sysfs"), "local")
    assert both[:2] == ("no sysfs", line)
    refused = losses(machine(node(0), node(1)), "preferred")
    assert len(refused) == (REFUSED is not None)
    assert all(str(REFUSED) in line for line in refused)
