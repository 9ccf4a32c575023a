"""Versions of the driver: those whose Arrow batches were found exact, and what tells them apart.

Found by fetching tables that repeat values, NULLs and whole rows on both sides of every batch
boundary, as Arrow and as tuples, in batches of 1, 2, 3, 7 and 1000 rows: 26.1.0 gives all of them.
26.0.0 loses rows of dates and crashes on decimals (python-oracledb issues 605 and 606), 4.0.1
crashes on a column of nothing but NULL besides (597).
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version

VERIFIED = ((26, 1), (26, 2))
"""From the first on, and before the second."""

NATIVE = frozenset({"26.1.0"})
"""Versions with which the native fetch was tried: it leans on how the driver reads its socket."""


@lru_cache(maxsize=1)
def driver_version() -> str:
    """Return the version of the installed driver."""
    return version("oracledb")


def arrow_is_exact(installed: str) -> bool:
    """Return whether the Arrow batches of a driver version were found exact."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    return VERIFIED[0] <= numbers < VERIFIED[1]


def native_is_exact(installed: str) -> bool:
    """Return whether the native fetch was tried with a driver version, and found exact."""
    return installed in NATIVE


def driver_warning(installed: str) -> str | None:
    """Return a sentence if a driver version is not one whose Arrow batches were found exact."""
    if arrow_is_exact(installed):
        return None
    first, last = (".".join(map(str, ends)) for ends in VERIFIED)
    return (
        f"python-oracledb {installed} is not a version with tested Arrow batches ({first} to "
        f"before {last}), so rows are fetched as tuples, which is slower. "
        f'Install one with: pip install "oracledb>={first},<{last}"'
    )
