"""Which seats a machine gives to how many workers."""

import pickle
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numa.errors import PlacementError
from numa.model import Node, Seat, Topology
from numa.placement import BINDS, PLACEMENTS, place


def machine(*sizes: int, threads: int = 1) -> Topology:
    """Nodes with so many cores each; CPUs are numbered as Linux does, second threads last."""
    cores = sum(sizes)
    nodes, first = [], 0
    for node, size in enumerate(sizes):
        groups = tuple(
            tuple(range(core, cores * threads, cores)) for core in range(first, first + size)
        )
        cpus = tuple(sorted(cpu for group in groups for cpu in group))
        nodes.append(Node(id=node, cpus=cpus, memory_bytes=1 << 30, cores=groups))
        first += size
    return Topology(nodes=tuple(nodes), cpu_quota=None, note=None)


machines = st.builds(
    machine, st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), threads=st.integers(1, 4)
)
placements = st.sampled_from(PLACEMENTS)
binds = st.sampled_from(BINDS)
parallelisms = st.integers(1, 90)


def loads(seats: tuple[Seat, ...]) -> Counter[int]:
    """Workers of each node."""
    return Counter(seat.node for seat in seats)


@given(machines, parallelisms, placements, binds)
def test_seats_of_fewer_workers_are_the_first_of_more(
    topology: Topology, parallelism: int, placement: str, bind: str
) -> None:
    """Raising the parallelism by one adds a seat and moves none; the same input, the same seats."""
    seats = place(topology, parallelism, placement=placement, bind=bind)
    more = place(topology, parallelism + 1, placement=placement, bind=bind)
    assert seats == more[:-1]
    assert seats == place(topology, parallelism, placement=placement, bind=bind)
    assert [seat.worker for seat in more] == list(range(parallelism + 1))


@given(machines, parallelisms)
def test_spread_is_balanced(topology: Topology, parallelism: int) -> None:
    """Equal nodes differ by at most one worker, and larger nodes have no fewer than smaller."""
    load = loads(place(topology, parallelism))
    for one in topology.nodes:
        for other in topology.nodes:
            if len(one.cpus) == len(other.cpus):
                assert abs(load[one.id] - load[other.id]) <= 1
            if len(one.cpus) > len(other.cpus):
                assert load[one.id] >= load[other.id]


@given(machines, parallelisms, placements)
def test_no_node_is_full_twice_before_all_are_full_once(
    topology: Topology, parallelism: int, placement: str
) -> None:
    """A node gets more workers than CPUs only when no CPU of any node is free."""
    load = loads(place(topology, parallelism, placement=placement))
    over = [node for node in topology.nodes if load[node.id] > len(node.cpus)]
    free = [node for node in topology.nodes if load[node.id] < len(node.cpus)]
    assert not (over and free)


@given(machines, parallelisms, placements)
def test_oversubscription_goes_to_the_least_loaded(
    topology: Topology, parallelism: int, placement: str
) -> None:
    """Once all CPUs are taken, a further worker goes where fewest are for the CPUs there are."""
    parallelism += topology.usable_cpus
    before = loads(place(topology, parallelism, placement=placement))
    last = place(topology, parallelism + 1, placement=placement)[-1]
    ratio = {n.id: Fraction(before[n.id], len(n.cpus)) for n in topology.nodes if n.cpus}
    assert ratio[last.node] == min(ratio.values())


@given(machines, parallelisms, placements)
def test_whole_cores_come_before_second_threads(
    topology: Topology, parallelism: int, placement: str
) -> None:
    """Bound to cores, no core of a node has two workers while another of it has none."""
    seats = place(topology, parallelism, placement=placement, bind="core")
    used = Counter(seat.cpus for seat in seats)
    for node in topology.nodes:
        counts = [used[core] for core in node.cores]
        assert not counts or max(counts) - min(counts) <= 1
    assert set(used) <= {core for node in topology.nodes for core in node.cores}


