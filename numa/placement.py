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

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from math import lcm
from typing import Literal, NamedTuple

from numa.kernel_files import cpu_list_text
from numa.model import Node, PlacementError, Seat, Topology

# The kernel's distances on a machine that does not report them (LOCAL_, REMOTE_DISTANCE).
_LOCAL, _REMOTE = 10, 20


class _Host(NamedTuple):
    node: Node
    slots: tuple[int, ...]
    """Number of slots on each level, level 1 first; they sum to the CPUs."""
    package: tuple[bool, int]
    """A node whose package is unknown counts as a separate package."""
    distance: int
    """To the wanted node; equal for all without a wanted node."""


def place(
    topology: Topology,
    parallelism: int,
    *,
    placement: Literal["spread", "close"] = "spread",
    bind: Literal["node", "core", "none"] = "node",
    nodes: tuple[int, ...] | None = None,
    near: int | None = None,
) -> tuple[Seat, ...]:
    """Return one seat for each worker, worker 0 first, by the rules at the head of this module.

    `bind` is `node` for all the node's CPUs, `core` for all threads of one core (fastest first,
    every core once before any gets a second worker), or `none` for no CPUs and no memory node.
    `nodes` are the ids of the nodes to use, None for all. `near` is the id of the node that a
    device hangs on, also one without CPUs or outside of `nodes`. Without workers, or with a node
    that is not there or has no CPUs, a `PlacementError` is raised.
    """
    if parallelism < 1:
        raise PlacementError(f"parallelism is {parallelism}.", "ask for 1 or more workers.")
    able = {node.id: node for node in topology.nodes if node.cpus}
    choice = cpu_list_text(able) or "none"
    chosen = tuple(able) if nodes is None else nodes
    if not chosen:
        raise PlacementError(
            "the machine has no node to place workers on.",
            f"name some of the nodes with CPUs: {choice}.",
        )
    known = [node.id for node in topology.nodes]
    for node_id in chosen:
        if node_id not in able:
            why = "has no CPU this process may use" if node_id in known else "does not exist"
            raise PlacementError(f"node {node_id} {why}.", f"choose among nodes {choice}.")
    if near is not None and near not in known:
        raise PlacementError(
            f"no node can be near node {near}, which does not exist.",
            f"choose among nodes {cpu_list_text(known)}.",
        )
    hosts: list[_Host] = []
    for node_id in sorted(set(chosen)):
        node = able[node_id]
        widths = [len(core) for core in node.cores] or [1] * len(node.cpus)
        slots = (sum(width > level for width in widths) for level in range(max(widths)))
        hosts.append(
            _Host(
                node=node,
                slots=tuple(slots),
                package=(True, node_id) if node.package is None else (False, node.package),
                distance=0 if near is None else _distance(topology, node, near),
            )
        )
    deal = _deal(topology, hosts, near, is_close=placement == "close")
    rooms: dict[int, tuple[Iterator[tuple[int, ...]], int | None]] = {}
    """By node: the CPUs of its next seats, and their memory node."""
    seats: list[Seat] = []
    for worker, host in enumerate(islice(deal, parallelism)):
        node = host.node
        if node.id not in rooms:
            # Memory of one node for a process that roams over all would be mostly remote.
            memory = None if bind == "none" else topology.memory_for(node)
            desks = [node.cpus] if bind == "node" else [()]
            if bind == "core":
                cores = node.cores or tuple((cpu,) for cpu in node.cpus)
                most = max(len(core) for core in cores)
                desks = [core for thread in range(most) for core in cores if len(core) > thread]
            rooms[node.id] = (cycle(desks), memory)
        cpus, memory = rooms[node.id]
        seats.append(Seat(worker=worker, node=node.id, cpus=next(cpus), memory_node=memory))
    return tuple(seats)


def _distance(topology: Topology, node: Node, target: int) -> int:
    for other, distance in zip(topology.nodes, node.distances, strict=False):
        if other.id == target:
            return distance
    return _LOCAL if node.id == target else _REMOTE


def _deal(
    topology: Topology, hosts: Sequence[_Host], near: int | None, *, is_close: bool
) -> Iterator[_Host]:
    """Deal out seats for ever: level by level, and once all are full by the numbers of CPUs."""
    ordered = list(hosts)
    if is_close:
        first = min(hosts, key=lambda host: (host.distance, host.node.id))
        centre = first.node.id if near is None else near
        ordered.sort(
            key=lambda host: (
                host is not first,
                _distance(topology, host.node, centre),
                host.package != first.package,
                host.node.id,
            )
        )
    for level in range(max(len(host.slots) for host in hosts)):
        able = [host for host in ordered if level < len(host.slots)]
        sizes = [host.slots[level] for host in able]
        if is_close:
            for host, size in zip(able, sizes, strict=True):
                yield from [host] * size
        else:
            # While a slot is free its node is the least filled, so all are taken at the end.
            yield from islice(_even(able, sizes), sum(sizes))
    yield from _even(hosts, [len(host.node.cpus) for host in hosts])


def _even(hosts: Sequence[_Host], sizes: Sequence[int]) -> Iterator[_Host]:
    """Deal out seats for ever, each to the host with the smallest part of its size taken."""
    rooms: Counter[tuple[bool, int]] = Counter()
    for host, size in zip(hosts, sizes, strict=True):
        rooms[host.package] += size
    # Filled parts are counted in a common measure of all sizes: whole numbers are exact.
    measure, package_measure = lcm(*sizes), lcm(*rooms.values())
    packages: Counter[tuple[bool, int]] = Counter()
    filled = [0] * len(hosts)
    smallness = [
        (-size, -len(host.node.cpus), *(-slots for slots in host.slots))
        for host, size in zip(hosts, sizes, strict=True)
    ]

    while True:
        _, best = min(
            ((full, small, packages[host.package], host.distance, host.node.id), at)
            for at, (full, small, host) in enumerate(zip(filled, smallness, hosts, strict=True))
        )
        yield hosts[best]
        filled[best] += measure // sizes[best]
        package = hosts[best].package
        packages[package] += package_measure // rooms[package]
