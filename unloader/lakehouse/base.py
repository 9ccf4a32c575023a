"""What a format of tables must be able to do.

`unloader.lakehouse.testing.check_format` checks all that is promised here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unloader.lakehouse.model import Commit, Committed, RunLog, Wanted
from unloader.model import LakeTable


class LakeFormat(Protocol):
    """One format of tables, such as Iceberg. It reads and writes what tables say, and no rows."""

    def prepared(self, wanted: Wanted) -> LakeTable:
        """Return the table as it is now, once it is certain that such files can become part of it.

        Nothing is changed. A table that is to be created does not exist yet; its location is
        the one that it will have.

        Raises:
            UsageError: Its name cannot be read, or an option does not go with the format.
            ConfigError: The library is missing, or the catalog is not configured.
            OutputFailed: The table is there and should not be, or the other way around; its columns
                are others; a column has a type that it cannot hold; the catalog does not answer.
        """

    def data_place(self, name: str) -> str:
        """Return where the files of a table lie, whether or not it exists yet.

        Raises:
            As `prepared`.
        """

    def committed(self, table: LakeTable, run_id: str) -> str:
        """Return the snapshot that a run has committed; empty if the table tells of none.

        Raises:
            OutputFailed: The catalog does not answer.
        """

    def commit(self, commit: Commit) -> Committed:
        """Make all files part of the table, at once; do nothing if the run has done so before.

        Several processes may do this at the same time, for one run or for several: each run is
        committed once. Appending is repeated where others were faster.

        Raises:
            OutputFailed: The table is not as it was, and what was asked for would undo what
                somebody else has done; it cannot be told whether this was done before; the catalog
                refused. Nothing was changed, unless the message says that this is not known.
        """

    def run_log(self, table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
        """Return what the log of a table knows of a run, and of its files since.

        Args:
            table: As the run's manifest has it.
            run_id: The run.
            names: Of the files that the run committed.

        Raises:
            ConfigError: The library is missing, or the catalog is not configured.
            OutputFailed: The catalog does not answer, or there is no such table any more.
        """
