"""No core dumps: the memory of this program holds passwords and rows."""

from __future__ import annotations

NONE = 1
"""Bytes. The kernel writes no file that small, and unlike at 0 it asks no program of core_pattern,
such as systemd-coredump, to take the dump either: see do_coredump() in its fs/coredump.c."""


def leave_none() -> None:
    """Let neither this process nor those that it starts leave a core dump."""
    try:
        import resource
    except ImportError:
        return  # Not a Unix.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    unlimited = most == resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_CORE, (NONE if unlimited else min(NONE, most), most))
