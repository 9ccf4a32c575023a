"""Real machines, as recorded: reading their topology.

The expected facts are from hwloc 2.9.0 with the same machines' files; a line with a difference has
a comment.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from machines.sysfs_trees import all_trees, even, recordings, shapes, write_tree

from numa.model import Topology
from numa.topology import recorded

FACTS = {
    # name: nodes, CPUs, cores, nodes' packages (each once), CPUs off
    "altix_17_nodes": (17, 128, 128, (None,), 0),
    "altix_64_nodes": (64, 256, 256, (None,), 0),
    "cortex_a9": (1, 2, 2, (3,), 0),
    "itanium_8_nodes": (8, 16, 16, (None,), 0),
    # Node 2 of hwloc's lists the CPUs of others, which then are in two; 4 CPUs are in none.
    "overlapping_nodes": (6, 20, 10, (0, 1, None), 0),
    "knights_landing": (8, 64, 16, (0, None), 0),
    "kunpeng_920": (4, 128, 128, (36, 8442), 0),
    "lakefield_hybrid": (1, 5, 5, (0,), 0),
    "mainframe_z196": (1, 20, 20, (None,), 0),
    # hwloc shows an eleventh, with neither CPUs nor memory.
    "memory_all_elsewhere": (10, 8, 8, (0, 1, None), 0),
    "memory_tiers": (7, 6, 6, (0, None), 0),
    "opteron_865": (8, 16, 16, tuple(range(8)), 0),
    "opteron_865_cpu_off": (8, 15, 15, tuple(range(8)), 1),
    # hwloc takes the two CPUs of a module for two cores, the kernel for threads of one.
    "opteron_bulldozer": (8, 64, 32, (0, 1, 2, 3), 0),
    "opteron_sparse_nodes": (8, 48, 48, (0, 1, 2, 3), 0),
    "power7_sparse_nodes": (8, 256, 64, (None,), 0),
    "power9_gpu_memory": (8, 32, 8, (0, 8, None), 0),
    "sub_numa_clusters": (16, 64, 32, (0, 1, 2, 3), 0),
    "xeon_2_6_kernel_cpus_off": (1, 12, 7, (None,), 4),
    # hwloc leaves out the nodes that repeat the CPUs of node 0.
    "xeon_e5472_fake_nodes": (8, 8, 8, (None,), 0),
    "xeon_e7_4870": (4, 40, 40, (0, 1, 2, 3), 0),
    "xeon_four_packages_a_node": (4, 96, 96, (None,), 0),
    # hwloc keeps the 9 CPUs of the node that is gone outside all nodes.
    "xeon_half_gone": (1, 8, 8, (1,), 7),
    "xeon_smt": (2, 32, 16, (0, 1), 0),
}


@pytest.fixture
def machines() -> Mapping[str, Topology]:
    """All machines by name."""
    return all_trees()


def test_each_recorded_machine_has_its_facts() -> None:
    """No recording goes unchecked."""
    assert set(FACTS) == set(recordings())


@pytest.mark.parametrize("name", FACTS)
def test_recorded_machine(machines: Mapping[str, Topology], name: str) -> None:
    """Nodes, CPUs, cores, packages and CPUs that are off are the same as in hwloc."""
    found = machines[name]
    packages = {node.package for node in found.nodes}
    assert (
        len(found.nodes),
        sum(len(node.cpus) for node in found.nodes),
        sum(len(node.cores) for node in found.nodes),
        tuple(sorted(packages - {None})) + ((None,) if None in packages else ()),
        len(found.offline_cpus),
    ) == FACTS[name]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("power7_sparse_nodes", [0, 1, 4, 5, 8, 9, 12, 13]),
        ("opteron_sparse_nodes", [0, 1, 2, 33, 34, 45, 72, 73]),
        ("power9_gpu_memory", [0, 8, 250, 251, 252, 253, 254, 255]),
        ("memory_tiers", [0, 1, 2, 4, 6, 8, 9]),
    ],
)
def test_sparse_numbers(machines: Mapping[str, Topology], name: str, ids: list[int]) -> None:
    """Nodes keep the numbers that the firmware gave them."""
    assert [node.id for node in machines[name].nodes] == ids


def test_machines_that_lack_something_say_so(machines: Mapping[str, Topology]) -> None:
    """Only those with no nodes, or CPUs in none, have a note; the rest is the whole truth."""
    noted = {name for name in FACTS if machines[name].note}
    assert noted == {"mainframe_z196", "cortex_a9", "overlapping_nodes", "xeon_half_gone"}
    assert "CPUs 4-7 are in no node" in str(machines["overlapping_nodes"].note)
    gone = str(machines["xeon_half_gone"].note)
    assert "node 1 gives 2 distances to 1 nodes" in gone
    assert "CPUs 4,6,8,10,12,14,16,18,20 are in no node" in gone


def test_memory_of_nodes_without_any_is_the_nearest(machines: Mapping[str, Topology]) -> None:
    """Where CPUs and memory are in different nodes, each of the first has a near one of the last."""
    elsewhere = machines["memory_all_elsewhere"]
    assert {node.id: elsewhere.memory_for(node) for node in elsewhere.nodes if node.cpus} == {
        node.id: min(
            (other for other in elsewhere.nodes if other.has_memory),
            key=lambda other, row=node.distances: row[elsewhere.nodes.index(other)],
        ).id
        for node in elsewhere.nodes
        if node.cpus
    }


def test_memory_only_nodes_keep_their_memory(machines: Mapping[str, Topology]) -> None:
    """MCDRAM of Knights Landing is in nodes without CPUs, and the machine's own is near."""
    nodes = machines["knights_landing"].nodes
    assert [(bool(node.cpus), node.has_memory) for node in nodes] == [(True, True)] * 4 + [
        (False, True)
    ] * 4


