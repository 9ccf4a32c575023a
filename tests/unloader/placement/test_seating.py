"""Seats of a run on machines of several shapes, and their notices."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from numa.affinity import probe_memory_policy
from numa.devices import node_of_device
from numa.model import Node, PlacementError, Topology, TopologyError
from numa.topology import detect
from unloader.errors import ConfigError
from unloader.model import SeatOptions
from unloader.placement.seating import automatic_parallelism, seat_workers

ROOT = Path(__file__).parents[3]


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


def changed(shape: Topology, at: int, **changes: Any) -> Topology:
    """Return the machine with one node changed."""
    nodes = list(shape.nodes)
    nodes[at] = replace(nodes[at], **changes)
    return replace(shape, nodes=tuple(nodes))


@pytest.fixture
def network_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a network card on node 1, in a made-up /sys.

    The machine of the tests may have none with a node, so the real look-up is sent to other files.
    """
    card = tmp_path / "devices" / "pci0000:80" / "0000:80:00.0"
    (card / "net" / "ens1").mkdir(parents=True)
    (card / "numa_node").write_text("1\n")
    (tmp_path / "class" / "net").mkdir(parents=True)
    (tmp_path / "class" / "net" / "ens1").symlink_to(card / "net" / "ens1")
    (card / "net" / "ens1" / "device").symlink_to(card)
    look_up = partial(node_of_device, sys_root=tmp_path)
    monkeypatch.setattr("numa.devices.node_of_device", look_up)
    return "ens1"


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
    """With --numa off no worker is bound despite other options, and no notice appears."""
    options = SeatOptions(numa="off", bind="core", memory_policy="bind")
    seating = seat_workers(topology(1, note="no /sys here"), 3, options)
    assert all(seat.cpus == () and seat.memory_node is None for seat in seating.seats)
    assert (seating.memory_policy, seating.notices) == ("local", ())


def test_a_machine_of_less_than_was_asked_for_is_told_once() -> None:
    """With --numa auto a machine without NUMA is used as it is, with one line about it."""
    seating = seat_workers(topology(1, note="no NUMA here"), 2, SeatOptions())
    assert seating.notices[0] == "no NUMA here"
    assert not any("\n" in line for line in seating.notices)


def test_a_plain_machine_of_one_node_says_nothing() -> None:
    """Nothing is lost there, so runs without options for nodes do not report on nodes."""
    for shape in (topology(1), changed(topology(1), 0, memory_bytes=None)):
        assert seat_workers(shape, 2, SeatOptions()).notices == ()


def test_a_policy_that_changes_nothing_is_not_asked_for_in_vain() -> None:
    """Where no node is known to have memory the kernel's own way is taken, without a word."""
    unknown = changed(topology(1), 0, memory_bytes=None)
    assert seat_workers(unknown, 2, SeatOptions()).memory_policy == "local"
    named = seat_workers(unknown, 2, SeatOptions(memory_policy="bind"))
    assert named.memory_policy == "bind"


def test_elsewhere_than_on_linux_nothing_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without affinity seats workers nowhere, and tells those who ask for more.

    The real system has it, so it is taken away.
    """
    monkeypatch.delattr(os, "sched_setaffinity")
    plain = seat_workers(topology(1, note="no NUMA here"), 2, SeatOptions())
    assert [(seat.cpus, seat.memory_node) for seat in plain.seats] == [((), None)] * 2
    assert plain.notices == ()
    asking = seat_workers(topology(1), 2, SeatOptions(bind="core"))
    assert "workers cannot be bound to CPUs" in asking.notices[0]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (topology(1), "only CPUs of one NUMA node.*affinity or cpuset"),
        (changed(topology(2), 1, cpus=()), "only CPUs of one NUMA node"),
        (topology(2, note="CPUs 8,9 are in no node"), "CPUs 8,9 are in no node.*whole machine"),
    ],
)
def test_require_refuses_a_machine_that_cannot_give_it(shape: Topology, text: str) -> None:
    """With --numa require, CPUs of one node or less than the whole truth are an error."""
    with pytest.raises(
        ConfigError, match=rf"--numa require is not possible: .*{text}.*--numa auto"
    ):
        seat_workers(shape, 2, SeatOptions(numa="require", memory_policy="local"))


def test_require_refuses_to_bind_nothing() -> None:
    """With --numa require, --bind none contradicts it."""
    with pytest.raises(
        ConfigError, match=r"--bind none does not bind workers.*Next: use --bind node"
    ):
        seat_workers(topology(2), 2, SeatOptions(numa="require", bind="none"))


def test_require_without_a_policy_needs_none() -> None:
    """With --memory-policy local the kernel's own way will do; other policies must be settable."""
    local = SeatOptions(numa="require", memory_policy="local")
    assert len(seat_workers(topology(2), 2, local).seats) == 2
    options = SeatOptions(numa="require")
    if probe_memory_policy() is None:
        assert seat_workers(topology(2), 2, options).memory_policy == "preferred"
    else:
        with pytest.raises(ConfigError, match=r"policies cannot be set .*--memory-policy local"):
            seat_workers(topology(2), 2, options)


CALLS = {"sched_setaffinity": {"x86_64": 203}, "set_mempolicy": {"x86_64": 238}}
OTHER_MACHINES = {"sched_setaffinity": 122, "set_mempolicy": 237}
"""System calls to their numbers, which are the same on aarch64 and riscv64."""


