"""The table of seats, for `topology` and `plan` alike: readable for one worker and for thousands.

Workers of one node share a line; where there are too many lines, so do nodes that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.columns import folded_table, ranges

if TYPE_CHECKING:
    from numa.model import Seat, Topology

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
