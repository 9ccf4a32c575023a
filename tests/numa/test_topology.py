"""What is read from the files that describe a machine."""

import dataclasses
import json
import os
import pickle
from pathlib import Path

import pytest
from sysfs_tree import Machine

from numa.errors import TopologyError
from numa.model import Node, Topology
from numa.topology import detect, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("8,0-1", (0, 1, 8)),
        ("1-2,2-3", (1, 2, 3)),
        (" 4 , 6 ", (4, 6)),
    ],
)
def test_list_is_parsed(text: str, numbers: tuple[int, ...]) -> None:
    """A kernel list gives its numbers, ascending and each once."""
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize("text", ["x", "0-", "-3", "3-0", "0,,2", "0-3;8", "0-9999999999", "٣"])
def test_garbage_list_is_refused(text: str) -> None:
    """What is no list is refused with its text."""
    with pytest.raises(TopologyError, match="not a list") as caught:
        parse_cpu_list(text)
    assert repr(text) in str(caught.value)


def test_two_nodes(machine: Machine) -> None:
    """Nodes come lowest id first with CPUs, bytes of memory and distances."""
    machine.node(1, "2-3", memory_kb=2048, distance="21 10")
    machine.node(0, "0-1", memory_kb=1024, distance="10 21")
    one_each = {"cores": ((0,), (1,))}
    assert machine.detect(4) == Topology(
        nodes=(
            Node(id=0, cpus=(0, 1), memory_bytes=1 << 20, distances=(10, 21), **one_each),
            Node(id=1, cpus=(2, 3), memory_bytes=2 << 20, distances=(21, 10), cores=((2,), (3,))),
        ),
        cpu_quota=None,
        note=None,
    )


def test_many_nodes_are_ordered_by_number(machine: Machine) -> None:
    """Node 10 comes after node 2, and ids may have gaps."""
    for node in (10, 2, 0, 7):
        machine.node(node, str(node))
    topology = machine.detect(11)
    assert [node.id for node in topology.nodes] == [0, 2, 7, 10]
    assert topology.usable_cpus == 4


def test_four_unequal_nodes(machine: Machine) -> None:
    """Nodes of different size keep their own CPUs."""
    for node, cpus in enumerate(("0-7", "8", "9-10", "11-15")):
        machine.node(node, cpus)
    assert [len(node.cpus) for node in machine.detect(16).nodes] == [8, 1, 2, 5]


def test_memory_only_node_is_kept(machine: Machine) -> None:
    """A node without CPUs but with memory is there, with no CPUs."""
    machine.node(0, "0-3")
    machine.node(1, "")
    topology = machine.detect(4)
    assert [(node.cpus, node.has_memory) for node in topology.nodes] == [
        ((0, 1, 2, 3), True),
        ((), True),
    ]
    assert topology.note is None


@pytest.mark.parametrize(("memory_kb", "expected"), [(0, 0), (None, None)])
def test_node_without_memory(machine: Machine, memory_kb: int | None, expected: object) -> None:
    """A node with CPUs and no memory, or none known of, is no memory node."""
    machine.node(0, "0-1")
    machine.node(1, "2-3", memory_kb=memory_kb)
    node = machine.detect(4).nodes[1]
    assert (node.cpus, node.memory_bytes, node.has_memory) == ((2, 3), expected, False)


def test_smt_siblings_are_cores(machine: Machine) -> None:
    """CPUs that share a core are grouped, under the older and the newer file name."""
    machine.node(0, "0-1,4-5")
    machine.node(1, "2-3,6-7")
    machine.core(0, 4)
    machine.core(1, 5)
    machine.core(2, 6, file="core_cpus_list")
    machine.core(3, 7, file="core_cpus_list")
    cores = [node.cores for node in machine.detect(8).nodes]
    assert cores == [((0, 4), (1, 5)), ((2, 6), (3, 7))]


def test_forbidden_sibling_is_no_part_of_its_core(machine: Machine) -> None:
    """A core has only CPUs this process may use."""
    machine.node(0, "0-3")
    machine.core(0, 2)
    machine.core(1, 3)
    assert machine.detect(3).nodes[0].cores == ((0, 2), (1,))


def test_offline_cpu_is_absent(machine: Machine) -> None:
    """A CPU the kernel took out of list and mask is nowhere, and no cause for a note."""
    machine.node(0, "0,2-3")
    topology = detect(
        machine.sysfs,
        allowed_cpus=frozenset({0, 2, 3}),
        cgroup_root=machine.cgroup,
        proc_root=machine.proc,
    )
    assert topology.nodes[0].cpus == (0, 2, 3)
    assert topology.note is None


