"""What is known of the tables of a run over several, from what they keep in their directories."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct
from msgspec.json import Decoder

from unloader.model import TableCounts
from unloader.resolve.tables.homes import RecordedTable
from unloader.storage.base import Storage
from unloader.storage.model import MANIFEST, Leftover

_AT_ONCE = 16
"""Tables that are looked at at the same time: a network file system answers slowly."""


class TablesLeft(Struct, frozen=True, kw_only=True):
    """What a broken run over several tables has left."""

    tables: TableCounts
    left: Leftover
    """What is staged of those that are not published."""


def tables_left(
    storage: Storage, home: str, run_id: str, tables: Iterable[RecordedTable]
) -> TablesLeft:
    """Look at the directories of all tables.

    Raises:
        OSError: One cannot be read.
    """
    listed = list(tables)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda table: _left_of(storage, run_id, table), listed))
    staged = [each for each in found if each is not None]
    return TablesLeft(
        tables=TableCounts(total=len(listed), done=len(listed) - len(staged)),
        left=Leftover(
            directory=home,
            run_id=run_id,
            units=sum(each.units for each in staged),
            files=sum(each.files for each in staged),
            bytes=sum(each.bytes for each in staged),
        ),
    )


def _left_of(storage: Storage, run_id: str, table: RecordedTable) -> Leftover | None:
    """Return what is staged of a table; None if it is published."""
    if all(is_published(storage, home, table.run_id) for home in table.homes):
        return None
    parts = []
    for place in table.directories:
        who = storage.who_was_here(place)
        if who is not None and who.run_id in (run_id, table.run_id):
            parts.append(who.left)
    return Leftover(
        directory=table.directories[0],
        run_id=run_id,
        units=max((each.units for each in parts), default=0),
        files=sum(each.files for each in parts),
        bytes=sum(each.bytes for each in parts),
    )


class _Published(Struct, frozen=True, kw_only=True):
    run_id: str


_PUBLISHED = Decoder(_Published)


def is_published(storage: Storage, place: str, run_id: str) -> bool:
    """Return whether the manifest in a directory is of a run."""
    try:
        return _PUBLISHED.decode(storage.read(place, MANIFEST)).run_id == run_id
    except (OSError, ValueError, RecursionError):
        return False
