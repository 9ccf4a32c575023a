"""What all formats of tables refuse in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.errors import OutputFailed, UsageError
from unloader.lakehouse.model import Commit, Wanted
from unloader.model import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TOLD = 5


def no_exact_type(field: pa.Field, arrow: pa.DataType, kind: str) -> OutputFailed:
    """Return the refusal of a column of the files whose type no table of a kind has."""
    return OutputFailed(
        f"column {field.name!r} has the type {arrow}, which {kind} tables cannot store exactly",
        f"write it as text with --as-text '{field.name}', cast it in a --query, or leave it out "
        f"with --exclude '{field.name}'",
    )


def other_columns(name: str, wrong: Sequence[str]) -> OutputFailed:
    """Return the refusal of a table whose columns are not those of the files.

    Args:
        name: Of the table.
        wrong: What differs; the first few are told.
    """
    told, rest = wrong[:_MOST_TOLD], len(wrong) - _MOST_TOLD
    more = f"; and {rest} more differences" if rest > 0 else ""
    return OutputFailed(
        f"the columns of {name} differ from the columns of the run: {'; '.join(told)}{more}",
        "choose the columns with --columns or --exclude, cast them in a --query, or change the "
        "table",
    )


def check_wanted(wanted: Wanted, *, is_there: bool) -> None:
    """Refuse a table that is there and should not be, or the other way around.

    Raises:
        OutputFailed: It is so.
    """
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


def check_for_all_rows(wanted: Wanted) -> None:
    """Refuse what a format without conditions and branches cannot do.

    Raises:
        UsageError: It is asked for.
    """
    if wanted.replace_where is not None or wanted.branch is not None:
        raise UsageError(
            "--replace-where and --branch work only with Iceberg tables",
            "leave them out; --save-mode overwrite replaces all rows",
        )


def check_is_the_same(commit: Commit, table_id: str) -> None:
    """Refuse a commit to a table that is another one than when the run began.

    Args:
        commit: What is to be done.
        table_id: Of the table of that name as it is now; empty where there is none.

    Raises:
        OutputFailed: Somebody has made it meanwhile, or has removed or replaced it.
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


def check_is_the_table(table: LakeTable, table_id: str) -> None:
    """Refuse a table that is not the one that a finished run wrote to.

    Args:
        table: As the run's manifest has it.
        table_id: Of the table of that name as it is now; empty if there is none.

    Raises:
        OutputFailed: There is no table of that name, or it is another one.
    """
    if not table_id:
        raise OutputFailed(
            f"there is no table {table.name} any more",
            "find out whether it was renamed or removed",
        )
    if table.table_id not in ("", table_id):
        raise OutputFailed(
            f"the table {table.name} is another one than the run wrote to",
            "find out what became of the first one",
        )
