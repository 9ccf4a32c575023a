"""The protocol of a format of lakehouse tables, its records, and the checks that all share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from unloader.errors import OutputFailed, UsageError
from unloader.model import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

RUN_ID = "unloader.run-id"
"""Key of the run's id among the properties of a commit."""

_MOST_DIFFERENCES = 5
_TRIES = 50
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0


class NewFile(Struct, frozen=True, kw_only=True):
    path: str
    """As the table's own records write it."""
    rows: int
    bytes: int


class Commit(Struct, frozen=True, kw_only=True):
    """All files of a run, and the properties of the run that the table records."""

    run_id: str
    table: LakeTable
    files: tuple[NewFile, ...]
    properties: dict[str, str]
    """Recorded with the commit; the run's id is among them."""
    is_own: bool
    """The process that wrote the files commits them, for the first time. Another process can know
    only from the table whether that was done."""

    def first_file(self) -> str:
        """Return the path of a file; all files of a run have the same columns."""
        if not self.files:
            raise OutputFailed(
                f"run {self.run_id} has no file, so its columns are unknown",
                "run again, and report this",
            )
        return self.files[0].path


class Committed(Struct, frozen=True, kw_only=True):
    """The commit that a run's files are part of."""

    snapshot: str
    is_new: bool
    """It was made just now; else it had been made before."""


class LaterChange(Struct, frozen=True, kw_only=True):
    """A later operation that took files of a run out of a table."""

    snapshot: str
    """Its snapshot or version; empty if the log does not name it."""
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


