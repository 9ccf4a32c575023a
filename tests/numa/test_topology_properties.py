"""What holds of every machine, made up or mangled."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machines.sysfs_trees import SCRATCH, NodeSpec, TreeSpec, files_of, write_tree
from msgspec import structs

from numa.kernel_files import cpu_list_text
from numa.model import Topology, TopologyError
from numa.recording import lay_out, record
from numa.topology import recorded

# Each example writes some dozens of files: few of them, and no limit of time on a busy disk.
few = settings(max_examples=examples(60), deadline=None)

speeds = st.dictionaries(st.integers(0, 11), st.integers(1, 1100))


@st.composite
def machines(draw: st.DrawFn) -> TreeSpec:
    """Draw any machine of up to 12 CPUs on up to 5 nodes, at least one CPU of a node being on."""
    ids = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=5)))
    every = tuple(range(draw(st.integers(1, 12))))
    subsets = st.lists(st.sampled_from(every), unique=True).map(sorted).map(tuple)
    nodes = tuple(
        NodeSpec(
            id=node,
            cpus=draw(subsets),
            memory_kb=draw(st.sampled_from((None, 0, 1, 1 << 30))),
            distances=draw(st.none() | st.lists(st.integers(0, 255), max_size=6).map(tuple)),
        )
        for node in ids
    )
    nodes = (*nodes[:-1], replace(nodes[-1], cpus=tuple(sorted({*nodes[-1].cpus, every[-1]}))))
    return TreeSpec(
        nodes=nodes,
        cores=tuple(draw(st.lists(subsets.filter(bool), max_size=6))),
        offline=frozenset(draw(subsets)) - {every[-1]},
        strays=draw(subsets),
        packages=draw(st.dictionaries(st.sampled_from(every), st.integers(-1, 3))),
        capacities=draw(
            st.just({}) | st.fixed_dictionaries(dict.fromkeys(every, st.integers(0, 1024)))
        ),
        perfs=draw(speeds),
    )


def check(topology: Topology, wanted: frozenset[int]) -> None:
    """Assert what every topology promises, of a machine on which these CPUs were asked for."""
    held = [cpu for node in topology.nodes for cpu in node.cpus]
    assert len(held) == len(set(held)), "a CPU is in two nodes"
    assert set(held) <= wanted
    missing = wanted.difference(held)
    assert not missing or cpu_list_text(missing) in (topology.note or "")
    assert [node.id for node in topology.nodes] == sorted({node.id for node in topology.nodes})
    assert wanted.isdisjoint(topology.offline_cpus) or topology.note
    for node in topology.nodes:
        assert node.cpus or node.has_memory
        assert list(node.cpus) == sorted(node.cpus)
        assert sorted(cpu for core in node.cores for cpu in core) == list(node.cpus)
        assert all(list(core) == sorted(core) for core in node.cores)
        assert len(node.distances) in (0, len(topology.nodes))
        assert len(node.speeds) in (0, len(node.cores))
        order = list(
            zip([-s for s in node.speeds] or [0] * len(node.cores), node.cores, strict=True)
        )
        assert order == sorted(order)
        assert set(node.cpus_denied).isdisjoint(wanted)


@few
@given(machines())
def test_every_machine_is_read_whole(spec: TreeSpec) -> None:
    """Each CPU that is on is in one node or named, cores part the CPUs, and twice is the same."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        root = write_tree(spec, Path(folder))
        topology = recorded(root)
        check(topology, spec.cpus - spec.offline)
        assert set(topology.offline_cpus) == spec.offline
        assert recorded(root) == topology


@few
@given(machines(), st.frozensets(st.integers(0, 13), min_size=1))
def test_every_machine_can_be_cut_down(spec: TreeSpec, allowed: frozenset[int]) -> None:
    """Each requested CPU that is on is in one node or named; it is reported if all are off."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        root = write_tree(spec, Path(folder))
        there = allowed & (spec.cpus - spec.offline)
        if there:
            topology = recorded(root, allowed_cpus=allowed)
            check(topology, there)
            listed = [{*node.cpus, *node.cpus_denied} for node in topology.nodes]
            assert sum(map(len, listed)) == len(set().union(*listed))
        else:
            with pytest.raises(TopologyError, match="has no CPU"):
                recorded(root, allowed_cpus=allowed)


@few
@given(machines())
def test_every_machine_survives_the_way_to_text_and_back(spec: TreeSpec) -> None:
    """A recorded machine laid out again reads the same, and records the same."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        root = write_tree(spec, Path(folder, "a"))
        text = record(root)
        lay_out(text, Path(folder, "b"))
        assert record(Path(folder, "b")) == text
        again = recorded(Path(folder, "b"))
        note = (again.note or "").replace(f"{folder}/b", f"{folder}/a") or None
        assert structs.replace(again, note=note) == recorded(root)


mangled = (
    st.binary(max_size=40)
    | st.sampled_from(
        (b"", b"\0" * 4096, b"-1\n", b"0-", b"9" * 5000, b"\xff\xfe", b"0-99999999\n")
    )
    | st.sampled_from((b"0", b"0-3\n", b"1,1,1\n", b"Node 0 MemTotal: x kB\n", b"\xd9\xa3"))
)


@few
@given(machines(), st.data())
def test_mangled_machine_is_read_or_refused(spec: TreeSpec, data: st.DataObject) -> None:
    """Files with other bytes, gone, or turned into folders: a topology or one clear error."""
    names = sorted(files_of(spec))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        root = write_tree(spec, Path(folder))
        for name in data.draw(
            st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)
        ):
            path = root / name
            path.unlink()
            fate = data.draw(st.sampled_from(("gone", "folder", "bytes", "bytes", "cut")))
            if fate == "folder":
                path.mkdir()
            elif fate == "cut":
                path.write_text(files_of(spec)[name][: data.draw(st.integers(0, 6))])
            elif fate == "bytes":
                path.write_bytes(data.draw(mangled))
        refusal, topology = None, None
        try:
            topology = recorded(root)
        except TopologyError as error:
            refusal = str(error)
        if topology is None:
            assert refusal is not None
            assert "Next: " in refusal
            assert len(refusal) < 1000
        else:
            check(topology, frozenset(cpu for node in topology.nodes for cpu in node.cpus))
