"""Which seats a machine gives to how many workers."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines.seat_rules import Ledger, shape_of
from msgspec.structs import replace

from numa.model import Node, PlacementError, Seat, Topology
from numa.placement import place


def machine(*sizes: int, threads: int = 1) -> Topology:
    """Nodes with these numbers of cores; CPUs are numbered as Linux does, second threads last."""
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


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Nodes of one to three shapes, with holes in their numbers, in packages or none, some without
    CPUs or memory; distances known or not."""
    widths = st.lists(st.integers(1, 3), min_size=1, max_size=6)
    shapes = draw(st.lists(widths, min_size=1, max_size=3))
    count = draw(st.integers(1, 7))
    ids = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count, unique=True))
    far = draw(st.booleans())
    nodes, first = [], 0
    for node in sorted(ids):
        shape = draw(st.sampled_from([*shapes, []])) if nodes else shapes[0]
        cores = []
        for width in shape:
            cores.append(tuple(range(first, first + width)))
            first += width
        row = draw(st.lists(st.integers(11, 40), min_size=count, max_size=count)) if far else []
        nodes.append(
            Node(
                id=node,
                cpus=tuple(cpu for core in cores for cpu in core),
                memory_bytes=draw(st.sampled_from((1 << 30, 0, None))),
                distances=tuple(10 if at == len(nodes) else far for at, far in enumerate(row)),
                cores=tuple(cores),
                package=draw(st.sampled_from((0, 1, 5, None))),
                memory_allowed=draw(st.booleans()),
            )
        )
    return Topology(nodes=tuple(nodes), cpu_quota=None, note=None)


@st.composite
def machines_and_near(draw: st.DrawFn) -> tuple[Topology, int | None]:
    """A machine, and one of its nodes or none."""
    topology = draw(machines())
    return topology, draw(st.sampled_from([None, *(node.id for node in topology.nodes)]))


placements = st.sampled_from(["spread", "close"])
binds = st.sampled_from(["node", "core", "none"])
parallelisms = st.integers(1, 90)


def loads(seats: tuple[Seat, ...]) -> Counter[int]:
    """Workers of each node."""
    return Counter(seat.node for seat in seats)


def crowds(topology: Topology, seats: tuple[Seat, ...]) -> Counter[tuple[tuple[int, ...], int]]:
    """How many nodes of each shape have how many workers."""
    load = loads(seats)
    return Counter((shape_of(node), load[node.id]) for node in topology.nodes if node.cpus)


@given(machines_and_near(), parallelisms, placements, binds)
def test_seats_of_fewer_workers_are_the_first_of_more(
    machine: tuple[Topology, int | None], parallelism: int, placement: str, bind: str
) -> None:
    """Raising the parallelism by one adds a seat and moves none; the same input, the same seats."""
    topology, near = machine
    seats = place(topology, parallelism, placement=placement, bind=bind, near=near)
    more = place(topology, parallelism + 1, placement=placement, bind=bind, near=near)
    assert seats == more[:-1]
    assert seats == place(topology, parallelism, placement=placement, bind=bind, near=near)
    assert [seat.worker for seat in more] == list(range(parallelism + 1))


@given(machines_and_near(), placements)
def test_the_rules_hold_at_every_parallelism(
    machine: tuple[Topology, int | None], placement: str
) -> None:
    """Up to three workers a CPU: whole cores before second threads anywhere, fair shares, equal
    nodes within one worker of each other, none idle while another has two."""
    topology, near = machine
    cpus = sum(len(node.cpus) for node in topology.nodes)
    ledger = Ledger(topology, spread=placement == "spread")
    ledger.follow(place(topology, 3 * cpus, placement=placement, near=near))