@pytest.mark.parametrize("call", CALLS)
def test_require_refuses_a_sandbox(call: str) -> None:
    """With --numa require a refused system call is an error that names the call and the reason."""
    number = CALLS[call].get(os.uname().machine, OTHER_MACHINES[call])
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests" / "unloader" / "placement")!r}, {str(ROOT / "tests" / "numa")!r}]
import refused_policy
from test_seating import topology
from unloader.model import SeatOptions
from unloader.placement.seating import seat_workers
refused_policy.deny({number})
seat_workers(topology(2), 2, SeatOptions(numa="require"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "--numa require is not possible: " in last
    assert "EPERM" in last
    assert f"Next: allow {call}" in last


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory_allowed": False}, "the cpuset of this process excludes its memory"),
        ({"memory_bytes": 0}, "it has no memory"),
        ({"memory_bytes": None}, "its memory is unknown"),
    ],
)
def test_a_hard_policy_on_memory_that_is_not_ours_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    """bind on a node asked for by name whose memory we have not is an error; others may lack it."""
    shape = changed(topology(3), 1, **changes)
    options = SeatOptions(nodes=(0, 1), memory_policy="bind")
    with pytest.raises(ConfigError, match=rf"node 1: {reason}\. Next: leave the node out"):
        seat_workers(shape, 4, options)
    fine = seat_workers(shape, 4, replace(options, nodes=(0, 2)))
    assert {seat.memory_node for seat in fine.seats} == {0, 2}


@pytest.mark.parametrize("policy", ["preferred", "bind"])
def test_memory_from_another_node_is_told(policy: Any) -> None:
    """Where a node's memory is not ours, the line names the node that lends its own, and why."""
    shape = changed(changed(topology(4), 1, memory_bytes=0), 3, memory_allowed=False)
    nodes = (1, 2, 3) if policy == "preferred" else ()
    seating = seat_workers(shape, 4, SeatOptions(nodes=nodes, memory_policy=policy))
    told = [line for line in seating.notices if "is taken from" in line]
    assert told == [
        f"memory for the workers on node {node} is taken from node 0: {why}"
        for node, why in (
            (1, "it has no memory"),
            (3, "the cpuset of this process excludes its memory"),
        )
    ]
    assert {seat.node: seat.memory_node for seat in seating.seats}[1] == 0
    quiet = seat_workers(shape, 4, SeatOptions(memory_policy="local")).notices
    assert not any("taken from" in line for line in quiet)


def test_workers_sit_near_the_device(network_card: str) -> None:
    """The node of the network card gets the first of equal seats; off looks for no device."""
    near = SeatOptions(near=network_card)
    seating = seat_workers(topology(2), 3, near)
    assert [seat.node for seat in seating.seats] == [1, 0, 1]
    assert not any(network_card in line for line in seating.notices)
    off = replace(near, numa="off", near="nosuchdevice")
    assert [seat.node for seat in seat_workers(topology(2), 3, off).seats] == [0, 1, 0]


def test_a_device_without_a_node_for_us_is_told(network_card: str) -> None:
    """A device at a node that is not ours changes no seat, and a note reports it."""
    options = SeatOptions(near=network_card)
    seating = seat_workers(topology(1), 2, options)
    assert seating.seats == seat_workers(topology(1), 2, SeatOptions()).seats
    assert f"--near {network_card} prefers no node: it is at node 1" in seating.notices[-1]


def test_a_device_of_nowhere_is_told() -> None:
    """The loopback interface has no node: one notice appears, and the seats stay the same."""
    seating = seat_workers(topology(2), 3, SeatOptions(near="lo"))
    assert seating.seats == seat_workers(topology(2), 3, SeatOptions()).seats
    assert "--near lo prefers no node: " in seating.notices[-1]
    assert "\n" not in seating.notices[-1]


def test_a_device_that_is_not_there_is_refused() -> None:
    """An unknown device ends the run before it starts, with what there is."""
    with pytest.raises(TopologyError, match=r"nosuchdevice.*Next: "):
        seat_workers(topology(2), 2, SeatOptions(near="nosuchdevice"))


@pytest.mark.parametrize(
    ("quota", "nodes", "workers"),
    [
        (None, (), 12),
        (None, (1,), 4),
        (None, (0, 2), 8),
        (5.9, (), 5),
        (5.9, (1,), 4),
        (0.5, (), 1),
        (100.0, (2, 0), 8),
        (None, (7,), 1),
    ],
)
def test_automatic_parallelism(quota: float | None, nodes: tuple[int, ...], workers: int) -> None:
    """Auto is the CPUs of the nodes asked for, at most the quota rounded down, at least 1."""
    shape = replace(topology(3), cpu_quota=quota)
    assert automatic_parallelism(shape, SeatOptions(nodes=nodes)) == workers


def test_off_counts_all_cpus_and_knows_no_nodes() -> None:
    """With --numa off the nodes asked for are not looked at: nothing could hold a worker there."""
    options = SeatOptions(numa="off", nodes=(1, 77))
    assert automatic_parallelism(topology(3), options) == 12
    assert {seat.node for seat in seat_workers(topology(3), 3, options).seats} == {0, 1, 2}


def test_a_node_that_is_not_there_is_named() -> None:
    """--numa-nodes with an unknown node names it and those there are."""
    with pytest.raises(PlacementError, match=r"node 9 does not exist.*nodes 0-1\."):
        seat_workers(topology(2), 2, SeatOptions(nodes=(0, 9)))


def test_this_machine_has_a_seat() -> None:
    """The machine the tests run on can seat a worker on CPUs it may use."""
    here = detect()
    (seat,) = seat_workers(here, 1, SeatOptions()).seats
    assert set(seat.cpus) <= {cpu for node in here.nodes for cpu in node.cpus}
