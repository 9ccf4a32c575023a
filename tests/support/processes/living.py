"""Looks at processes that may end at any moment, also between two looks."""

from __future__ import annotations

from collections.abc import Iterable

import psutil


def below(process: int | None = None) -> list[psutil.Process]:
    """Return the living processes below one, by default ours; none where that has ended itself."""
    try:
        return living(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def living(found: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that have not ended, whether somebody knows of their end or not."""
    return [each for each in found if _lives(each)]


def command_line(process: psutil.Process) -> str:
    """Return the words of a process; empty where it has ended, or is another user's."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def reads_units(process: psutil.Process) -> bool:
    """Return whether a process is a worker: one in which units are read."""
    return "numa.processes.member" in command_line(process)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