@given(machines_and_near(), parallelisms)
def test_names_and_nearness_break_no_balance(
    machine: tuple[Topology, int | None], parallelism: int
) -> None:
    """A device changes which of equal nodes come first, and nothing else.

    The same nodes without packages, in the opposite order, have the same loads.
    """
    topology, near = machine
    by_rule = crowds(topology, place(topology, parallelism))
    assert crowds(topology, place(topology, parallelism, near=near)) == by_rule
    count = len(topology.nodes)
    mirrored = tuple(
        replace(node, id=count - 1 - at, package=None, distances=())
        for at, node in enumerate(topology.nodes)
    )
    other = replace(topology, nodes=mirrored[::-1])
    assert crowds(other, place(other, parallelism)) == by_rule


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), parallelisms)
def test_packages_are_balanced_too(
    packages: int, nodes_each: int, cores: int, threads: int, parallelism: int
) -> None:
    """Of equal packages with equal nodes none has two workers more than another."""
    flat = machine(*[cores] * packages * nodes_each, threads=threads)
    nodes = tuple(replace(node, package=node.id // nodes_each) for node in flat.nodes)
    topology = replace(flat, nodes=nodes)
    load = Counter(seat.node // nodes_each for seat in place(topology, parallelism))
    counts = [load[package] for package in range(packages)]
    assert max(counts) - min(counts) <= 1


@given(machines_and_near(), parallelisms, placements)
def test_memory_comes_from_the_nearest_node_that_has_some(
    machine: tuple[Topology, int | None], parallelism: int, placement: str
) -> None:
    """A bound seat's memory node is its own if it has memory for us, else the nearest, if any."""
    topology, near = machine
    by_id = {node.id: node for node in topology.nodes}
    able = {node.id for node in topology.nodes if node.has_memory}
    for seat in place(topology, parallelism, placement=placement, near=near):
        row = by_id[seat.node].distances or [0] * len(topology.nodes)
        distance = {node.id: row[at] for at, node in enumerate(topology.nodes)}
        if seat.node in able:
            assert seat.memory_node == seat.node
        elif able:
            assert seat.memory_node in able
            assert distance[seat.memory_node] == min(distance[node] for node in able)
        else:
            assert seat.memory_node is None


@given(machines(), parallelisms, placements)
def test_whole_cores_come_before_second_threads(
    topology: Topology, parallelism: int, placement: str
) -> None:
    """Bound to cores, a worker has all threads of one core.

    No core of a node has two workers while another is free. No core has two workers for each thread
    while another core has a free thread.
    """
    seats = place(topology, parallelism, placement=placement, bind="core")
    used = Counter(seat.cpus for seat in seats)
    assert set(used) <= {core for node in topology.nodes for core in node.cores}
    for node in topology.nodes:
        rounds = [used[core] // len(core) for core in node.cores]
        begun = [used[core] for core in node.cores]
        assert not begun or max(begun) <= 1 or min(begun) >= 1
        assert not begun or max(rounds) - min(rounds) <= 1


def test_spread_follows_the_number_of_cpus() -> None:
    """As many workers as CPUs fill each node exactly; a lone worker gets the larger node."""
    assert loads(place(machine(2, 6), 8)) == {0: 2, 1: 6}
    assert loads(place(machine(2, 6), 4)) == {0: 1, 1: 3}
    assert place(machine(2, 6), 1)[0].node == 1


def test_spread_takes_a_socket_each_before_the_other_node_of_one() -> None:
    """On two sockets of two nodes each, two workers sit on two sockets."""
    flat = machine(2, 2, 2, 2)
    nodes = tuple(replace(node, package=node.id // 2) for node in flat.nodes)
    seats = place(replace(flat, nodes=nodes), 9)
    assert [seat.node for seat in seats] == [0, 2, 1, 3, 0, 2, 1, 3, 0]


def test_spread_prefers_the_near_node_and_then_the_nearer() -> None:
    """Of nodes otherwise equal the one at the device comes first, then those nearer to it."""
    rows = ((10, 12, 21, 32), (12, 10, 32, 21), (21, 32, 10, 12), (32, 21, 12, 10))
    flat = machine(2, 2, 2, 2)
    nodes = tuple(replace(node, distances=rows[node.id]) for node in flat.nodes)
    seats = place(replace(flat, nodes=nodes), 6, near=3)
    assert [seat.node for seat in seats] == [3, 2, 1, 0, 3, 2]
    sockets = tuple(replace(node, package=node.id // 2) for node in nodes)
    seats = place(replace(flat, nodes=sockets), 6, near=3)
    assert [seat.node for seat in seats] == [3, 1, 2, 0, 3, 1]


def test_spread_is_near_to_a_node_that_seats_nobody() -> None:
    """The device may hang on a node without CPUs, or on one that is not to be used."""
    far = ((10, 30, 30), (30, 10, 12), (30, 12, 10))
    for shape, chosen in ((machine(2, 2, 0), None), (machine(2, 2, 2), (0, 1))):
        nodes = tuple(replace(node, distances=far[node.id]) for node in shape.nodes)
        seats = place(replace(shape, nodes=nodes), 2, nodes=chosen, near=2)
        assert [seat.node for seat in seats] == [1, 0]


def test_nearness_gives_way_to_size() -> None:
    """A lone worker sits on the larger node even if the device is at the smaller."""
    assert place(machine(2, 3), 1, near=0)[0].node == 1


def test_close_fills_the_first_node_first() -> None:
    """Close takes the cores of node 0, then of node 1, then second threads in the same order."""
    nodes = [seat.node for seat in place(machine(2, 2, threads=2), 10, placement="close")]
    assert nodes == [0, 0, 1, 1, 0, 0, 1, 1, 0, 1]


def test_close_goes_on_by_distance_from_where_it_began() -> None:
    """After the first node come its neighbours: nearest first, and among equals its package first."""
    rows = ((10, 32, 21), (32, 10, 21), (21, 21, 10))
    flat = machine(1, 1, 1)
    nodes = tuple(replace(node, distances=rows[node.id]) for node in flat.nodes)
    seats = place(replace(flat, nodes=nodes), 3, placement="close")
    assert [seat.node for seat in seats] == [0, 2, 1]
    nodes = tuple(replace(node, package=node.id % 2) for node in flat.nodes)
    seats = place(replace(flat, nodes=nodes), 3, placement="close", near=1)
    assert [seat.node for seat in seats] == [1, 0, 2]
    seats = place(replace(flat, nodes=nodes), 3, placement="close")
    assert [seat.node for seat in seats] == [0, 2, 1]


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
    """A node without CPUs gets no seat, and lends its memory to nodes without memory for us."""
    nodes = (
        Node(id=0, cpus=(), memory_bytes=1 << 30),
        Node(id=1, cpus=(0, 1), memory_bytes=0),
        Node(id=2, cpus=(2, 3), memory_bytes=1 << 30, memory_allowed=False),
    )
    seats = place(Topology(nodes=nodes, cpu_quota=None, note=None), 4)
    assert [(seat.node, seat.memory_node) for seat in seats] == [(1, 0), (2, 0), (1, 0), (2, 0)]


def test_chosen_nodes_only() -> None:
    """Only the named nodes are used, in any order of the list."""
    topology = machine(2, 2, 2)
    assert loads(place(topology, 6, nodes=(2, 0))) == {0: 3, 2: 3}
    assert place(topology, 6, nodes=(2, 0)) == place(topology, 6, nodes=(0, 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parallelism": 0}, "parallelism is 0"),
        ({"parallelism": -3}, "parallelism is -3"),
        ({"nodes": ()}, "no node to place"),
        ({"nodes": (0, 7)}, "node 7 does not exist"),
        ({"nodes": (1,)}, "node 1 has no CPU"),
        ({"near": 5}, "node 5, which does not exist.*nodes 0-1\\."),
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