def test_cpuset_leaves_out_nodes_we_may_not_use(machine: Machine) -> None:
    """A node with neither CPUs nor memory for us is not shown; distances shrink with it."""
    machine.node(0, "0-1", distance="10 21 31")
    machine.node(1, "2-3", distance="21 10 31")
    machine.node(2, "", distance="31 31 10")
    machine.mems_allowed("0,2")
    topology = machine.detect(2)
    assert [(node.id, node.distances) for node in topology.nodes] == [(0, (10, 31)), (2, (31, 10))]


def test_forbidden_memory_is_no_memory_node(machine: Machine) -> None:
    """A node whose memory the cpuset forbids shows its size but cannot be a memory node."""
    machine.node(0, "0-1")
    machine.node(1, "2-3")
    machine.mems_allowed("0")
    node = machine.detect(4).nodes[1]
    assert (node.memory_bytes, node.memory_allowed, node.has_memory) == (1 << 20, False, False)


def test_overlapping_lists_count_once(machine: Machine) -> None:
    """With the same CPUs in two nodes, as numa=fake has it, the lowest node has them."""
    machine.node(0, "0-3")
    machine.node(1, "0-3")
    topology = machine.detect(4)
    assert [node.cpus for node in topology.nodes] == [(0, 1, 2, 3), ()]
    assert topology.usable_cpus == 4


def test_machine_without_numa_is_one_node(machine: Machine) -> None:
    """Without the folder there is one node with every allowed CPU, its cores, and a note."""
    machine.core(0, 1)
    topology = machine.detect(3)
    assert topology.nodes == (Node(id=0, cpus=(0, 1, 2), memory_bytes=None, cores=((0, 1), (2,))),)
    assert topology.note == (
        f"no NUMA information at {machine.sysfs / 'node'}: treating the machine as one node"
    )


def test_cpus_in_no_node_are_said(machine: Machine) -> None:
    """Allowed CPUs that no node lists are named; if that is all of them, one node has them."""
    machine.node(0, "0-1")
    some = machine.detect(4)
    assert some.nodes[0].cpus == (0, 1)
    assert "CPUs 2,3 are in no node" in (some.note or "")
    machine.node(0, "40-41")
    none = machine.detect(2)
    assert none.nodes[0].cpus == (0, 1)
    assert "treating the machine as one node" in (none.note or "")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("node/node1/cpulist", "2-three"),
        ("node/node1/meminfo", "Node 1 nothing"),
        ("node/node1/distance", "10 far"),
        ("cpu/cpu0/topology/thread_siblings_list", "0;1"),
    ],
)
def test_garbage_names_its_file(machine: Machine, path: str, text: str) -> None:
    """A file that cannot be parsed is named together with its text."""
    machine.node(0, "0-1", distance="10 21")
    machine.node(1, "2-3", distance="21 10")
    machine.core(0, 1)
    machine.write(machine.sysfs / path, text + "\n")
    with pytest.raises(TopologyError) as caught:
        machine.detect(4)
    assert str(machine.sysfs / path) in str(caught.value)
    assert repr(text) in str(caught.value)


def test_garbage_in_allowed_memory_names_its_file(machine: Machine) -> None:
    """An unreadable Mems_allowed_list is an error, too."""
    machine.node(0, "0-1")
    machine.mems_allowed("some")
    with pytest.raises(TopologyError, match="status"):
        machine.detect(2)


def test_this_machine_can_be_read() -> None:
    """The real machine yields every CPU of our affinity mask."""
    topology = detect()
    cpus = {cpu for node in topology.nodes for cpu in node.cpus}
    if hasattr(os, "sched_getaffinity") and topology.note is None:
        assert cpus == os.sched_getaffinity(0)
    assert 1 <= topology.usable_cpus <= len(cpus)


def test_missing_folder_on_the_real_host(tmp_path: Path) -> None:
    """With the defaults for the rest, an absent folder still gives one node and its note."""
    topology = detect(tmp_path / "absent")
    assert len(topology.nodes) == 1
    assert topology.note is not None


def test_topology_travels(machine: Machine) -> None:
    """A topology survives pickling and becomes JSON."""
    machine.node(0, "0-1", distance="10")
    topology = machine.detect(2)
    assert pickle.loads(pickle.dumps(topology)) == topology
    assert json.loads(json.dumps(dataclasses.asdict(topology)))["nodes"][0]["cpus"] == [0, 1]
