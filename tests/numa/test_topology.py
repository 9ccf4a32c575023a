"""The topology that follows from the files of a machine."""

import os
from pathlib import Path

import pytest
from sysfs_tree import Machine

from numa.model import Node, Topology, TopologyError
from numa.topology import detect, recorded


def allowing(machine: Machine, cpus: set[int]) -> Topology:
    """Read the machine as a process that may use these CPUs."""
    return detect(
        machine.sysfs,
        allowed_cpus=frozenset(cpus),
        cgroup_root=machine.cgroup,
        proc_root=machine.proc,
    )


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
    """A node with CPUs and without known memory is not a memory node."""
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
    topology = allowing(machine, {0, 2, 3})
    assert topology.nodes[0].cpus == (0, 2, 3)
    assert topology.note is None


@pytest.mark.parametrize(
    ("lists", "offline"),
    [
        ({"online": "0,2-3", "present": "0-3", "offline": "1,4-127"}, (1,)),
        ({"online": "0,2-3", "present": "0-3"}, (1,)),
        ({"offline": "1,4-127", "present": "0-3"}, (1,)),
        ({"offline": "1"}, (1,)),
        ({"online": "0,2-3", "offline": "1"}, (1,)),
        ({"cpu1/online": "0", "cpu2/online": "1", "cpu3/online": ""}, (1,)),
        ({"online": "", "present": "", "offline": ""}, ()),
        ({}, ()),
    ],
)
def test_offline_cpus_are_told(
    machine: Machine, lists: dict[str, str], offline: tuple[int, ...]
) -> None:
    """CPUs that exist but are off are named, from any of the lists; empty places are not."""
    machine.node(0, "0,2-3")
    for name, text in lists.items():
        machine.write(machine.sysfs / "cpu" / name, text + "\n")
    topology = allowing(machine, {0, 2, 3})
    assert (topology.offline_cpus, topology.note) == (offline, None)
    assert topology.nodes[0].cpus == (0, 2, 3)


@pytest.mark.parametrize("name", ["online", "present", "offline"])
def test_garbage_list_of_power_is_passed_over_with_a_note(machine: Machine, name: str) -> None:
    """A list of CPUs on or off that cannot be parsed costs only its own facts."""
    machine.node(0, "0-3")
    machine.write(machine.sysfs / "cpu" / name, "lots\n")
    topology = machine.detect(4)
    assert topology.nodes[0].cpus == (0, 1, 2, 3)
    assert f"cpu/{name} does not contain a CPU list: 'lots'" in (topology.note or "")


def test_offline_cpu_that_a_node_still_lists_is_not_used(machine: Machine) -> None:
    """Old kernels list a node's CPUs that are off; asked for, they are named and left out."""
    machine.node(0, "0-3")
    machine.write(machine.sysfs / "cpu" / "offline", "1\n")
    topology = machine.detect(4)
    assert topology.nodes[0].cpus == (0, 2, 3)
    assert topology.nodes[0].cpus_denied == ()
    assert topology.note == "CPUs 1 are switched off: not used"


def test_affinity_mask_is_believed_over_the_list(machine: Machine) -> None:
    """A container whose list of CPUs on is cut down (lxcfs does so) keeps what its mask allows."""
    mask = os.sched_getaffinity(0)
    machine.node(0, ",".join(str(cpu) for cpu in sorted(mask)))
    machine.write(machine.sysfs / "cpu" / "present", f"0-{max(mask)}\n")
    machine.write(machine.sysfs / "cpu" / "online", f"{min(mask)}\n")
    topology = detect(machine.sysfs, cgroup_root=machine.cgroup, proc_root=machine.proc)
    assert set(topology.nodes[0].cpus) == mask
    assert mask.isdisjoint(topology.offline_cpus)
    assert topology.note is None


def test_denied_cpus_are_told(machine: Machine) -> None:
    """A node names its CPUs that are on and not for us; those off, or elsewhere, it does not."""
    machine.node(0, "0-3")
    machine.node(1, "2-7")
    machine.write(machine.sysfs / "cpu" / "present", "0-6\n")
    machine.write(machine.sysfs / "cpu" / "online", "0-5\n")
    nodes = allowing(machine, {0, 4}).nodes
    assert [(node.cpus, node.cpus_denied) for node in nodes] == [((0,), (1, 2, 3)), ((4,), (5,))]


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


