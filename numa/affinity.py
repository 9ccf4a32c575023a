"""Binds the calling thread to a seat for a while, so that a process started then is born there.

Measured: of a child started so 99.5 % of the pages were on its own node; of one that bound itself
after its start 0.5 %, as its interpreter stays where it was born. Nothing here raises because a
machine cannot bind: the report has the actual binding.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from numa import mempolicy
from numa.errors import TopologyError
from numa.kernel_files import cpu_list_text
from numa.model import BindReport, Seat, Topology
from numa.topology import detect, nodes_with_cpus

_MODES = {
    "local": mempolicy.LOCAL,
    "preferred": mempolicy.PREFERRED,
    "bind": mempolicy.BIND,
    "interleave": mempolicy.INTERLEAVE,
}

# The most CPUs that a kernel can be built for (NR_CPUS); it ignores missing CPUs.
_EVERY_CPU = range(8192)


def probe_memory_policy() -> str | None:
    """Return why memory policies cannot be used here, None if they can.

    Really sets one on the calling thread and puts the old one back: in some containers reading a
    policy works and setting one does not.
    """
    reason = mempolicy.unsupported()
    if reason is not None:
        return reason
    with _put_back() as restores:
        try:
            restores.append(partial(_restore_memory, mempolicy.current()))
            nodes = frozenset(sorted(mempolicy.allowed_nodes())[:1])
            mempolicy.apply(mempolicy.PREFERRED, nodes)
        except OSError as error:
            return _refusal(error)
    return None


def probe_cpu_binding() -> str | None:
    """Return why processes cannot be bound to CPUs here, None if they can."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot bind a process to CPUs"
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        return _refusal(error)
    return None


@contextmanager
def seated(seat: Seat, memory_policy: str) -> Iterator[BindReport]:
    """Bind the calling thread to the seat's CPUs and memory; put both back at the end.

    Both are put back after any exception, too, one of a signal handler included. If CPUs or nodes
    are no longer allowed by then, the thread gets all the remaining ones. Without CPUs in the seat
    the CPUs stay, and with `local` the memory policy, too, which may be one of the user.
    `interleave` is over the allowed nodes that have CPUs: other memory serves another purpose, or
    is slower.

    Yields:
        The actual binding. If all the seat's CPUs are refused, as they are off by now, the other
        CPUs of its node are taken; without any, the memory policy stays unchanged, too. A refused
        memory policy leaves the CPUs bound. The note names both.
    """
    with _put_back() as restores:
        cpus, note = _bind_cpus(seat, restores)
        policy = None
        if cpus is not None or not seat.cpus:
            policy, refused = _bind_memory(seat, memory_policy, restores)
            note = "; ".join(text for text in (note, refused) if text) or None
        yield BindReport(cpus=cpus, memory_policy=policy, note=note)


def losses(topology: Topology, memory_policy: str, bind: str = "node") -> tuple[str, ...]:
    """Return notices before a run whose seats are less than requested, a line for each fact.

    They name a degraded topology, nodes whose CPUs are all denied while one node remains, and
    CPUs or a memory policy that the kernel refuses. A plain machine of one node loses nothing.
    """
    notes: list[str] = [] if topology.note is None else [topology.note]
    seated_on = [node.id for node in topology.nodes if node.cpus]
    denied = [node.id for node in topology.nodes if node.cpus_denied and not node.cpus]
    if len(seated_on) == 1 and denied:
        notes.append(
            "this process has only CPUs of one NUMA node: all workers sit on node "
            f"{seated_on[0]}, because this process may use no CPU of node {cpu_list_text(denied)}"
        )
    unbound = None if bind == "none" else probe_cpu_binding()
    if unbound is not None:
        notes.append(_unbound(unbound))
    # Seats that are bound to no CPUs have no memory node that these two could name.
    idle = bind == "none" and memory_policy in ("preferred", "bind")
    idle = idle or policy_is_idle(topology, memory_policy)
    refused = None if idle else probe_memory_policy()
    if refused is not None:
        notes.append(_unset(memory_policy, refused, bound=not unbound and bind != "none"))
    return tuple(notes)


# The notices before a run and the binding share these texts, so that each shows only once.


def _unbound(refusal: str) -> str:
    return f"workers cannot be bound to CPUs ({refusal}): the kernel chooses their CPUs"


