"""The tables of nodes and seats, for `topology` and `plan`.

They are readable for one worker and for thousands: workers of one node share a line, and where
there are too many lines, nodes that are alike share one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from numa.model import Node, Seat, Topology
from unloader.cli.display import render
from unloader.cli.display.render import folded_table, ranges

_Item = TypeVar("_Item")

MOST_LINES = 40
"""Above it a coarser grouping of the seats is taken."""

MOST_NODE_LINES = 32
"""Above it nodes that are alike share a line."""

_LARGEST_MATRIX = 16
"""The most nodes whose distances are all shown."""

_MEMORY = {"interleave": "all nodes with CPUs, by turns", "local": "where it runs"}
"""Of policies that name no node."""


def _grouped(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[list[_Item]]:
    """Return the items of each key, in the order of their first items."""
    found: dict[Hashable, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def seat_table(topology: Topology, seats: tuple[Seat, ...], memory_policy: str, width: int) -> str:
    """Return who sits where, in lines no longer than the width: the finest short grouping."""
    crowd = Counter(seat.node for seat in seats)
    groups = _grouped(seats, lambda seat: seat.cpus and (seat.node, seat.cpus, seat.memory_node))
    if len(groups) > MOST_LINES:
        groups = _grouped(seats, lambda seat: (seat.node, seat.memory_node))
    if len(groups) > MOST_LINES:
        groups = _grouped(
            seats, lambda seat: (crowd[seat.node], len(seat.cpus), _memory_kind(seat))
        )
    whole = {node.cpus for node in topology.nodes}
    sizes = {node.id: node.memory_bytes for node in topology.nodes}
    rows = []
    for group in groups:
        bound = {seat.cpus for seat in group}
        cpus = "its node's" if bound <= whole else "a core of its node"
        if bound == {()}:
            cpus = "any"
        elif len(bound) == 1:
            cpus = ranges(group[0].cpus)
        elif len({seat.node for seat in group}) == 1:
            cpus = f"one core each of {ranges(cpu for each in bound for cpu in each)}"
        lender, *others = {seat.memory_node for seat in group}
        memory = "its node" if _memory_kind(group[0]) == "own" else "the nearest node"
        if not others:
            size = None if lender is None else sizes.get(lender)
            memory = "any" if lender is None else f"node {lender}"
            memory += "" if size is None else f", {render.size(size)}"
        # Where nothing is bound, a seat's node is only the one it was counted for.
        nodes = ranges(seat.node for seat in group) if any(bound) else "any"
        workers = ranges(seat.worker for seat in group)
        rows.append((workers, nodes, cpus, _MEMORY.get(memory_policy) or memory))
    heads, fold = (">worker", ">node", "CPUs", "memory from"), (">worker", ">node", "CPUs")
    return folded_table(heads, rows, fold=frozenset(fold), width=width)


def _memory_kind(seat: Seat) -> str:
    if seat.memory_node is None:
        return "any"
    return "own" if seat.memory_node == seat.node else "other"


def node_table(topology: Topology, seats: tuple[Seat, ...], width: int) -> str:
    """Return a line for each node, or for nodes that are alike, with the workers on it."""
    workers = Counter(seat.node for seat in seats)
    most_cpus = max((len(node.cpus) for node in topology.nodes), default=0)

    def likeness(node: Node) -> tuple[Hashable, ...]:
        cores = tuple(cores_by_threads((node,)).items())
        memory = bool(node.memory_bytes), node.memory_allowed
        return cores, len(node.cpus_denied), *memory, workers[node.id]

    groups = [[node] for node in topology.nodes]
    if len(groups) > MOST_NODE_LINES:
        groups = _grouped(topology.nodes, lambda node: (node.package, *likeness(node)))
    if len(groups) > MOST_NODE_LINES:
        groups = _grouped(topology.nodes, likeness)
    rows = []
    for nodes in groups:
        first, each = nodes[0], " each" if len(nodes) > 1 else ""
        packages = [node.package for node in nodes if node.package is not None]
        cores = " + ".join(f"{n} x {threads}" for threads, n in cores_by_threads((first,)).items())
        by_size = sorted((node.memory_bytes for node in nodes), key=lambda size: size or 0)
        sizes = [render.size(size) for size in by_size]
        memory = sizes[0] if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        denied = ranges(cpu for node in nodes for cpu in node.cpus_denied)
        not_ours = [f"CPUs {denied}"] if denied else []
        not_ours += [] if first.memory_allowed else ["memory"]
        mine, cpus = workers[first.id], len(first.cpus)
        load = "no usable CPU" if first.cpus_denied else "has no CPUs"
        if cpus:
            length = max(1, round((12 if width < 100 else 24) * cpus / most_cpus))
            full = min(length, -(-length * mine // cpus))
            load = f"{'#' * full}{'.' * (length - full)} {mine} on {cpus}{each}"
        rows.append(
            (
                ranges(node.id for node in nodes),
                ranges(packages) or render.UNKNOWN,
                ranges(cpu for node in nodes for cpu in node.cpus) or render.UNKNOWN,
                cores + each if cores else render.UNKNOWN,
                ("none" if first.memory_bytes == 0 else memory) + each,
                ", ".join(not_ours),
                load,
            )
        )
    heads = [">node", ">socket", "CPUs", "cores", ">memory", "not usable", "workers"]
    # Columns that say nothing: unknown sockets, CPUs that are all usable, workers without seats.
    empty = {at for at in (1, 5) if all(row[at] in ("", render.UNKNOWN) for row in rows)}
    empty |= set() if any(seat.cpus for seat in seats) else {6}
    kept = [at for at in range(len(heads)) if at not in empty]
    return folded_table(
        [heads[at] for at in kept],
        ([row[at] for at in kept] for row in rows),
        fold=frozenset((">node", ">socket", "CPUs", "cores", "not usable")),
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


def cores_by_threads(nodes: Iterable[Node]) -> dict[int, int]:
    """Return how many cores there are of each number of threads, most threads first."""
    sizes = Counter(len(core) for node in nodes for core in node.cores or zip(node.cpus))
    return dict(sorted(sizes.items(), reverse=True))
