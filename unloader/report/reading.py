"""What a report is made of: the manifest of a run, wherever it lies."""

from __future__ import annotations

from pathlib import Path

from unloader.errors import OutputFailed
from unloader.manifest.model import Manifest
from unloader.manifest.read import parse_manifest, read_manifest
from unloader.storage.directories.leftovers import RUN
from unloader.storage.model import MANIFEST


def manifest_at(place: Path) -> Manifest:
    """Return the manifest of the run at a place.

    Args:
        place: The directory of a finished run, or of a broken one of which some units are done; or
            a manifest that was put elsewhere.

    Raises:
        OutputFailed: There is none, or it is damaged.
    """
    if place.is_file():
        try:
            data = place.read_bytes()
        except OSError as error:
            raise OutputFailed(
                f"{place} cannot be read: {error.strerror or error}", "check its permissions"
            ) from error
        return parse_manifest(data, place.parent, place.name)
    left = place / RUN / MANIFEST
    if not (place / MANIFEST).exists() and left.exists():
        return read_manifest(left.parent)
    return read_manifest(place)
