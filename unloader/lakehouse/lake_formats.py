"""The formats of lakehouse tables: their names in `--to`, their libraries, and their protocol."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol

from unloader.errors import ConfigError

if TYPE_CHECKING:
    from unloader.lakehouse.table_commits import Commit, Committed, RunLog, Wanted
    from unloader.model import LakeTable

LakeKind = Literal["iceberg", "delta", "ducklake"]

_MARKS: dict[str, LakeKind] = {
    "iceberg://": "iceberg",
    "delta:": "delta",
    "ducklake:": "ducklake",
}
LIBRARIES: dict[LakeKind, str] = {
    "iceberg": "pyiceberg",
    "delta": "deltalake",
    "ducklake": "duckdb",
}
"""The library that each format needs."""

EXTRAS: dict[LakeKind, str] = {"iceberg": "iceberg", "delta": "delta", "ducklake": "duckdb"}
"""The extra of this package that installs the library."""

_CLASSES = {"iceberg": "IcebergTables", "delta": "DeltaTables", "ducklake": "DuckLakeTables"}
_TITLES = {"iceberg": "Iceberg", "delta": "Delta", "ducklake": "DuckLake"}


class LakeFormat(Protocol):
    """One format of tables, such as Iceberg. It reads and writes metadata of tables, and no rows.

    `format_checks.Checks` of the tests checks every promise of this protocol.
    """

    def absolute_name(self, name: str) -> str:
        """Return the name of a table so that it means the same from any directory.

        Raises:
            UsageError: The name cannot be read.
        """

    def prepared(self, wanted: Wanted) -> LakeTable:
        """Return the table as it is now, once it is certain that such files can become part of it.

        Nothing is changed. A table that is to be created does not exist yet; its location is
        the one that it will have.

        Raises:
            UsageError: Its name cannot be read, or an option does not go with the format.
            ConfigError: A library is missing, or the catalog is not configured.
            OutputFailed: The table exists and should not, or the other way around; its columns
                differ; a column has a type that it cannot hold; the catalog does not answer.
        """

    def data_place(self, name: str) -> str:
        """Return where the files of a table are, whether or not it exists yet.

        Raises:
            The errors of `prepared`.
        """

    def committed(self, table: LakeTable, run_id: str) -> str:
        """Return the snapshot that a run has committed; empty if the table does not know the run.

        Raises:
            OutputFailed: The catalog does not answer.
        """

    def commit(self, commit: Commit) -> Committed:
        """Make all files part of the table in one step; do nothing if the run did so before.

        Several processes may do this at the same time, for one run or for several: each run is
        committed once. Appending is repeated if another commit was faster.

        Raises:
            OutputFailed: The table is not as it was, and the commit would undo work of another
                program; it is unknown whether the run was committed before; the catalog refused.
                Nothing was changed, unless the result of the commit is unknown.
        """

    def run_log(self, table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
        """Return the entries of a table's log about a run and its files.

        Args:
            table: As the run's manifest has it.
            run_id: The run.
            names: Of the files that the run committed.

        Raises:
            ConfigError: A library is missing, or the catalog is not configured.
            OutputFailed: The catalog does not answer, or the table does not exist any more.
        """


def lake_kind(place: str) -> LakeKind | None:
    """Return which format of tables a text of `--to` means; None if it means none."""
    return next((kind for mark, kind in _MARKS.items() if place.startswith(mark)), None)


def lake_format(kind: LakeKind) -> LakeFormat:
    """Return a format of tables; its library is imported now.

    Raises:
        ConfigError: The library is not installed.
    """
    try:
        module = import_module(f"unloader.lakehouse.{kind}_tables")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{_TITLES[kind]} tables need the module {error.name!r}, which is not installed",
            f"pip install 'unloader[{EXTRAS[kind]}]'",
        ) from error
    found: LakeFormat = getattr(module, _CLASSES[kind])()
    return found


def absolute_name(place: str) -> str:
    """Return a text of `--to` so that the name of a table means the same from any directory."""
    kind = lake_kind(place)
    return place if kind is None else lake_format(kind).absolute_name(place)
