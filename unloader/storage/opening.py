"""The storage that a place is in, by how the place is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.storage.base import Storage


def storage_at(place: str) -> Storage:
    """Return the storage of a place of `--to`."""
    if is_location(place):
        from unloader.storage.objects.storage import ObjectStorage

        return ObjectStorage()
    from unloader.storage.directories.local import LocalDirectories

    return LocalDirectories()
