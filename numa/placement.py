"""Turns nodes and a parallelism into seats. Pure: the same input gives the same seats.

Seats are dealt one after the other, so those for n workers are the first of those for n + 1.

A node has slots on levels: level k has one for each of its cores with at least k threads that we
may use. So level 1 is the whole cores, level 2 the second threads, and all levels together are the
node's CPUs. A level is filled on all nodes before the next is begun on any: no second thread is
taken while a core of another node stands empty. When all are full, workers share CPUs.

`spread` gives a seat to the node

1. with the smallest part of its slots on this level taken (of its CPUs, once all are full),
2. of equals to the largest, by slots on this level and then by CPUs,
3. then to the one in the package (socket) with the smallest part of its slots taken: two workers on
   two sockets of two nodes each get a socket each, as memory channels and cache are shared there,
4. then to the one nearest to the wanted node,
5. then to the lowest id.

From 1 follows that all nodes have a worker before any has two, that equal nodes never differ by
more than one, and that no node has as much as one worker above its fair share of the level. Only 1
and 2 decide how many workers the nodes of a shape have; 3 to 5 choose between nodes that are
otherwise equal. That is why nearness stands so low: being a hop from the device costs a worker
less than a socket does that works while another idles.

`close` fills the slots of one node after the other on each level: first the wanted node (or the one
nearest to it that we may use; without one the lowest id), then the others by their distance from
it, then its package first, then by id. When all CPUs are taken it continues like `spread`.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import lcm
from typing import NamedTuple

from msgspec import Struct

from numa.errors import PlacementError
from numa.kernel_files import cpu_list_text
from numa.model import Node, Seat, Topology

PLACEMENTS = ("spread", "close")
BINDS = ("node", "core", "none")

# The kernel's distances on a machine that does not report them (LOCAL_, REMOTE_DISTANCE).
_LOCAL, _REMOTE = 10, 20


def place(
    topology: Topology,
    parallelism: int,
    *,
    placement: str = "spread",
    bind: str = "node",
    nodes: tuple[int, ...] | None = None,
    near: int | None = None,
) -> tuple[Seat, ...]:
    """Return one seat for each worker, worker 0 first, by the rules at the head of this module.

    Takes O((parallelism + nodes) log nodes).

    Args:
        topology: Nodes to sit on; those without CPUs get no seat.
        parallelism: Number of workers, at least 1; may exceed the number of CPUs.
        placement: `spread` or `close`.
        bind: `node` = all the node's CPUs. `core` = all threads of one core, the node's cores in
            their order (fastest first), every core once before any gets a second worker. `none` =
            no CPUs and no memory node.
        nodes: Ids of the nodes to use, in any order; None = all.
        near: Id of the node that a device hangs on, one of the topology's; it need have no CPUs and
            be none of `nodes`. None = no preference.

    Returns:
        Seats whose memory node is `Topology.memory_for` of their node, unless `bind` is `none`.

    Raises:
        PlacementError: A value is out of range, or a node is not there or has no CPUs.
    """
    if parallelism < 1:
        raise PlacementError(f"parallelism is {parallelism}.", "ask for 1 or more workers.")
    _check("placement", placement, PLACEMENTS)
    _check("bind", bind, BINDS)
    hosts = _hosts(topology, nodes, near)
    deal = _spread(hosts) if placement == "spread" else _close(topology, hosts, near)
    desks: dict[int, _Desks] = {}
    seats: list[Seat] = []
    for worker, host in enumerate(islice(deal, parallelism)):
        node = host.node
        if node.id not in desks:
            desks[node.id] = _desks(topology, node, bind)
        seats.append(desks[node.id].seat(worker))
    return tuple(seats)


class _Host(NamedTuple):
    """A node that workers are placed on."""

    node: Node
    slots: tuple[int, ...]
    """Number of slots on each level, level 1 first; they sum to the CPUs."""
    package: tuple[bool, int]
    """A node whose package is unknown counts as a separate package."""
    distance: int
    """To the wanted node; equal for all without a wanted node."""


def _hosts(
    topology: Topology, wanted: tuple[int, ...] | None, near: int | None
) -> tuple[_Host, ...]:
    """Return the nodes to use, lowest id first."""
    able = {node.id: node for node in topology.nodes if node.cpus}
    choice = cpu_list_text(able) or "none"
    if wanted is None:
        wanted = tuple(able)
    if not wanted:
        raise PlacementError(
            "the machine has no node to place workers on.",
            f"name some of the nodes with CPUs: {choice}.",
        )
    known = [node.id for node in topology.nodes]
    for node_id in wanted:
        if node_id not in able:
            why = "has no CPU this process may use" if node_id in known else "does not exist"
            raise PlacementError(f"node {node_id} {why}.", f"choose among nodes {choice}.")
    if near is not None and near not in known:
        raise PlacementError(
            f"no node can be near node {near}, which does not exist.",
            f"choose among nodes {cpu_list_text(known)}.",
        )
    return tuple(_host(topology, able[node_id], near) for node_id in sorted(set(wanted)))


def _host(topology: Topology, node: Node, near: int | None) -> _Host:
    threads = Counter(len(core) for core in _cores(node))
    widest = max(threads)
    slots = tuple(
        sum(count for width, count in threads.items() if width >= level)
        for level in range(1, widest + 1)
    )
    return _Host(
        node=node,
        slots=slots,
        package=(True, node.id) if node.package is None else (False, node.package),
        distance=0 if near is None else _distance(topology, node, near),
    )


def _distance(topology: Topology, node: Node, target: int) -> int:
    """Return how far the node's CPUs are from another node."""
    for index, other in enumerate(topology.nodes):
        if other.id == target and index < len(node.distances):
            return node.distances[index]
    return _LOCAL if node.id == target else _REMOTE


