"""Numbers with their nouns in messages: 1 row, 2 rows."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int | None, noun: str, several: str = "") -> str:
    """Return a number, or `unknown`, with its noun; by default `several` is the noun with an s."""
    if number is None:
        return f"unknown {several or noun + 's'}"
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def are(number: int) -> str:
    """Return the verb after a number of things: is or are."""
    return "is" if number == 1 else "are"


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas; after `most` of them, the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
