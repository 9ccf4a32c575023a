"""How figures are written on a page."""

from __future__ import annotations

UNKNOWN = "–"


def count(value: float) -> str:
    """Return a whole number in groups of three digits."""
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Return bytes in the unit that fits, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def seconds(value: float) -> str:
    """Return seconds with three digits of them, or to the second."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def number(value: float) -> str:
    """Return a number with four digits of it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def share(value: float) -> str:
    """Return a share of 1 in percent."""
    return f"{value:.1%}"


def rows_per_second(value: float) -> str:
    """Return a rate of rows."""
    return f"{float(f'{value:.3g}'):,.0f} rows/s"


def bytes_per_second(value: float) -> str:
    """Return a rate of bytes, where MB is 10^6 bytes."""
    if 0 < value < 1e5:
        return f"{value / 1e6:.4f} MB/s"
    return f"{value / 1e6:,.1f} MB/s"


def workers(value: float) -> str:
    """Return a number of workers, with the word."""
    return "1 worker" if value == 1 else f"{number(value)} workers"


def text(value: object) -> str:
    """Return a value that is not a number."""
    return str(value)


FORMS = {
    each.__name__: each
    for each in (
        *(count, size, seconds, number, share),
        *(rows_per_second, bytes_per_second, workers, text),
    )
}
"""By the names that templates use."""
