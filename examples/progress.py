"""What scripts tell while they work."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write a line to standard error, and flush it."""
    print(text, file=sys.stderr, flush=True)