def _spread(hosts: tuple[_Host, ...]) -> Iterator[_Host]:
    """Deal out seats for ever."""
    levels = max(len(host.slots) for host in hosts)
    for level in range(levels):
        able = [host for host in hosts if level < len(host.slots)]
        sizes = [host.slots[level] for host in able]
        # While a slot is free its node is the least filled, so all are taken at the end.
        yield from islice(_even(able, sizes), sum(sizes))
    yield from _shared(hosts)


def _shared(hosts: tuple[_Host, ...]) -> Iterator[_Host]:
    """Deal out CPUs that are all taken for ever."""
    return _even(hosts, [len(host.node.cpus) for host in hosts])


def _close(topology: Topology, hosts: tuple[_Host, ...], near: int | None) -> Iterator[_Host]:
    """Deal out seats for ever."""
    first = min(hosts, key=lambda host: (host.distance, host.node.id))
    centre = first.node.id if near is None else near
    ordered = sorted(
        hosts,
        key=lambda host: (
            host is not first,
            _distance(topology, host.node, centre),
            host.package != first.package,
            host.node.id,
        ),
    )
    for level in range(max(len(host.slots) for host in hosts)):
        for host in ordered:
            if level < len(host.slots):
                for _ in range(host.slots[level]):
                    yield host
    yield from _shared(hosts)


class _Rank(NamedTuple):
    """A node's place in the queue of its package; the lowest is served first.

    Filled parts are counted in a common measure of all sizes, as whole numbers: exact, and far
    faster to compare than fractions.
    """

    filled: int
    smallness: tuple[int, ...]
    distance: int
    node: int
    host: int
    """Its place among the hosts."""


def _even(hosts: Sequence[_Host], sizes: Sequence[int]) -> Iterator[_Host]:
    """Deal out seats for ever, each to the host with the smallest part of its size taken.

    A package's queue changes only when one of its hosts is served, and all its hosts have the same
    package: so the heads of all queues, ranked with their packages' fill in the third place, have
    the best host of all at their head.
    """
    measure = lcm(*sizes)
    rooms: Counter[tuple[bool, int]] = Counter()
    queues: defaultdict[tuple[bool, int], list[_Rank]] = defaultdict(list)
    for at, (host, size) in enumerate(zip(hosts, sizes, strict=True)):
        rooms[host.package] += size
        small = (-size, -len(host.node.cpus), *(-slots for slots in host.slots))
        queues[host.package].append(_Rank(0, small, host.distance, host.node.id, at))
    package_measure = lcm(*rooms.values())
    for queue in queues.values():
        heapq.heapify(queue)
    heads = [_head(queue[0], 0, package) for package, queue in queues.items()]
    heapq.heapify(heads)
    while True:
        package_filled, package = heads[0].package_filled, heads[0].package
        best = queues[package][0]
        yield hosts[best.host]
        step = measure // sizes[best.host]
        heapq.heapreplace(queues[package], best._replace(filled=best.filled + step))
        package_filled += package_measure // rooms[package]
        heapq.heapreplace(heads, _head(queues[package][0], package_filled, package))


class _Head(NamedTuple):
    """The best node of a package, to compare with other packages."""

    filled: int
    smallness: tuple[int, ...]
    package_filled: int
    distance: int
    node: int
    package: tuple[bool, int]


def _head(best: _Rank, package_filled: int, package: tuple[bool, int]) -> _Head:
    return _Head(best.filled, best.smallness, package_filled, best.distance, best.node, package)


class _Desks(Struct, kw_only=True):
    """The CPUs and the memory of the seats of one node."""

    node: int
    memory_node: int | None
    cpus: tuple[tuple[int, ...], ...]
    """Of the first worker, the second and so on, and then again from the first."""
    taken: int = 0

    def seat(self, worker: int) -> Seat:
        """Return the next seat on the node."""
        cpus = self.cpus[self.taken % len(self.cpus)]
        self.taken += 1
        return Seat(worker=worker, node=self.node, cpus=cpus, memory_node=self.memory_node)


def _desks(topology: Topology, node: Node, bind: str) -> _Desks:
    if bind == "none":
        # Memory of one node for a process that roams over all would be mostly remote.
        return _Desks(node=node.id, memory_node=None, cpus=((),))
    cpus: tuple[tuple[int, ...], ...] = (node.cpus,)
    if bind == "core":
        cores = _cores(node)
        widest = max(len(core) for core in cores)
        levels = ([core for core in cores if len(core) > thread] for thread in range(widest))
        cpus = tuple(chain.from_iterable(levels))
    return _Desks(node=node.id, memory_node=topology.memory_for(node), cpus=cpus)


def _cores(node: Node) -> tuple[tuple[int, ...], ...]:
    return node.cores or tuple((cpu,) for cpu in node.cpus)


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PlacementError(
            f"{option} cannot be {value!r}.", f"choose among {', '.join(allowed)}."
        )
