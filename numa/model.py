"""Types that travel: the machine, the seats on it, the events of the pool, and the errors.

All records are frozen and picklable. All except the events (whose payloads are the caller's) are
JSON-able. All arguments of errors are positional texts, so that each error pickles.
"""

import math
from typing import Literal, TypeAlias

from msgspec import Struct


class NumaError(Exception):
    """Base of the errors of this package: what failed, and what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        """What to do about it; empty if nothing is known."""

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}" if self.hint else self.message


class TopologyError(NumaError):
    """A file that describes the machine cannot be understood; names the file and its text."""


class PlacementError(NumaError):
    """The requested seats are unavailable: a bad node list, option value or parallelism."""


class PoolError(NumaError):
    """The pool was used against its rules, or a process could not be started."""


class StartError(PoolError):
    """The system refused a process: it is short of processes, files, memory or temporary space."""


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One NUMA node, cut down to what this process may use."""

    id: int
    cpus: tuple[int, ...]
    """CPUs of the node that are in our affinity mask, ascending; empty on a memory-only node."""
    memory_bytes: int | None
    """`MemTotal` of the node; 0 on a node without memory, None if not known."""
    memory_allowed: bool = True
    """False if our cpuset forbids the node's memory."""
    distances: tuple[int, ...] = ()
    """To each node, in the order of `Topology.nodes` (10 = itself); empty if not known."""
    cores: tuple[tuple[int, ...], ...] = ()
    """`cpus` grouped by physical core, the fastest cores first and then ascending; empty = every
    CPU is a separate core."""
    speeds: tuple[int, ...] = ()
    """Relative speed of each of `cores`; empty if all are alike or it is not known."""
    package: int | None = None
    """The physical package (socket) all its CPUs are in; None if not known, or several."""
    cpus_denied: tuple[int, ...] = ()
    """Online CPUs of the node that we may not use, ascending."""

    @property
    def has_memory(self) -> bool:
        """Whether a memory policy may name this node."""
        return bool(self.memory_bytes) and self.memory_allowed


class Topology(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes this process may use, lowest id first. A CPU is in one node only."""

    nodes: tuple[Node, ...]
    cpu_quota: float | None
    """CPUs' worth of time the control group grants; None = no limit."""
    note: str | None
    """One line saying why this is less than the whole truth; None if it is not."""
    offline_cpus: tuple[int, ...] = ()
    """CPUs of the machine that are switched off, ascending; they are in no node."""

    def memory_for(self, node: Node) -> int | None:
        """Return the node whose memory is nearest to this one's CPUs, itself if it has any.

        Nearest by `distances`, of equals (or without distances) the lowest id; None if no node
        has memory a policy may name.
        """
        if node.has_memory:
            return node.id
        able = [
            (node.distances[index] if node.distances else 0, other.id)
            for index, other in enumerate(self.nodes)
            if other.has_memory
        ]
        return min(able)[1] if able else None

    @property
    def usable_cpus(self) -> int:
        """The number of CPUs of all nodes, at most the quota rounded down, at least 1."""
        count = len({cpu for node in self.nodes for cpu in node.cpus})
        if self.cpu_quota is not None:
            count = min(count, math.floor(self.cpu_quota))
        return max(count, 1)


class Seat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one worker sits."""

    worker: int
    """Number of the worker, from 0."""
    node: int
    cpus: tuple[int, ...]
    """CPUs to bind to, ascending; empty = not bound."""
    memory_node: int | None
    """Node to take memory from: its own, or the nearest with memory we may use; None if no node
    has any, or nothing is bound."""


class DeviceNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """The kernel's name: `eth0`, `nvme0n1p1`; a path without a device."""
    kind: str
    """`network` or `block`."""
    node: int | None
    """None = the kernel does not say, or it is made of devices of several nodes."""
    note: str | None
    """One line on why the node is unknown; None with a node."""


class BindReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The actual binding of a seat, as read back from the kernel."""

    cpus: tuple[int, ...] | None
    """CPUs bound to; None = not bound."""
    memory_policy: str | None
    """`local`, `preferred`, `bind` or `interleave`; None = none was set."""
    note: str | None
    """One line on refused requests; None without a refusal."""


class Residence(Struct, frozen=True, kw_only=True):
    """The places where a process was seen so far, as the kernel reports them."""

    cpus: tuple[int, ...] = ()
    """CPUs that its threads were on when looked at, ascending."""
    memory: tuple[tuple[int, int], ...] = ()
    """(node, bytes) of its private memory at the last look, ascending by node; empty if unknown.
    Private memory has no file: heap, stacks, buffers."""
    file_memory: tuple[tuple[int, int], ...] = ()
    """(node, bytes) of the files it maps (programs, libraries): shared by all who map them, and
    where the first of them put them; empty if not known."""
    allowed_cpus: tuple[int, ...] = ()
    """CPUs that its main thread might use at the last look, ascending; empty if not known."""
    note: str | None = None
    """One line on what could not be seen; None if all could."""
    pid: int = 0
    page_looks: int = 0
    """How many times its memory was looked at, successfully or not."""

    def local_share(self, node: int) -> float | None:
        """Return the part of its private memory that is on the node, 0 to 1; None if unknown."""
        total = sum(size for _, size in self.memory)
        return dict(self.memory).get(node, 0) / total if total else None


class Ready(Struct, frozen=True, kw_only=True):
    """The worker's process is up and has imported its function."""

    worker: int
    pid: int
    bound: BindReport


class Message(Struct, frozen=True, kw_only=True):
    """The task sent something by `report(payload)`."""

    worker: int
    payload: object


class Finished(Struct, frozen=True, kw_only=True):
    """The task returned; the worker is idle again."""

    worker: int
    result: object


class Raised(Struct, frozen=True, kw_only=True):
    """The task raised, or its result could not be sent; the worker is idle again."""

    worker: int
    kind: str
    """Class name of the exception."""
    message: str
    traceback: str
    """As Python prints it, from the task's own frame on."""


LostReason: TypeAlias = Literal["lost", "refused", "not up", "too large", "stopped"]
"""The process died; the system refused one; it was ended as too slow to start, as too large, or by
the caller."""


class Lost(Struct, frozen=True, kw_only=True):
    """The worker has no process any more, or still none; the task that it had has ended with it."""

    worker: int
    detail: str
    """How the process ended, then the last 4 KB of its standard error; or the system's error."""
    reason: LostReason = "lost"
    exit_code: int | None = None
    """The code of `subprocess`: negative = died of that signal. None without a process."""
    task: object | None = None
    """The task it was on, or None if it was idle."""
    cause: object = None
    """The caller's reason for `Pool.stop`."""
    hint: str = ""
    """What to do about a refusal."""
    held_bytes: int = 0
    """What one that was too large held."""
    hopeless: bool = False
    """The pool starts no more processes there."""


WorkerEvent: TypeAlias = Ready | Message | Finished | Raised | Lost
"""The first four are sent by the worker's process itself, and reach the caller as they are."""


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """When a process is replaced. 0 sets no limit."""

    start_seconds: float = 60.0
    """Longest time for a process to start, import the function and do its warm-up: a busy machine
    takes seconds to start one."""
    memory_bytes: int = 0
    """A process that holds more after a task is replaced before its next one. Linux."""
    task_memory_bytes: int = 0
    """A process that holds more is ended in the middle of its task, as the kernel would. Linux."""
