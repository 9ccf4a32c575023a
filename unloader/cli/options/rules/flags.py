"""How an option is named in a message."""

from __future__ import annotations


def flag(name: str) -> str:
    """Return an option as it is typed."""
    return "--" + name.replace("_", "-")