class LakeFormat(Protocol):
    """One format of tables: a module with these functions, which reads and writes metadata only.

    `format_checks.Checks` of the tests checks every promise of this protocol. Each function raises
    UsageError if the name of a table cannot be read, ConfigError if a library is missing or the
    catalog is not configured, and OutputFailed if the catalog does not answer.
    """

    def absolute_name(self, name: str) -> str:
        """Return the name of a table so that it means the same from any directory."""

    def prepared(self, wanted: LakeTable, schema: pa.Schema) -> LakeTable:
        """Return the wanted table as it is now, once it is certain that such files can become part
        of it.

        Nothing is changed. A table that is to be created does not exist yet; its location is the
        one that it will have.

        Raises UsageError if an option does not go with the format. Raises OutputFailed if the table
        exists and should not, or the other way around, if its columns differ, or if it cannot hold
        a type.
        """

    def data_place(self, name: str) -> str:
        """Return where the files of a table are, whether or not it exists yet."""

    def committed(self, table: LakeTable, run_id: str) -> str:
        """Return the snapshot that a run has committed; empty if the table does not know it."""

    def attempt(self, commit: Commit) -> Committed | None:
        """Make all files part of the table in one step, unless the run did so before.

        It returns None, and has changed nothing, if another commit was faster. Several processes
        may do this at the same time, for one run or for several: each run is committed once.

        Raises OutputFailed if the commit would undo work of another program, if it is unknown
        whether the run was committed before, or if the catalog refused. Nothing was changed, unless
        the result of the commit is unknown.
        """

    def run_log(self, table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
        """Return the entries of a table's log about a run and the files that it committed.

        The table is as the run's manifest has it. OutputFailed if it does not exist any more.
        """


class Column(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """Its type, as the format writes it."""
    nullable: bool
    rules: tuple[str, ...] = ()
    """Further rules of the table for its values."""


def check_alike(wanted: Iterable[Column], table: Iterable[Column], name: str) -> None:
    """Check that a table has the columns that the files need, in any order."""
    needed = {each.name: each for each in wanted}
    has = {each.name: each for each in table}
    alike = {each.lower(): f", but {each!r}" for each in reversed(has)}
    wrong = [
        *(
            f"it has no column {each!r}{alike.get(each.lower(), '')}"
            for each in needed
            if each not in has
        ),
        *(f"its column {each!r} is not in the files" for each in has if each not in needed),
    ]
    for each in needed.values():
        own = has.get(each.name)
        if own is None:
            continue
        if own.kind != each.kind:
            wrong.append(f"its column {each.name!r} is {own.kind} instead of {each.kind}")
        elif each.nullable and not own.nullable:
            wrong.append(f"its column {each.name!r} may not be null, but the source's column may")
        elif own.rules:
            wrong.append(f"its column {each.name!r} has additional rules ({', '.join(own.rules)})")
    if wrong:
        more = len(wrong) - _MOST_DIFFERENCES
        raise OutputFailed(
            f"the columns of {name} differ from the columns of the run: "
            + "; ".join(wrong[:_MOST_DIFFERENCES])
            + (f"; and {more} more differences" if more > 0 else ""),
            "choose the columns with --columns or --exclude, cast them in a --query, or change the "
            "table",
        )


def exact_type(
    field: pa.Field,
    title: str,
    names: Mapping[str, T],
    timestamp: Callable[[bool], T],
    decimal: Callable[[int, int], T],
) -> T:
    """Return the type of a table for a column of the files; OutputFailed if none holds the values.

    `names` has the types by the names of Arrow's; large text and bytes have the plain names.
    `timestamp` returns the type of microseconds, with a zone or without, and `decimal` the type for
    a precision up to 38 and a scale.
    """
    arrow = field.type
    if str(arrow).startswith("dictionary<"):
        arrow = arrow.value_type
    name = str(arrow).removeprefix("large_")
    if name in names:
        return names[name]
    if name.startswith("timestamp[") and arrow.unit != "ns":
        return timestamp(bool(arrow.tz))
    if name.startswith("decimal") and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return decimal(arrow.precision, arrow.scale)
    raise OutputFailed(
        f"column {field.name!r} has the type {arrow}, which {title} tables cannot store exactly",
        f"write it as text with --as-text '{field.name}', cast it in a --query, or leave it out "
        f"with --exclude '{field.name}'",
    )


def check_wanted(wanted: LakeTable, *, is_there: bool) -> None:
    """Refuse a table that exists and should not, or the other way around."""
    if wanted.save_mode == "create":
        if is_there:
            raise OutputFailed(
                f"the table {wanted.name} already exists",
                "add to it with --save-mode append, or replace its rows with --save-mode overwrite",
            )
    elif not is_there:
        raise OutputFailed(
            f"the table {wanted.name} does not exist",
            "create it with --save-mode create, or check its name",
        )


def check_for_all_rows(wanted: LakeTable) -> None:
    """Refuse the options that a format without conditions and branches does not have."""
    if wanted.replace_where is not None or wanted.branch is not None:
        raise UsageError(
            "--replace-where and --branch work only with Iceberg tables",
            "leave them out; --save-mode overwrite replaces all rows",
        )


def check_is_the_same(commit: Commit, table_id: str, now: str = "") -> None:
    """Refuse a table that another program has created, removed, replaced or changed.

    `table_id` is its id now, empty without a table. `now` is its snapshot or version, which counts
    for an overwrite.
    """
    was, run = commit.table, f"run {commit.run_id}"
    if was.save_mode == "create":
        if table_id:
            raise OutputFailed(
                f"another program created the table {was.name} while {run} was in progress",
                "run again with --save-mode append or overwrite, or with another name",
            )
    elif not table_id or table_id != was.table_id:
        raise OutputFailed(
            f"the table {was.name} was removed or replaced after {run} began", "run again"
        )
    elif was.save_mode == "overwrite" and now != was.base:
        raise OutputFailed(
            f"the table {was.name} was changed after {run} began: it was at snapshot "
            f"{was.base or 'none'} and is at {now} now; the overwrite would remove the rows "
            "written since then",
            "run again, which reads the source again and replaces the current table",
        )


def check_is_the_table(table: LakeTable, table_id: str) -> None:
    """Refuse a table that a finished run did not write to; the id is empty without a table."""
    if not table_id:
        raise OutputFailed(
            f"the table {table.name} does not exist any more",
            "find out whether it was renamed or removed",
        )
    if table.table_id not in ("", table_id):
        raise OutputFailed(
            f"the table {table.name} is another one than the run wrote to",
            "find out what became of the first one",
        )


def place_of(location: str, options: str = "") -> str:
    """Return the place of `--to` for a URI or path of a table, with `options` of its store."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return location.removeprefix("file:").replace("///", "/", 1).rstrip("/") or "/"
    schemes = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
    if parts.scheme not in schemes:
        raise OutputFailed(
            f"the table is in {parts.scheme}://, and unloader cannot write there",
            "use a table in s3://, gs:// or a local directory",
        )
    found = f"{schemes[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")
    return found + (options and f"?{options}")


def committed_once(tables: LakeFormat, commit: Commit) -> Committed:
    """Repeat a commit until it is done; raise OutputFailed if others were faster each time."""
    for number in range(_TRIES):
        done = tables.attempt(commit)
        if done is not None:
            return done
        # At random times: two processes that collided once would collide again.
        time.sleep(random.random() * min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**number))
    raise OutputFailed(
        f"other programs changed {commit.table.name} during each of the {_TRIES} attempts to "
        f"commit run {commit.run_id}",
        "commit it when fewer programs write to the table",
    )
