"""Numbers with their nouns in messages: 1 row, 2 rows."""

from __future__ import annotations


def counted(number: int | None, noun: str, several: str = "") -> str:
    """Return a number in groups of three digits with its noun.

    Args:
        number: How many; None where that is unknown.
        noun: For one thing.
        several: For several things; the noun with an s if empty.
    """
    if number is None:
        return f"unknown {several or noun + 's'}"
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def are(number: int) -> str:
    """Return the verb after a number of things: is or are."""
    return "is" if number == 1 else "are"
