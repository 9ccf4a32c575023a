"""Reads the manifest of a run over several tables."""

from __future__ import annotations

from unloader.errors import OutputFailed
from unloader.json_fields import NotAsExpected
from unloader.manifest.read import document_of, manifest_data
from unloader.manifest.tables import TablesManifest, from_json, is_of_tables
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath


def read_tables_manifest(home: PlacePath, name: str = MANIFEST) -> TablesManifest:
    """Return the manifest of a run over several tables.

    Args:
        home: The directory that those of its tables are in.
        name: Another name than it has once its run is finished.

    Raises:
        OutputFailed: There is none, it is not as it was written, or of a later format version.
    """
    return parse_tables_manifest(manifest_data(home, name), home / name)


def parse_tables_manifest(data: bytes, path: PlacePath) -> TablesManifest:
    """Return the manifest that these bytes are; as `read_tables_manifest` otherwise.

    Args:
        data: All of the file.
        path: Where it was found; the error names it.
    """
    document = document_of(data, path)
    if not is_of_tables(document):
        raise OutputFailed(
            f"{path} is the manifest of a run of one table", "name the directory of a run"
        )
    try:
        return from_json(document)
    except NotAsExpected as error:
        raise OutputFailed(
            f"{path} is damaged: {error}", "restore it; each table has a separate manifest"
        ) from error


def is_finished_home(place: PlacePath) -> bool:
    """Return whether the manifest in a directory is one of several tables.

    One that is damaged is none: whoever reads it says so.
    """
    try:
        data = storage_at(str(place)).read(str(place), MANIFEST)
        return is_of_tables(document_of(data, place / MANIFEST))
    except (OSError, OutputFailed):
        return False
