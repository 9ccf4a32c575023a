"""Removing a complete run that is not part of its table, and is not to become so."""

from __future__ import annotations

import os
from contextlib import suppress

from unloader.errors import OutputFailed
from unloader.lakehouse.committing import RECEIPT, SIGN, is_being_committed, receipt
from unloader.lakehouse.opening import lake_format
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.storage.model import MANIFEST, Cleaning, Leftover
from unloader.storage.objects.room import Room
from unloader.storage.opening import storage_at
from unloader.storage.paths import path_of
from writers.objects.location import is_location


def removed(place: str, *, dry_run: bool) -> Cleaning | None:
    """Remove the files of a run that is complete and not committed; return None if none is there.

    Raises:
        OutputFailed: It is being committed, it cannot be told whether it was, or the place refused.
        ConfigError: The library is missing, or the catalog is not configured.
    """
    manifest = _of_a_table(place)
    if manifest is None or manifest.lake_table is None or receipt(place):
        return None
    table = manifest.lake_table
    tables = lake_format(table.kind)
    if tables.committed(table, manifest.run_id):
        return None
    if is_being_committed(place):
        raise OutputFailed(
            f"run {manifest.run_id} in {place} is being committed to {table.name}",
            "wait until the commit has ended",
        )
    left = Leftover(
        directory=place,
        run_id=manifest.run_id,
        units=len(manifest.units),
        files=len(manifest.files),
        bytes=manifest.totals.bytes,
    )
    if not dry_run:
        # The manifest first: without it nobody can commit the files any more.
        _remove(place, (MANIFEST, *manifest.files, SIGN, RECEIPT))
    return Cleaning(dry_run=dry_run, completed=(), removed=(left,))


def _of_a_table(place: str) -> Manifest | None:
    try:
        if MANIFEST not in storage_at(place).names(place):
            return None
    except OSError:
        return None  # Whoever clears the place says so.
    return read_manifest(path_of(place))


def _remove(place: str, names: tuple[str, ...]) -> None:
    if is_location(place):
        room = Room(place)
        for part in (names[:1], names[1:]):
            room.bucket.delete(room.final(name) for name in part)
        return
    try:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(place, name))
        with suppress(OSError):
            os.rmdir(place)  # Something else may lie there.
    except OSError as error:
        raise OutputFailed(
            f"cannot remove the files of a run in {place}: {error}", "check the permissions there"
        ) from error
