"""scipy in a directory of its own: every process that finds its numpy loads it, so none may by default."""

from __future__ import annotations

from pathlib import Path

import packages_apart
from packages_apart import Missing

__all__ = ["Missing", "directory"]


def directory() -> Path:
    """Return the directory to put on the import path.

    Raises:
        Missing: pip cannot get it.
    """
    return packages_apart.directory("scipy", Path(__file__).with_name("requirements.txt"))
