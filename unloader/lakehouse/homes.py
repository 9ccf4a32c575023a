"""Where the runs lie that are for a table: below its data, each in a place named by the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unloader.errors import OutputFailed
from unloader.lakehouse.committing import is_being_committed, receipt
from unloader.lakehouse.opening import lake_format
from unloader.lakehouse.places import lake_kind
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.storage.model import MANIFEST
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
            f"the files of {name} cannot be looked for in {place}: {error}",
            "check the rights and the credentials there",
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


def home_of(name: str) -> str:
    """Return where the run lies that a command means by the name of a table.

    That is the newest one that is not part of it, or else the newest.

    Raises:
        OutputFailed: There is none; or as `homes`.
    """
    first = next((home for home, _ in uncommitted(name)), None)
    first = first or next(iter(homes(name)), None)
    if first is None:
        raise OutputFailed(
            f"{name} has no files of a run", "name the table that a run has written to"
        )
    return first
