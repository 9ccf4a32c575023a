"""Finds the processes of the database, where it runs on this machine.

The sessions of our workers lead to them: the other end of a connection is a process of the database
if it is here at all. All that the same server has started counts, and so does what it started for
us: sessions, parallel servers, writers. In-process databases have no processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from unloader.sweep.measuring.readings import psutil_or_none

_IN_PROCESS = ("duckdb", "sqlite")
"""Kinds whose database is a library of the workers."""

_NAMES = {"postgresql": ("postgres", "postmaster"), "oracle": ("oracle", "ora_")}
"""What the names of a server's processes begin with, by kind of source; for those whose owner the
system does not tell us, and for connections without addresses."""


def database_roots(kind: str) -> tuple[int, ...] | None:
    """Return the ids of the processes from which those of the database descend.

    Args:
        kind: Of the source. Its sessions must be open.

    Returns:
        None where there are none on this machine, or they cannot be found.
    """
    psutil = psutil_or_none()
    if psutil is None or kind in _IN_PROCESS:
        return None
    try:
        own = psutil.Process()
        ours = {own.pid, *(each.pid for each in own.children(recursive=True))}
        # Whoever has started us is no database, even if our connections lead to it; nor are its
        # connections sessions.
        known = ours.union(each.pid for each in own.parents())
    except (psutil.Error, OSError):
        return None
    connections = _connections(psutil)
    sessions = [(each.laddr, each.raddr) for each in connections if each.pid in ours and each.raddr]
    ends = {
        each.pid
        for each in connections
        if (each.raddr, each.laddr) in sessions and each.pid not in known
    }
    found = {pid for pid in ends if pid is not None}
    by_name = None in ends or (not sessions and kind == "postgresql")
    if not found and by_name:
        found = _named(psutil, _NAMES.get(kind, ()))
    roots = {root for pid in found for root in _roots(psutil, pid, kind, known)}
    return tuple(sorted(roots - known)) or None


def _connections(psutil: Any) -> list[Any]:
    """Return all connections of the machine; none where they cannot be read, now or ever.

    psutil raises RuntimeError and ValueError for tables of the kernel that change while it reads.
    """
    try:
        return list(psutil.net_connections(kind="inet"))
    except (psutil.Error, OSError, RuntimeError, ValueError):
        return []


def _roots(psutil: Any, pid: int, kind: str, known: set[int]) -> Iterable[int]:
    """Return the ancestor of a process that is still of the same program, and none of those
    known: ours, and those that have started us.

    Of Oracle all processes of that name: each is a child of the system.
    """
    if kind == "oracle" and (named := _named(psutil, _NAMES[kind])):
        return {pid, *named}
    try:
        process = psutil.Process(pid)
        name = process.name()
        while (parent := process.parent()) is not None and parent.pid not in known:
            if parent.name() != name:
                break
            process = parent
    except psutil.Error:
        return ()
    return (process.pid,)


def _named(psutil: Any, names: tuple[str, ...]) -> set[int]:
    found = psutil.process_iter(["name"]) if names else ()
    return {each.pid for each in found if (each.info["name"] or "").startswith(names)}