def test_node_must_be_in_the_online_list(machine: Machine) -> None:
    """A folder that is not in the list is ignored; a number without a folder is reported.

    The rows of distances are about the list.
    """
    machine.node(0, "0-1", distance="10 30 20")
    machine.node(2, "2-3", distance="20 30 10")
    machine.node(3, "0-3", distance="1 2 3")
    machine.write(machine.sysfs / "node" / "online", "0-2\n")
    topology = machine.detect(4)
    assert [(node.id, node.distances) for node in topology.nodes] == [(0, (10, 20)), (2, (20, 10))]
    assert topology.note is not None
    assert topology.note.startswith("nodes 1 are online but have no folder")


@pytest.mark.parametrize("text", ["", "none", "7"])
def test_online_list_that_fits_no_folder_is_passed_over(machine: Machine, text: str) -> None:
    """A list that names none of the nodes there is not believed, and said."""
    machine.node(0, "0-3")
    machine.write(machine.sysfs / "node" / "online", text + "\n")
    topology = machine.detect(4)
    assert topology.nodes[0].cpus == (0, 1, 2, 3)
    assert "names none of the existing nodes" in (topology.note or "")


def test_distances_may_be_asymmetric_or_missing(machine: Machine) -> None:
    """Each node keeps its own row; one of the wrong length is not used, and said."""
    machine.node(0, "0", distance="10 21 40")
    machine.node(1, "1", distance="12 10")
    machine.node(2, "2")
    topology = machine.detect(3)
    assert [node.distances for node in topology.nodes] == [(10, 21, 40), (), ()]
    assert topology.note == "node 1 gives 2 distances to 3 nodes: not used"


def test_node_without_a_list_of_cpus_has_none(machine: Machine) -> None:
    """A node whose cpulist is missing is taken for one of memory only, and said."""
    machine.node(0, "0-1")
    machine.write(machine.sysfs / "node" / "node1" / "meminfo", "Node 1 MemTotal: 8 kB\n")
    topology = machine.detect(2)
    assert [node.cpus for node in topology.nodes] == [(0, 1), ()]
    assert topology.note == "node 1 has no readable cpulist, so it counts as a node without CPUs"


def package(machine: Machine, cpu: int, number: str, members: str | None = None) -> None:
    """Write the package of a CPU, and the other CPUs of the package."""
    folder = machine.sysfs / "cpu" / f"cpu{cpu}" / "topology"
    machine.write(folder / "physical_package_id", number + "\n")
    if members is not None:
        machine.write(folder / "package_cpus_list", members + "\n")


@pytest.mark.parametrize("members", ["0-3", None, "junk"])
def test_package_of_sub_numa_clusters(machine: Machine, members: str | None) -> None:
    """Nodes of one package have its number, with or without a list of its members."""
    machine.node(0, "0-1")
    machine.node(1, "2-3")
    machine.node(2, "")
    for cpu in range(4):
        package(machine, cpu, "36", members)
    assert [node.package for node in machine.detect(4).nodes] == [36, 36, None]


@pytest.mark.parametrize("number", ["-1", "x", "", "1 2"])
def test_unknown_package(machine: Machine, number: str) -> None:
    """-1, as some virtual machines have it, or garbage is not a package."""
    machine.node(0, "0-1")
    package(machine, 0, number)
    package(machine, 1, number)
    assert machine.detect(2).nodes[0].package is None


@pytest.mark.parametrize("listed", [True, False])
def test_node_of_two_packages_has_none(machine: Machine, listed: bool) -> None:
    """A node over two packages, as where the firmware interleaves, is in no one package."""
    machine.node(0, "0-1")
    package(machine, 0, "0", "0" if listed else None)
    package(machine, 1, "1", "1" if listed else None)
    assert machine.detect(2).nodes[0].package is None


def speed(machine: Machine, name: str, *speeds: int | str) -> None:
    """Write a speed for each CPU from 0."""
    for cpu, value in enumerate(speeds):
        machine.write(machine.sysfs / "cpu" / f"cpu{cpu}" / name, f"{value}\n")


@pytest.mark.parametrize("name", ["cpu_capacity", "acpi_cppc/highest_perf"])
def test_fast_cores_come_first(machine: Machine, name: str) -> None:
    """Cores of a hybrid machine are sorted fastest first, then by number, over all nodes."""
    machine.node(0, "0-3")
    machine.node(1, "4-5")
    machine.core(2, 3)
    speed(machine, name, 446, 446, 1024, 1024, 446, 1024)
    nodes = machine.detect(6).nodes
    assert [node.cores for node in nodes] == [((2, 3), (0,), (1,)), ((5,), (4,))]
    assert [node.speeds for node in nodes] == [(1024, 446, 446), (1024, 446)]
    assert [node.cpus for node in nodes] == [(0, 1, 2, 3), (4, 5)]


