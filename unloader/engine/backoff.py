"""How long to wait before something is tried again: doubling, capped, and not all at one instant.

Pure. What looks random comes from the caller as a function of what is tried, so that a schedule
does the same thing twice, and the delays in a log can be worked out again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeAlias

from unloader.model import RetryOptions

Jitter: TypeAlias = Callable[[str, int], float]
"""From what is tried, and which failure of it this was, to a number from 0 to 1."""

# Of a second they make years; a thousand more would be no number any more.
_MOST_DOUBLINGS = 30

_SHARE = 0.5
"""Part of a delay that the jitter may take away. A server that comes back then meets its clients
over the second half of the delay, and none of them comes much too early."""


def no_jitter(what: str, failures: int) -> float:
    """Return 1: every delay is whole."""
    return 1.0


def spread(seed: str) -> Jitter:
    """Return a jitter that differs between the things that are tried, and between seeds.

    Args:
        seed: Such as the id of a run.
    """

    def jitter(what: str, failures: int) -> float:
        return zlib.crc32(f"{seed}/{what}/{failures}".encode()) / 0xFFFFFFFF

    return jitter


def delay_seconds(retry: RetryOptions, failures: int, share: float = 1.0) -> float:
    """Return the seconds to wait after so many failures, 1 being the first.

    Args:
        retry: The first delay and the longest one. A first delay above the longest is the longest.
        failures: Doubles the delay each time.
        share: From the jitter: 0 takes half of the delay away, 1 nothing.
    """
    longest = max(retry.delay_seconds, retry.delay_max_seconds)
    whole = min(longest, retry.delay_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
    return whole * (1.0 - _SHARE + _SHARE * share)
