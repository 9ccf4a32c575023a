"""The storage that a place is in, by how the place is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.errors import OutputFailed
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


def unreadable(place: str, error: OSError) -> OutputFailed:
    """Return the error for a file of a run that died, which cannot be read."""
    named = f"{error.filename}: " if error.filename else ""
    return OutputFailed(
        f"cannot read what a run left in {place}: {named}{error.strerror or error}",
        f"restore that file and check its permissions; or move {place}/_run away, and unload again",
    )