def test_spread_alternates_between_equal_nodes() -> None:
    """Two equal nodes take turns, and each seat has all the node's CPUs and its memory."""
    seats = place(machine(2, 2), 5)
    assert [seat.node for seat in seats] == [0, 1, 0, 1, 0]
    assert seats[1] == Seat(worker=1, node=1, cpus=(2, 3), memory_node=1)


def test_spread_follows_the_number_of_cpus() -> None:
    """As many workers as CPUs fill each node exactly; a lone worker gets the larger node."""
    assert loads(place(machine(2, 6), 8)) == {0: 2, 1: 6}
    assert loads(place(machine(2, 6), 4)) == {0: 1, 1: 3}
    assert place(machine(2, 6), 1)[0].node == 1


def test_close_fills_the_first_node_first() -> None:
    """Close takes the cores of node 0, then of node 1, then second threads in the same order."""
    nodes = [seat.node for seat in place(machine(2, 2, threads=2), 10, placement="close")]
    assert nodes == [0, 0, 1, 1, 0, 0, 1, 1, 0, 1]


def test_core_binding_takes_core_after_core() -> None:
    """Bound to cores, workers of a node take its cores in order and then begin again."""
    seats = place(machine(2, threads=2), 5, bind="core")
    assert [seat.cpus for seat in seats] == [(0, 2), (1, 3), (0, 2), (1, 3), (0, 2)]


def test_core_binding_without_known_cores_takes_cpus() -> None:
    """Where cores are not known each CPU is one."""
    node = Node(id=0, cpus=(3, 5), memory_bytes=1)
    topology = Topology(nodes=(node,), cpu_quota=None, note=None)
    assert [seat.cpus for seat in place(topology, 3, bind="core")] == [(3,), (5,), (3,)]


def test_no_binding_leaves_cpus_and_memory_free() -> None:
    """Unbound seats have a node to report but neither CPUs nor a memory node."""
    assert place(machine(1, 1), 2, bind="none") == (
        Seat(worker=0, node=0, cpus=(), memory_node=None),
        Seat(worker=1, node=1, cpus=(), memory_node=None),
    )


def test_memory_only_node_gets_no_seat() -> None:
    """A node without CPUs is passed over, and one without usable memory is no memory node."""
    nodes = (
        Node(id=0, cpus=(), memory_bytes=1 << 30),
        Node(id=1, cpus=(0, 1), memory_bytes=0),
        Node(id=2, cpus=(2, 3), memory_bytes=1 << 30, memory_allowed=False),
    )
    seats = place(Topology(nodes=nodes, cpu_quota=None, note=None), 4)
    assert [(seat.node, seat.memory_node) for seat in seats] == [
        (1, None),
        (2, None),
        (1, None),
        (2, None),
    ]


def test_chosen_nodes_only() -> None:
    """Only the nodes named are used, whatever their order in the list."""
    topology = machine(2, 2, 2)
    assert loads(place(topology, 6, nodes=(2, 0))) == {0: 3, 2: 3}
    assert place(topology, 6, nodes=(2, 0)) == place(topology, 6, nodes=(0, 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parallelism": 0}, "parallelism is 0"),
        ({"parallelism": -3}, "parallelism is -3"),
        ({"placement": "wide"}, "spread, close"),
        ({"bind": "socket"}, "node, core, none"),
        ({"nodes": ()}, "no node to place"),
        ({"nodes": (0, 7)}, "node 7 is not there"),
        ({"nodes": (1,)}, "node 1 has no CPU"),
    ],
)
def test_what_cannot_be_had_is_refused(options: dict[str, object], text: str) -> None:
    """A bad value is refused with the value, or the choice there is."""
    arguments: dict[str, object] = {"parallelism": 2, **options}
    with pytest.raises(PlacementError, match=text) as caught:
        place(machine(2, 0), **arguments)  # type: ignore[arg-type]
    assert "Next: " in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_machine_without_cpus_is_refused() -> None:
    """Nodes that have no CPU at all give no seats."""
    with pytest.raises(PlacementError, match="no node"):
        place(machine(0), 1)
