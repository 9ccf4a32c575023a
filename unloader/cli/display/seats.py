"""The tables of nodes and seats, for `topology` and `plan`.

They are readable for one worker and for thousands: workers of one node share a line, and where
there are too many lines, nodes that are alike share one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.render import folded_table, ranges

if TYPE_CHECKING:
    from numa.model import Node, Seat, Topology


MOST_LINES = 40
"""Above it a coarser grouping is taken."""

_FOLDED = frozenset({">worker", ">node", "CPUs"})


_MEMORY = {"interleave": "all nodes with CPUs, by turns", "local": "where it runs"}
"""Of policies that name no node."""


def seat_table(topology: Topology, seats: tuple[Seat, ...], memory_policy: str, width: int) -> str:
    """Return who sits where, in lines no longer than the width."""
    heads = (">worker", ">node", "CPUs", "memory from")
    rows = [
        (*_row(topology, group), _MEMORY.get(memory_policy) or _memory(topology, group))
        for group in _groups(seats)
    ]
    return folded_table(heads, rows, fold=_FOLDED, width=width)


def _groups(seats: tuple[Seat, ...]) -> list[list[Seat]]:
    """Return the workers of each line: the finest grouping that is short enough."""
    crowd: dict[int, int] = {}
    for seat in seats:
        crowd[seat.node] = crowd.get(seat.node, 0) + 1
    ways: tuple[Callable[[Seat], Hashable], ...] = (
        lambda seat: seat.cpus and (seat.node, seat.cpus, seat.memory_node),
        lambda seat: (seat.node, seat.memory_node),
        lambda seat: (crowd[seat.node], len(seat.cpus), _memory_kind(seat)),
    )
    found: list[list[Seat]] = []
    for way in ways:
        lines: dict[Hashable, list[Seat]] = {}
        for seat in seats:
            lines.setdefault(way(seat), []).append(seat)
        found = list(lines.values())
        if len(found) <= MOST_LINES:
            break
    return found


def _row(topology: Topology, group: list[Seat]) -> tuple[str, ...]:
    # Where nothing is bound a seat's node is but the one it was counted for.
    bound = any(seat.cpus for seat in group)
    return (
        ranges(seat.worker for seat in group),
        ranges(seat.node for seat in group) if bound else "any",
        _cpus(topology, group),
    )


def _cpus(topology: Topology, group: list[Seat]) -> str:
    bound = {seat.cpus for seat in group}
    if bound == {()}:
        return "any"
    if len(bound) == 1:
        return ranges(group[0].cpus)
    if len({seat.node for seat in group}) == 1:
        return f"one core each of {ranges(cpu for cpus in bound for cpu in cpus)}"
    whole = {node.cpus for node in topology.nodes}
    return "its node's" if bound <= whole else "a core of its node"


def _memory(topology: Topology, group: list[Seat]) -> str:
    """Return whose memory the workers take, and how much that node has."""
    sizes = {node.id: node.memory_bytes for node in topology.nodes}
    nodes = {seat.memory_node for seat in group}
    if nodes == {None}:
        return "any"
    if len(nodes) == 1:
        (node,) = nodes
        size = render.size(sizes.get(node)) if node is not None else render.UNKNOWN
        return f"node {node}, {size}" if size != render.UNKNOWN else f"node {node}"
    return "its node" if _memory_kind(group[0]) == "own" else "the nearest node"


def _memory_kind(seat: Seat) -> str:
    if seat.memory_node is None:
        return "any"
    return "own" if seat.memory_node == seat.node else "other"


def spread_of(values: Iterable[int | None], shown: Callable[[int | None], str]) -> str:
    """Return what all have, or from the least to the most."""
    texts = [shown(value) for value in sorted(values, key=lambda value: value or 0)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


MOST_NODE_LINES = 32
"""Above it nodes that are alike share a line."""

_FOLDED_NODES = frozenset({">node", ">socket", "CPUs", "cores", "not usable"})

_LARGEST_MATRIX = 16
"""The most nodes whose distances are all shown."""


def node_table(topology: Topology, seats: tuple[Seat, ...], width: int) -> str:
    """Return a line for each node, or for nodes that are alike, with the workers on it."""
    workers = Counter(seat.node for seat in seats)
    columns = _Columns(topology, workers, bar=12 if width < 100 else 24)
    rows = [columns.row(group) for group in _node_groups(topology, workers)]
    heads = [">node", ">socket", "CPUs", "cores", ">memory", "not usable", "workers"]
    empty = {at for at in (1, 5) if all(row[at] in ("", render.UNKNOWN) for row in rows)}
    empty |= set() if any(seat.cpus for seat in seats) else {6}
    kept = [at for at in range(len(heads)) if at not in empty]
    return folded_table(
        [heads[at] for at in kept],
        ([row[at] for at in kept] for row in rows),
        fold=_FOLDED_NODES,
        width=width,
    )


def distances(topology: Topology, width: int) -> str:
    """Return the matrix of distances if it is small, else which there are; empty if unknown."""
    nodes = topology.nodes
    if len(nodes) < 2 or not all(len(node.distances) == len(nodes) for node in nodes):
        return ""
    if len(nodes) <= _LARGEST_MATRIX:
        matrix = render.table(
            ("distance from", *(f">to {node.id}" for node in nodes)),
            ((f"node {node.id}", *map(str, node.distances)) for node in nodes),
        )
        if max(map(len, matrix.splitlines())) <= width:
            return matrix
    found = Counter(distance for node in nodes for distance in node.distances)
    pairs = ((str(each), render.count(found[each])) for each in sorted(found))
    return render.table((">distance", ">pairs of nodes"), pairs)


def _node_groups(topology: Topology, workers: Counter[int]) -> list[list[Node]]:
    """Return the nodes of each line, in the order of their lowest ids."""
    if len(topology.nodes) <= MOST_NODE_LINES:
        return [[node] for node in topology.nodes]
    for by_socket in (True, False):
        lines: dict[Hashable, list[Node]] = {}
        for node in topology.nodes:
            socket = node.package if by_socket else None
            lines.setdefault((socket, *_likeness(node), workers[node.id]), []).append(node)
        if len(lines) <= MOST_NODE_LINES:
            break
    return list(lines.values())


def _likeness(node: Node) -> tuple[Hashable, ...]:
    shape = tuple(cores_by_threads((node,)).items())
    return shape, len(node.cpus_denied), bool(node.memory_bytes), node.memory_allowed


class _Columns:
    """The cells of one line, which may represent several nodes."""

    def __init__(self, topology: Topology, workers: Counter[int], *, bar: int) -> None:
        self._workers = workers
        self._most_cpus = max((len(node.cpus) for node in topology.nodes), default=0)
        self._bar = bar

    def row(self, nodes: list[Node]) -> tuple[str, ...]:
        first, several = nodes[0], len(nodes) > 1
        each = " each" if several else ""
        packages = {node.package for node in nodes} - {None}
        cores = _threads(first)
        return (
            ranges(node.id for node in nodes),
            ranges(each for each in packages if each is not None) or render.UNKNOWN,
            ranges(cpu for node in nodes for cpu in node.cpus) or render.UNKNOWN,
            cores + each if cores != render.UNKNOWN else cores,
            self._memory(nodes) + each,
            _not_ours(nodes),
            self._load(first, several),
        )

    def _memory(self, nodes: list[Node]) -> str:
        if nodes[0].memory_bytes == 0:
            return "none"
        return spread_of((node.memory_bytes for node in nodes), render.size)

    def _load(self, node: Node, several: bool) -> str:
        workers, cpus = self._workers[node.id], len(node.cpus)
        if not cpus:
            return "no usable CPU" if node.cpus_denied else "has no CPUs"
        length = max(1, round(self._bar * cpus / self._most_cpus))
        full = min(length, -(-length * workers // cpus))
        drawn = "#" * full + "." * (length - full)
        return f"{drawn} {workers} on {cpus}" + (" each" if several else "")


def _not_ours(nodes: list[Node]) -> str:
    denied = ranges(cpu for node in nodes for cpu in node.cpus_denied)
    parts = [f"CPUs {denied}"] if denied else []
    parts += [] if nodes[0].memory_allowed else ["memory"]
    return ", ".join(parts)


def _threads(node: Node) -> str:
    """Return the cores by how many threads each has: `16 x 2`, or `8 x 2 + 16 x 1`."""
    parts = (f"{cores} x {threads}" for threads, cores in cores_by_threads((node,)).items())
    return " + ".join(parts) or render.UNKNOWN


def cores_by_threads(nodes: Iterable[Node]) -> dict[int, int]:
    """Return how many cores there are of each number of threads, most threads first."""
    sizes = Counter(len(core) for node in nodes for core in node.cores or zip(node.cpus))
    return dict(sorted(sizes.items(), reverse=True))
