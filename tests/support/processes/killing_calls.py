"""A library that ends real processes just before chosen system calls; see `killing_calls.c`."""

from __future__ import annotations

from pathlib import Path

from processes import preloaded


def build(directory: Path) -> Path:
    """Compile it into a directory; skip the test where there is no C compiler."""
    return preloaded.build(Path(__file__).with_suffix(".c"), directory)
