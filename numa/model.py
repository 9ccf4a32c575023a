"""Types that travel: the machine, the seats on it, and the events of the pool.

All are frozen and picklable; all but the events (whose payloads are the caller's) are JSON-able.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One NUMA node, cut down to what this process may use."""

    id: int
    cpus: tuple[int, ...]
    """CPUs of the node that are in our affinity mask, ascending; empty on a memory-only node."""
    memory_bytes: int | None
    """`MemTotal` of the node; 0 on a node without memory, None if not known."""
    distances: tuple[int, ...] = ()
    """To each node, in the order of `Topology.nodes` (10 = itself); empty if not known."""
    cores: tuple[tuple[int, ...], ...] = ()
    """`cpus` grouped by physical core, ascending; empty = every CPU is a core of its own."""
    memory_allowed: bool = True
    """False if our cpuset forbids the node's memory."""

    @property
    def has_memory(self) -> bool:
        """Whether a memory policy may name this node."""
        return bool(self.memory_bytes) and self.memory_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The nodes this process may use, lowest id first. A CPU is in one node only."""

    nodes: tuple[Node, ...]
    cpu_quota: float | None
    """CPUs' worth of time the control group grants; None = no limit."""
    note: str | None
    """One line saying why this is less than the whole truth; None if it is not."""

    @property
    def usable_cpus(self) -> int:
        """CPUs we may use at once: those of all nodes, at most the quota rounded down, least 1."""
        count = len({cpu for node in self.nodes for cpu in node.cpus})
        if self.cpu_quota is not None:
            count = min(count, math.floor(self.cpu_quota))
        return max(count, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where one worker sits."""

    worker: int
    """Number of the worker, from 0."""
    node: int
    cpus: tuple[int, ...]
    """CPUs to bind to, ascending; empty = not bound."""
    memory_node: int | None
    """Node to take memory from; None if the node has none we may use, or nothing is bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindReport:
    """What a seat's binding really came to, as read back from the kernel."""

    cpus: tuple[int, ...] | None
    """CPUs bound to; None = not bound."""
    memory_policy: str | None
    """`local`, `preferred`, `bind` or `interleave`; None = none was set."""
    note: str | None
    """One line on what was asked for and not had; None if all was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The worker's process is up and has imported its function."""

    worker: int
    pid: int
    bound: BindReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The task sent something by `report(payload)`."""

    worker: int
    payload: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The task returned; the worker is idle again."""

    worker: int
    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The task raised, or its result could not be sent; the worker is idle again."""

    worker: int
    kind: str
    """Class name of the exception."""
    message: str
    traceback: str
    """As Python prints it, from the task's own frame on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The worker's process is gone and reaped; `Pool.start` puts a new one on the seat."""

    worker: int
    exit_code: int
    """As `subprocess` has it: negative = died of that signal."""
    task: object | None
    """The task it was on, or None if it was idle."""
    detail: str
    """How it ended, then the last 4 KB of its standard error."""


Event: TypeAlias = Ready | Message | Finished | Raised | Lost
