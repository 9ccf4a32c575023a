"""The memory-policy system calls, made through libc without a library.

Each call is about the calling thread. Source: set_mempolicy(2), get_mempolicy(2) and the kernel's
system-call tables; on aarch64 and riscv64 number 238 is migrate_pages, so an unknown machine
gets no call at all.
"""

import ctypes
import errno
import os
import sys

DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL = range(5)

_CALL_NUMBERS = {
    "x86_64": (238, 239),
    "aarch64": (237, 236),
    "riscv64": (237, 236),
    "ppc64le": (261, 260),
    "s390x": (270, 269),
}
"""Machine to the numbers of set_mempolicy and get_mempolicy."""

_F_MEMS_ALLOWED = 4
_WORD_BITS = 64
# Kernels are built for at most 1024 nodes (NODES_SHIFT 10); a shorter mask is refused.
_WORDS = 1024 // _WORD_BITS
_Mask = ctypes.c_ulong * _WORDS
# The kernel counts one bit more than it reads.
_MAX_NODE = 1024 + 1


def unsupported() -> str | None:
    """Return why the calls cannot even be tried on this machine, None if they can."""
    if sys.platform != "linux":
        return f"{sys.platform} has no memory policy"
    machine = os.uname().machine
    if machine not in _CALL_NUMBERS or sys.maxsize < 2**32:
        return f"the system call's number on {machine} is unknown"
    return None


def current() -> tuple[int, frozenset[int]]:
    """Return the calling thread's policy: the mode, with its flags, and the nodes it names.

    The kernel may refuse with an `OSError`: `ENOSYS` without NUMA, `EPERM` in some containers.
    """
    mode = ctypes.c_int()
    mask = _Mask()
    _call(1, ctypes.byref(mode), mask, ctypes.c_long(_MAX_NODE), None, ctypes.c_long(0))
    return mode.value, _nodes_of(mask)


def allowed_nodes() -> frozenset[int]:
    """Return the nodes a policy of this thread may name; refused as `current`."""
    mask = _Mask()
    _call(1, None, mask, ctypes.c_long(_MAX_NODE), None, ctypes.c_long(_F_MEMS_ALLOWED))
    return _nodes_of(mask)


def apply(mode: int, nodes: frozenset[int] = frozenset()) -> None:
    """Set the policy of the calling thread and of later child processes; refused as `current`.

    Also with `EINVAL`: for a node without memory or outside our cpuset.
    """
    mask = _Mask()
    for node in nodes:
        if not 0 <= node < _WORDS * _WORD_BITS:
            raise OSError(errno.EINVAL, f"node {node} cannot exist")
        mask[node // _WORD_BITS] |= 1 << (node % _WORD_BITS)
    used, most = (mask, _MAX_NODE) if nodes else (None, 0)
    _call(0, ctypes.c_long(mode), used, ctypes.c_long(most))


def _call(which: int, *arguments: object) -> None:
    # A plain int would go as a C int, and libc's syscall() reads longs.
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALL_NUMBERS[os.uname().machine][which]
    if libc.syscall(ctypes.c_long(number), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _nodes_of(mask: "ctypes.Array[ctypes.c_ulong]") -> frozenset[int]:
    return frozenset(
        word * _WORD_BITS + bit
        for word in range(_WORDS)
        for bit in range(_WORD_BITS)
        if mask[word] >> bit & 1
    )