def test_made_up_machines_are_read_as_specified(machines: Mapping[str, Topology]) -> None:
    """The generator's values are read back: CPUs, cores, memory, distances, packages."""
    for name, spec in shapes().items():
        nodes = {node.id: node for node in machines[name].nodes}
        cores = [tuple(sorted(set(core) - spec.offline)) for core in spec.cores]
        found = sorted(core for node in nodes.values() for core in node.cores)
        assert found == sorted(core for core in cores if core) or not cores, name
        taken: set[int] = set(spec.offline)
        for wanted in spec.nodes:
            node = nodes[wanted.id]
            assert node.cpus == tuple(sorted(set(wanted.cpus) - taken)), name
            taken.update(wanted.cpus)
            assert node.memory_bytes == (wanted.memory_kb or 0) * 1024, name
            assert node.distances == (wanted.distances or ()), name
            if node.cpus and spec.packages:
                assert {spec.packages[cpu] for cpu in node.cpus} == {node.package}, name


def test_big_machine_is_read_with_few_files(tmp_path: Path) -> None:
    """Threads of a core that is known, and packages of a node, are not read CPU by CPU.

    Counted by the interpreter's own audit of opened files, in a separate process.
    """
    write_tree(even(8, 16, threads=4), tmp_path)
    program = (
        "import sys, pathlib\n"
        "from numa.topology import recorded\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(args[0]) if event == 'open' else None)\n"
        "topology = recorded(pathlib.Path(sys.argv[1]))\n"
        "print(sum(str(name).startswith(sys.argv[1]) for name in opened), topology.usable_cpus)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
    )
    files, cpus = map(int, done.stdout.split())
    assert cpus == 512
    # 3 lists, `node/online`; 3 a node; the siblings of 128 cores; 2 for a node's package; 2 tries
    # for speeds.
    assert files <= 4 + 8 * 3 + 128 + 8 * 2 + 2


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
def test_no_file_can_hang_the_reader(tmp_path: Path) -> None:
    """A named pipe, a link in a circle and an endless device count as not there."""
    write_tree(even(2, 2), tmp_path)
    for node, make in ((0, os.mkfifo), (1, lambda path: path.symlink_to(path))):
        path = tmp_path / f"node/node{node}/distance"
        path.unlink()
        make(path)
    online = tmp_path / "cpu/online"
    online.unlink()
    online.symlink_to("/dev/zero")
    topology = recorded(tmp_path)
    assert [(node.cpus, node.distances) for node in topology.nodes] == [((0, 1), ()), ((2, 3), ())]
