"""The storage that a place is in, by how the place is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unloader.storage.base import Storage


def storage_at(place: str) -> Storage:
    """Return the storage of a place of `--to`. All places are local directories so far."""
    from unloader.storage.directories.local import LocalDirectories

    return LocalDirectories()
