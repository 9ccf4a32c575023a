"""Where the runs lie that are for a table: below its data, each in a place named by the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from unloader.errors import OutputFailed
from unloader.lakehouse.committing import is_being_committed, receipt
from unloader.lakehouse.opening import lake_format
from unloader.lakehouse.places import lake_kind
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.storage.model import MANIFEST, RUN_RECORD
from unloader.storage.opening import storage_at
from unloader.storage.paths import path_of
from writers.objects.location import below

_LOOKED_AT = 100
"""So many of the newest runs of a table are looked at: it may have thousands of them."""

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{11}")


def homes(name: str) -> tuple[str, ...]:
    """Return where runs for a table lie, the newest first.

    Raises:
        OutputFailed: The table, or where its data is, cannot be looked at.
        ConfigError: The library is missing, or the catalog is not configured.
    """
    kind = lake_kind(name)
    assert kind is not None
    place = lake_format(kind).data_place(name)
    try:
        found = storage_at(place).levels(place)
    except OSError as error:
        raise OutputFailed(
            f"cannot look for the files of {name} in {place}: {error}",
            "check the permissions and the credentials for that place",
        ) from error
    runs = (each for each in found if _RUN_ID.fullmatch(each))
    return tuple(below(place, each) for each in sorted(runs, reverse=True))


def uncommitted(name: str) -> Iterator[tuple[str, Manifest | None]]:
    """Yield where runs lie that are not part of a table, each with its manifest if it is complete.

    The newest comes first, and the newest alone are looked at. One that goes on is among them.
    """
    kind = lake_kind(name)
    assert kind is not None
    for home in homes(name)[:_LOOKED_AT]:
        storage = storage_at(home)
        if MANIFEST not in storage.names(home):
            yield home, None
        elif not receipt(home):
            manifest = read_manifest(path_of(home))
            table = manifest.lake_table
            if table is None or lake_format(kind).committed(table, manifest.run_id):
                continue
            if not is_being_committed(home):
                yield home, manifest


def has_begun(home: str) -> bool:
    """Return whether the run in a home has come so far that it can be gone on with, or goes on.

    One that was killed before it was on record has read nothing.

    Raises:
        OSError: What it left cannot be read.
    """
    storage = storage_at(home)
    if storage.record(home, RUN_RECORD):
        return True
    who = storage.who_was_here(home, counted=False)
    return who is not None and who.is_running


def home_of(name: str) -> str:
    """Return where the run lies that a command means by the name of a table.

    That is the newest one that is not part of it and has begun, or else the newest that is.

    Raises:
        OutputFailed: There is none; or as `homes`.
    """
    left = dict(uncommitted(name))
    begun = (home for home, manifest in left.items() if manifest is not None or has_begun(home))
    others = homes(name)
    committed = (home for home in others if home not in left)
    first = next(chain(begun, committed, others), None)
    if first is None:
        raise OutputFailed(f"{name} has no files of a run", "name a table that a run wrote to")
    return first
