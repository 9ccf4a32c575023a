"""The types of a table of a lakehouse: what is asked of it, what was found, what is committed."""

from __future__ import annotations

from typing import Any

from unloader.model import LakeTable, PartitionBy, SaveMode
from writers.model import SortColumn
from writers.records import dataclass

RUN_ID = "unloader.run-id"
"""Key of the run's id among the properties of a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file that becomes part of a table."""

    path: str
    """As the table's own records write it."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """All files of a run, and what the table is told of them."""

    run_id: str
    table: LakeTable
    files: tuple[NewFile, ...]
    properties: tuple[tuple[str, str], ...]
    """Names and values, the run's id among them."""
    is_own: bool
    """The process that has written the files commits them, for the first time. Another one cannot
    know whether that was done, unless the table still tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The commit that a run's files are part of."""

    snapshot: str
    is_new: bool
    """It was made just now; else it had been made before."""
