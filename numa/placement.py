"""Turns nodes and a parallelism into seats. Pure: the same input gives the same seats.

Seats are dealt one after the other, so those for n workers are the first of those for n + 1.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from numa.errors import PlacementError
from numa.model import Node, Seat, Topology

PLACEMENTS = ("spread", "close")
BINDS = ("node", "core", "none")


def place(
    topology: Topology,
    parallelism: int,
    *,
    placement: str = "spread",
    bind: str = "node",
    nodes: tuple[int, ...] | None = None,
) -> tuple[Seat, ...]:
    """Return one seat for each worker, worker 0 first.

    `spread` gives each seat to the node with the fewest workers for its number of CPUs (of equals
    the larger, then the lowest id): equal nodes never differ by more than one worker, and no node
    gets more workers than CPUs while another has a CPU free. `close` fills the cores of the first
    node, then those of the next; after the last come the second threads of the cores in the same
    order, and then it goes on as `spread` does.

    Args:
        topology: Nodes to sit on; those without CPUs get no seat.
        parallelism: Number of workers, at least 1; may exceed the number of CPUs.
        placement: `spread` or `close`.
        bind: `node` = all the node's CPUs; `core` = the CPUs of one core, every core of the node
            once before any gets a second worker; `none` = no CPUs and no memory node.
        nodes: Ids of the nodes to use, in any order; None = all.
    Raises:
        PlacementError: A value is out of range, or a node is not there or has no CPUs.
    """
    if parallelism < 1:
        raise PlacementError(f"parallelism is {parallelism}. Next: ask for 1 or more workers.")
    _check("placement", placement, PLACEMENTS)
    _check("bind", bind, BINDS)
    hosts = _hosts(topology, nodes)
    deal = _spread(hosts, Counter()) if placement == "spread" else _close(hosts)
    seated: Counter[int] = Counter()
    seats: list[Seat] = []
    for worker, node in enumerate(islice(deal, parallelism)):
        seats.append(_seat(worker, node, seated[node.id], bind))
        seated[node.id] += 1
    return tuple(seats)


def _spread(hosts: tuple[Node, ...], loads: Counter[int]) -> Iterator[Node]:
    """Deal out seats for ever, given the workers each node has already."""
    while True:
        node = min(hosts, key=lambda n: (Fraction(loads[n.id], len(n.cpus)), -len(n.cpus), n.id))
        loads[node.id] += 1
        yield node


def _close(hosts: tuple[Node, ...]) -> Iterator[Node]:
    loads: Counter[int] = Counter()
    widest = max(len(core) for node in hosts for core in _cores(node))
    for thread in range(widest):
        for node in hosts:
            for core in _cores(node):
                if thread < len(core):
                    loads[node.id] += 1
                    yield node
    yield from _spread(hosts, loads)


def _seat(worker: int, node: Node, neighbours: int, bind: str) -> Seat:
    """The next seat on a node where so many workers sit already."""
    if bind == "none":
        # Memory of one node for a process that roams over all would be mostly remote.
        return Seat(worker=worker, node=node.id, cpus=(), memory_node=None)
    cpus = node.cpus
    if bind == "core":
        cores = _cores(node)
        widest = max(len(core) for core in cores)
        slots = [core for thread in range(widest) for core in cores if thread < len(core)]
        cpus = slots[neighbours % len(slots)]
    return Seat(
        worker=worker, node=node.id, cpus=cpus, memory_node=node.id if node.has_memory else None
    )


def _cores(node: Node) -> tuple[tuple[int, ...], ...]:
    return node.cores or tuple((cpu,) for cpu in node.cpus)


def _hosts(topology: Topology, wanted: tuple[int, ...] | None) -> tuple[Node, ...]:
    able = {node.id: node for node in topology.nodes if node.cpus}
    choice = ", ".join(str(node_id) for node_id in sorted(able)) or "none"
    if wanted is None:
        wanted = tuple(able)
    if not wanted:
        raise PlacementError(
            f"no node to place workers on. Next: name some of the nodes with CPUs: {choice}."
        )
    known = {node.id for node in topology.nodes}
    for node_id in wanted:
        if node_id not in able:
            why = "has no CPU this process may use" if node_id in known else "is not there"
            raise PlacementError(f"node {node_id} {why}. Next: choose among nodes {choice}.")
    return tuple(able[node_id] for node_id in sorted(set(wanted)))


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PlacementError(f"{option} is {value!r}. Next: choose among {', '.join(allowed)}.")
