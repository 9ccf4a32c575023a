"""Whose process this is: the command's own, or that of a program which calls the functions.

What changes a process as a whole is done to our own alone. A program of somebody else may have
threads, connections and plans that are not known here.
"""

from __future__ import annotations

_ours: list[bool] = []


def claim() -> None:
    """Say that this process does nothing but run one command."""
    _ours.append(True)


def is_ours() -> bool:
    """Return whether this process does nothing but run one command."""
    return bool(_ours)
