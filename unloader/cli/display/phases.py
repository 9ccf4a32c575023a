"""What the phases of a run are called on the screen and in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.cli.display import render

if TYPE_CHECKING:
    from unloader.events import Verified
    from unloader.model import TableCounts

_PLANNING = {
    "connecting": "connecting to the database",
    "snapshot": "taking the snapshot",
    "table": "looking up the table",
    "columns": "reading the columns",
    "partitions": "listing the partitions",
    "extents": "reading where rows are stored",
    "planning": "splitting the table into work units",
    "locking": "locking and checking the tables",
    "measuring": "measuring codecs on a sample",
}
_LATER = {
    "confirming": "checking the finished files",
    "unloading": "unloading",
    "counting": "counting the rows in the source",
    "publishing": "giving the files their final names",
    "committing": "committing to the table",
    "verifying": "reading the files back",
    "comparing": "comparing the values with the source",
    "measuring-disks": "measuring the disks",
    "measuring-source": "measuring the source",
}


def phase_text(phase: str) -> str:
    """Return what goes on in a phase; those before the first worker are all `planning`."""
    if phase in _PLANNING:
        return f"planning: {_PLANNING[phase]}"
    return _LATER.get(phase, phase)


def verified_text(event: Verified) -> str:
    """Return how much of what is checked has been."""
    read = (
        f", {render.size(event.bytes)} of {render.size(event.of_bytes)}" if event.of_bytes else ""
    )
    return f"{event.done}/{event.of} {event.what}{read}"


def verified_share(event: Verified) -> float:
    """Return the same as a number from 0 to 1: of the bytes where they are known."""
    done, of = (event.bytes, event.of_bytes) if event.of_bytes else (event.done, event.of)
    return done / of if of else 1.0


def tables_text(tables: TableCounts) -> str:
    """Return how far a run is with its tables."""
    failed = f", {tables.failed} failed" if tables.failed else ""
    if tables.staged:
        failed = f", {tables.staged} ready to be published{failed}"
    largest = tables.largest_open
    still = f", largest still open: {render.name(largest)}" if largest else ""
    return f"{tables.done}/{tables.total} tables{failed}{still}"
