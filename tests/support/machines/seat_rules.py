"""The rules that seats are judged by, written again: nothing here asks the code that deals them."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from numa.model import Node, Seat, Topology

SHARED = 1_000
"""Level of a seat on CPUs that are all taken."""


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the number of cores with at least one thread, at least two and so on."""
    cores = node.cores or tuple((cpu,) for cpu in node.cpus)
    widest = max((len(core) for core in cores), default=0)
    return tuple(sum(len(core) >= level for core in cores) for level in range(1, widest + 1))


def position(shape: tuple[int, ...], load: int) -> tuple[int, int, int]:
    """Return the level of a node's next seat, how many it has there and how many there are."""
    for level, slots in enumerate(shape, start=1):
        if load < slots:
            return level, load, slots
        load -= slots
    # Anyone who is full begins again, with one more round of all its CPUs.
    return SHARED, load, sum(shape)


class Ledger:
    """Follows a deal seat by seat and asserts the rules after each; each step is cheap."""

    def __init__(self, topology: Topology, *, spread: bool) -> None:
        self.spread = spread
        self.shapes = {node.id: shape_of(node) for node in topology.nodes if node.cpus}
        self.loads = dict.fromkeys(self.shapes, 0)
        self.next_levels = Counter[int]({1: len(self.shapes)})
        self.of_shape = {shape: Counter[int]() for shape in self.shapes.values()}
        for shape in self.shapes.values():
            self.of_shape[shape][0] += 1
        self.dealt_on_level = Counter[int]()

    def follow(self, seats: Iterable[Seat]) -> None:
        """Take the seats one after the other."""
        for seat in seats:
            self.take(seat.node)

    def take(self, node: int) -> None:
        """Seat a worker on the node and check what must then hold."""
        shape, load = self.shapes[node], self.loads[node]
        level, taken, slots = position(shape, load)
        assert level == min(self.next_levels), f"node {node}: level {level} begun too early"
        self._move(self.next_levels, level, position(shape, load + 1)[0])
        self._move(self.of_shape[shape], load, load + 1)
        self.loads[node] = load + 1
        self.dealt_on_level[level] += 1
        if self.spread or level == SHARED:
            self._check_fair(node, (level, taken + 1, slots))
        if self.spread:
            self._check_equal(shape, node)

    def _check_fair(self, node: int, seated: tuple[int, int, int]) -> None:
        level, taken, slots = seated
        dealt = self.dealt_on_level[level]
        total = sum(
            sum(shape) if level == SHARED else shape[level - 1]
            for shape in self.shapes.values()
            if level == SHARED or level <= len(shape)
        )
        fair = Fraction(dealt * slots, total)
        assert taken < fair + 1, f"node {node} has {taken} on level {level}, {fair} are fair"

    def _check_equal(self, shape: tuple[int, ...], node: int) -> None:
        among = self.of_shape[shape]
        assert max(among) - min(among) <= 1, f"nodes equal to {node}: {dict(among)}"
        if self.loads[node] > 1:
            idle = [other for other in self.of_shape.values() if 0 in other]
            assert not idle, f"a node idles while {node} has {self.loads[node]}"

    @staticmethod
    def _move(counts: Counter[int], old: int, new: int) -> None:
        counts[old] -= 1
        if not counts[old]:
            del counts[old]
        counts[new] += 1
