"""Removing what runs that died have left unpublished, those over several tables as a whole."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.resolve.places import home_above
from unloader.resolve.run_record import recorded_tables
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD, Cleaning, Storage


def clear(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove what dead runs have left at places; see `Storage.clear`.

    For a run over several tables these are the staged files of each table. The home comes last: it
    records the tables.
    """
    gone: list[Cleaning] = []
    wider: dict[str, None] = {}
    for place in places:
        if done := _of_tables_of_a_lakehouse(place, dry_run=dry_run):
            gone.append(done)
        else:
            wider.update(dict.fromkeys(_with_tables(storage_at(place), place)))
    removed = tuple(left for each in gone for left in each.removed)
    if gone and not wider:
        return replace(gone[0], removed=removed)
    others = storage_at(next(iter(wider), "")).clear(tuple(wider), dry_run=dry_run)
    return replace(others, removed=(*removed, *others.removed))


def _of_tables_of_a_lakehouse(place: str, *, dry_run: bool) -> Cleaning | None:
    storage = storage_at(place)
    try:
        if b'"lake_table"' not in storage.read(place, MANIFEST):
            return None
    except OSError:
        return None
    from unloader.lakehouse.lake_runs import removed

    return removed(place, dry_run=dry_run)


def _with_tables(storage: Storage, place: str) -> Iterator[str]:
    # If this look fails, the clearing itself reports the obstacle.
    with suppress(OSError):
        who = storage.who_was_here(place, counted=False)
        # A running run stays untouched: the clearing of its home is refused.
        if who is not None and who.is_running and (home := home_above(storage, place, who.run_id)):
            raise OutputFailed(
                f"run {who.run_id} over several tables is writing to {place}",
                f"wait until it ends, or end it with: unloader stop {shlex.quote(home)}",
            )
        if who is not None and who.run_id and not who.is_running:
            for table in recorded_tables(storage.record(place, RUN_RECORD), place):
                for directory in table.directories:
                    whose = storage.who_was_here(directory, counted=False)
                    if whose is not None and whose.run_id in (who.run_id, table.run_id):
                        yield directory
    yield place
