"""The types of a table of a lakehouse: what is asked of it, what was found, what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct

from unloader.model import LakeTable, PartitionBy, SaveMode
from writers.model import SortColumn

RUN_ID = "unloader.run-id"
"""Key of the run's id among the properties of a commit."""


_MOST_NAMED = 3


class Wanted(Struct, frozen=True, kw_only=True):
    """What a run is to do with a table."""

    name: str
    """As `--to` has it."""
    save_mode: SaveMode
    replace_where: str | None
    branch: str | None
    schema: Any
    """The Arrow schema of the files."""
    partition_by: tuple[PartitionBy, ...] = ()
    """Of a table that is made."""
    sorted_by: tuple[SortColumn, ...] = ()
    """The order of the rows in each file; a table that is made asks for it from then on."""


class NewFile(Struct, frozen=True, kw_only=True):
    """A file that becomes part of a table."""

    path: str
    """As the table's own records write it."""
    rows: int
    bytes: int


class Commit(Struct, frozen=True, kw_only=True):
    """All files of a run, and what the table is told of them."""

    run_id: str
    table: LakeTable
    files: tuple[NewFile, ...]
    properties: tuple[tuple[str, str], ...]
    """Names and values, the run's id among them."""
    is_own: bool
    """The process that has written the files commits them, for the first time. Another one cannot
    know whether that was done, unless the table still tells."""


class Committed(Struct, frozen=True, kw_only=True):
    """The commit that a run's files are part of."""

    snapshot: str
    is_new: bool
    """It was made just now; else it had been made before."""


class LaterChange(Struct, frozen=True, kw_only=True):
    """A later operation that took files of a run out of a table."""

    snapshot: str
    """Its snapshot or version; empty if the log has forgotten it. Where the log shows only that it
    was one of several, the first are joined by ` or `."""
    operation: str
    """As the log names it; empty if the log has forgotten it."""
    time: str
    """ISO 8601, in UTC; empty if the log has forgotten it."""
    keeps_rows: bool
    """The operation moves rows to other files and changes no row that the table has."""
    files: tuple[str, ...]
    """Names of the run's files that it removed from the table."""
    removed_rows: int | None = None
    """Rows of all files that it removed, also of other runs; None if the log does not say it."""
    added_rows: int | None = None
    """Rows of all files that it added; None if the log does not say it."""


def one_of(names: Sequence[str]) -> str:
    """Return snapshots of which one is meant, as `LaterChange.snapshot` has them."""
    first, more = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    return " or ".join([*first, f"{more} more"] if more > 0 else first)


def time_of(milliseconds: float) -> str:
    """Return a time since 1970 as `LaterChange.time` has it."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(timespec="seconds")


class RunLog(Struct, frozen=True, kw_only=True):
    """The part of a table's log that is about a run."""

    is_known: bool
    """The log shows that the run was committed. A log that was shortened may have forgotten it."""
    rows: int | None
    """Rows that the run added, as the log recorded them; None if it has forgotten that."""
    changes: tuple[LaterChange, ...]
    """Operations that removed files of the run, the oldest first, those without a name last.
    Files that none of them names are part of the table."""