def test_capacity_goes_before_firmware(machine: Machine) -> None:
    """Where both are known the kernel's own scale counts."""
    machine.node(0, "0-1")
    speed(machine, "cpu_capacity", 500, 1000)
    speed(machine, "acpi_cppc/highest_perf", 90, 40)
    assert machine.detect(2).nodes[0].speeds == (1000, 500)


def test_small_differences_are_none(machine: Machine) -> None:
    """Cores within 5 % of the fastest of their kind are alike: they keep their order."""
    machine.node(0, "0-3")
    speed(machine, "acpi_cppc/highest_perf", 196, 201, 198, 206)
    assert (machine.detect(4).nodes[0].cores, machine.detect(4).nodes[0].speeds) == (
        ((0,), (1,), (2,), (3,)),
        (),
    )
    speed(machine, "acpi_cppc/highest_perf", 196, 120, 206, 118)
    node = machine.detect(4).nodes[0]
    assert (node.cores, node.speeds) == (((0,), (2,), (1,), (3,)), (206, 206, 120, 120))


@pytest.mark.parametrize("odd", ["", "fast", "0", "-5"])
def test_speed_of_one_core_not_known_is_none_known(machine: Machine, odd: str) -> None:
    """Cores can be compared only if all have a speed."""
    machine.node(0, "0-1")
    speed(machine, "cpu_capacity", 1024, odd)
    assert machine.detect(2).nodes[0].speeds == ()


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
    assert "CPUs 2-3 are in no node" in (some.note or "")
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


def test_copied_tree_knows_nothing_of_us(machine: Machine) -> None:
    """Another machine is read with all its CPUs that are on and all its memory, and no quota."""
    machine.node(0, "0-1")
    machine.node(1, "2-3")
    machine.mems_allowed("0")
    machine.write(machine.cgroup / "cpu.max", "100000 100000\n")
    machine.write(machine.sysfs / "cpu" / "present", "0-4\n")
    machine.write(machine.sysfs / "cpu" / "online", "0-3\n")
    topology = recorded(machine.sysfs)
    assert [(node.cpus, node.has_memory) for node in topology.nodes] == [
        ((0, 1), True),
        ((2, 3), True),
    ]
    assert (topology.cpu_quota, topology.note, topology.offline_cpus) == (None, None, (4,))


def test_copied_tree_can_be_cut_down(machine: Machine) -> None:
    """Allowed CPUs that the other machine does not have, or has off, are reported."""
    machine.node(0, "0-1")
    machine.write(machine.sysfs / "cpu" / "offline", "1\n")
    topology = recorded(machine.sysfs, allowed_cpus=frozenset({0, 1, 9}))
    assert topology.nodes[0].cpus == (0,)
    assert topology.note == "CPUs 1,9 do not exist or are switched off: not used"


def test_copied_tree_of_either_half(machine: Machine) -> None:
    """`node/` alone has the list of CPUs, and so have the folders of `cpu/` alone."""
    machine.core(0, 1)
    assert recorded(machine.sysfs).nodes[0].cores == ((0, 1),)
    other = Machine(machine.sysfs / "other")
    other.node(0, "0-2")
    assert recorded(other.sysfs).nodes[0].cpus == (0, 1, 2)


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (frozenset({7}), "has no CPU of '7' that is on; the CPUs 0-1 are on"),
        (frozenset(), "the CPUs 0-1 are on"),
    ],
)
def test_copied_tree_without_the_allowed_cpus_is_refused(
    machine: Machine, allowed: frozenset[int], said: str
) -> None:
    """CPUs that do not exist on the other machine are refused with a list of its CPUs."""
    machine.node(0, "0-1")
    with pytest.raises(TopologyError, match="Next: ") as caught:
        recorded(machine.sysfs, allowed_cpus=allowed)
    assert said in str(caught.value)


def test_folder_that_is_no_tree_is_refused(tmp_path: Path) -> None:
    """Errors distinguish a missing folder, one without node/ and cpu/, and one without CPUs."""
    for folder, said in ((tmp_path / "absent", "is not a folder"), (tmp_path, "has no node/ and")):
        with pytest.raises(TopologyError, match="Next: give a folder with the layout of") as caught:
            recorded(folder)
        assert f"{folder} {said}" in str(caught.value)
    (tmp_path / "cpu").mkdir()
    with pytest.raises(TopologyError, match=r"has no CPU that is on\. Next: give a whole copy"):
        recorded(tmp_path)
