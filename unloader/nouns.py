"""Numbers with their nouns and units in messages: 1 row, 2 rows, 3.0 MB."""

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


def size(value: float) -> str:
    """Return bytes in the unit that fits, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def rows_per_second(rate: float) -> str:
    """Return a rate of rows with about three digits of it."""
    return f"{float(f'{rate:.3g}'):,.0f} rows/s"


def bytes_per_second(rate: float) -> str:
    """Return a rate in MB/s, where MB is 10^6 bytes; a small one with more digits."""
    return f"{rate / 1e6:.4f} MB/s" if 0 < rate < 1e5 else f"{rate / 1e6:,.1f} MB/s"
