"""Binds the calling thread to a seat for a while, so that a process started then is born there.

Measured: of a child started so 99.5 % of the pages were on its own node; of one that bound itself
after its start 0.5 %, as its interpreter stays where it was born. Nothing here raises because a
machine cannot bind: the report has the actual binding.

The system calls for memory policies are made through libc without a library. Sources:
set_mempolicy(2), get_mempolicy(2) and the kernel's system-call tables. On aarch64 and riscv64
number 238 is migrate_pages, so an unknown machine gets no call at all.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numa.kernel_files import cpu_list_text
from numa.model import BindReport, Seat, Topology, TopologyError
from numa.topology import detect, nodes_with_cpus

_DEFAULT = 0
MODES = {"preferred": 1, "bind": 2, "interleave": 3, "local": 4}

_CALL_NUMBERS = {
    "x86_64": (238, 239),
    "aarch64": (237, 236),
    "riscv64": (237, 236),
    "ppc64le": (261, 260),
    "s390x": (270, 269),
}
"""Machine to the numbers of set_mempolicy and get_mempolicy."""

MEMS_ALLOWED = 4
_WORD_BITS = 64
# Kernels are built for at most 1024 nodes (NODES_SHIFT 10); a shorter mask is refused.
_WORDS = 1024 // _WORD_BITS
# The kernel counts one bit more than it reads.
_MAX_NODE = ctypes.c_long(1024 + 1)

# The most CPUs that a kernel can be built for (NR_CPUS); it ignores missing CPUs.
_EVERY_CPU = range(8192)

_Restores = list[tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]]
"""Functions that put a state back, each with its arguments, and those for where these fail."""


def policy_of_thread(flags: int = 0) -> tuple[int, frozenset[int]]:
    """Return the calling thread's memory policy: the mode, with its flags, and the nodes it names.

    With `MEMS_ALLOWED`, the nodes that a policy of this thread may name. The kernel may
    refuse with an `OSError`: `ENOSYS` without NUMA, `EPERM` in some containers.
    """
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * _WORDS)()
    _call(1, ctypes.byref(mode), mask, _MAX_NODE, None, ctypes.c_long(flags))
    named = sum(word << at * _WORD_BITS for at, word in enumerate(mask))
    bits = enumerate(reversed(f"{named:b}"))
    return mode.value, frozenset(node for node, bit in bits if bit == "1")


def set_policy_of_thread(mode: int, nodes: frozenset[int] = frozenset()) -> None:
    """Set the policy of the calling thread and of later child processes.

    Refused as `policy_of_thread`, and with `EINVAL` for a node without memory or outside our
    cpuset.
    """
    mask = (ctypes.c_ulong * _WORDS)()
    for node in nodes:
        if not 0 <= node < _WORDS * _WORD_BITS:
            raise OSError(errno.EINVAL, f"node {node} cannot exist")
        mask[node // _WORD_BITS] |= 1 << (node % _WORD_BITS)
    used, most = (mask, _MAX_NODE) if nodes else (None, ctypes.c_long(0))
    _call(0, ctypes.c_long(mode), used, most)


def _call(which: int, *arguments: object) -> None:
    # A plain int would go as a C int, and libc's syscall() reads longs.
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALL_NUMBERS[os.uname().machine][which]
    if libc.syscall(ctypes.c_long(number), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def probe_memory_policy() -> str | None:
    """Return why memory policies cannot be used here, None if they can.

    Really sets one on the calling thread and puts the old one back: in some containers reading a
    policy works and setting one does not.
    """
    with _put_back() as restores:
        return _set_policy("preferred", None, restores)


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

    The report has the actual binding. If all the seat's CPUs are refused, as they are off by now,
    the other CPUs of its node are taken; without any, the memory policy stays unchanged, too. A
    refused memory policy leaves the CPUs bound. The note names both.
    """
    notes: list[str] = []
    cpus: tuple[int, ...] | None = None
    policy = None
    with _put_back() as restores:
        if seat.cpus and not hasattr(os, "sched_setaffinity"):
            notes.append("this system cannot bind a process to CPUs: not bound")
        elif seat.cpus:
            before = os.sched_getaffinity(0)
            restores.append((os.sched_setaffinity, (0, before), (0, _EVERY_CPU)))
            wanted = cpu_list_text(seat.cpus)
            try:
                os.sched_setaffinity(0, seat.cpus)
                # The kernel silently drops CPUs that are offline or outside our cpuset.
                cpus = tuple(sorted(os.sched_getaffinity(0)))
                if set(cpus) != set(seat.cpus):
                    notes.append(f"of CPUs {wanted} only {cpu_list_text(cpus)} could be bound")
            except OSError as error:
                if error.errno == errno.EINVAL:
                    # All of them are off by now, or no longer ours; others of the node may be left.
                    with suppress(TopologyError, OSError):
                        others = (node.cpus for node in detect().nodes if node.id == seat.node)
                        found = next(others, ())
                        os.sched_setaffinity(0, found)
                        cpus = found
                    instead = (
                        "not bound"
                        if cpus is None
                        else f"bound to CPUs {cpu_list_text(cpus)} of their node"
                    )
                    notes.append(f"CPUs {wanted} refused ({_refusal(error)}): {instead}")
                else:
                    notes.append(_unbound(_refusal(error)))
        names_node = memory_policy in ("preferred", "bind")
        if (seat.cpus and cpus is None) or (memory_policy == "local" and not seat.cpus):
            pass
        elif names_node and seat.memory_node is None:
            # An unbound seat has no memory node by intent; a bound one lacks something.
            if seat.cpus:
                notes.append(
                    f"node {seat.node} has no memory that this process may use: memory policy "
                    f"{memory_policy} not set"
                )
        else:
            refused = _set_policy(memory_policy, seat.memory_node, restores)
            if refused is None:
                policy = memory_policy
            # Without a policy the kernel does what `local` asks for.
            elif memory_policy != "local":
                notes.append(_unset(memory_policy, refused, bound=bool(seat.cpus)))
        yield BindReport(cpus=cpus, memory_policy=policy, note="; ".join(notes) or None)


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