def _unset(memory_policy: str, refusal: str, *, bound: bool) -> str:
    rest = "binding CPUs only" if bound else "binding nothing"
    return f"memory policy {memory_policy} cannot be set ({refusal}): {rest}"


def policy_is_idle(topology: Topology, memory_policy: str) -> bool:
    """Return whether memory would lie where the policy wants it without the policy, too.

    So it does with `local`, which is the kernel's own way, and with `preferred` where at most one
    node has memory for us. `bind` and `interleave` are asked for by name, and so never idle.
    """
    if memory_policy == "preferred":
        return sum(node.has_memory for node in topology.nodes) < 2
    return memory_policy == "local"


def _bind_cpus(
    seat: Seat, restores: list[Callable[[], object]]
) -> tuple[tuple[int, ...] | None, str | None]:
    """Return the CPUs that the thread is bound to, and a note on the refusal."""
    if not seat.cpus:
        return None, None
    if not hasattr(os, "sched_setaffinity"):
        return None, "this system cannot bind a process to CPUs: not bound"
    before = os.sched_getaffinity(0)
    restores.append(lambda: _set_cpus(before) or _set_cpus(_EVERY_CPU))
    wanted = cpu_list_text(seat.cpus)
    try:
        os.sched_setaffinity(0, seat.cpus)
    except OSError as error:
        if error.errno != errno.EINVAL:
            return None, _unbound(_refusal(error))
        refused = f"CPUs {wanted} refused ({_refusal(error)})"
        # All of them are off by now, or no longer ours; others of the node may be left.
        cpus: tuple[int, ...] = ()
        with suppress(TopologyError):
            cpus = next((node.cpus for node in detect().nodes if node.id == seat.node), ())
        if not _set_cpus(cpus):
            return None, f"{refused}: not bound"
        return cpus, f"{refused}: bound to CPUs {cpu_list_text(cpus)} of their node"
    # The kernel silently drops CPUs that are offline or outside our cpuset.
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    if set(cpus) == set(seat.cpus):
        return cpus, None
    return cpus, f"of CPUs {wanted} only {cpu_list_text(cpus)} could be bound"


def _bind_memory(
    seat: Seat, name: str, restores: list[Callable[[], object]]
) -> tuple[str | None, str | None]:
    """Return the policy that was set, and a note on the refusal."""
    if name == "local" and not seat.cpus:
        return None, None
    nodes: frozenset[int] = frozenset()
    if name in ("preferred", "bind"):
        if seat.memory_node is None:
            # An unbound seat has no memory node by intent; a bound one lacks something.
            lacking = (
                f"node {seat.node} has no memory that this process may use: memory policy "
                f"{name} not set"
            )
            return None, lacking if seat.cpus else None
        nodes = frozenset((seat.memory_node,))
    reason = mempolicy.unsupported()
    if reason is None:
        try:
            restores.append(partial(_restore_memory, mempolicy.current()))
            if name == "interleave":
                allowed = mempolicy.allowed_nodes()
                nodes = allowed & nodes_with_cpus() or allowed
            mempolicy.apply(_MODES[name], nodes)
        except OSError as error:
            reason = _refusal(error)
    if reason is None:
        return name, None
    # Without a policy the kernel does what `local` asks for.
    return None, None if name == "local" else _unset(name, reason, bound=bool(seat.cpus))


@contextmanager
def _put_back() -> Iterator[list[Callable[[], object]]]:
    """Run the functions of the list at the end, each of which puts a state back.

    Add it before the state is changed: an interrupt may come right after.
    """
    restores: list[Callable[[], object]] = []
    try:
        try:
            yield restores
        finally:
            for restore in restores:
                restore()
    finally:
        # Again, because the exception of a signal handler may have interrupted the first time.
        for restore in restores:
            restore()


def _restore_memory(before: tuple[int, frozenset[int]]) -> None:
    try:
        mempolicy.apply(*before)
    except OSError:
        # Where even that is refused, nothing was set.
        with suppress(OSError):
            mempolicy.apply(mempolicy.DEFAULT)


def _set_cpus(cpus: Iterable[int]) -> bool:
    """Bind the calling thread; return whether the kernel let us."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        return False
    return True


def _refusal(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')}, {error.strerror}"