def _set_policy(name: str, node: int | None, restores: _Restores) -> str | None:
    """Set a memory policy on the calling thread; return why that is refused, None if it is not.

    One that names a node takes the first allowed one if none is given.
    """
    if sys.platform != "linux":
        return f"{sys.platform} has no memory policy"
    if (machine := os.uname().machine) not in _CALL_NUMBERS or sys.maxsize < 2**32:
        return f"the system call's number on {machine} is unknown"
    try:
        # Where even the earlier policy is refused later, nothing was set.
        restores.append((set_policy_of_thread, policy_of_thread(), (_DEFAULT,)))
        nodes = frozenset[int]()
        if name != "local":
            allowed = policy_of_thread(MEMS_ALLOWED)[1]
            nodes = frozenset(sorted(allowed)[:1] if node is None else (node,))
            if name == "interleave":
                nodes = allowed & nodes_with_cpus() or allowed
        set_policy_of_thread(MODES[name], nodes)
    except OSError as error:
        return _refusal(error)
    return None


@contextmanager
def _put_back() -> Iterator[_Restores]:
    """Run the functions of the list at the end; each one puts a state back.

    Add it before the state is changed: an interrupt may come right after.
    """
    restores: _Restores = []
    try:
        try:
            yield restores
        finally:
            _restore(restores)
    finally:
        # Again, because the exception of a signal handler may have interrupted the first time.
        _restore(restores)


def _restore(restores: _Restores) -> None:
    for put, before, otherwise in restores:
        try:
            put(*before)
        except OSError:
            with suppress(OSError):
                put(*otherwise)


def _refusal(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')}, {error.strerror}"
