"""Checks of the promises that every format of tables makes, without a test framework.

The files are written here with Arrow's own writer: a format adopts existing files.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.lakehouse.lake_formats import lake_format
from unloader.lakehouse.table_commits import (
    RUN_ID,
    Commit,
    Committed,
    NewFile,
    RunLog,
    committed_once,
)
from unloader.model import LakeTable, SaveMode
from writers.schema import with_field_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from unloader.lakehouse.lake_formats import LakeKind
    from unloader.lakehouse.table_commits import LakeFormat

CountRows = Callable[[str], int]
"""From a table's name to its rows, as another user reads them."""
_ROWS = 100
"""More than DuckLake deletes from a file without an end of the file's record."""
_NAME = "a%20b.parquet"
"""The file of a run that has rows."""


class Checks:
    """A format of tables, and a place for them.

    Args:
        kind: The format.
        name: The name of a new table, in a local directory.
        rows: Counts the rows of the table.
    """

    def __init__(self, kind: LakeKind, name: str, rows: CountRows) -> None:
        self._kind, self._name, self._rows = kind, name, rows
        self._tables: LakeFormat = lake_format(kind)
        self._number = 0

    def check_format(self) -> None:
        """Check all of it.

        Raises:
            AssertionError: A promise is broken.
        """
        self._check_missing()
        self._check_made_once()
        self._check_appended_at_once()
        self._check_one_run_at_once()
        self._check_others_columns()
        self._check_overwritten()
        self._check_files_are_gone()

    def _check_missing(self) -> None:
        _refused(partial(self._wanted, "append"), "does not exist")
        _refused(partial(self._wanted, "overwrite"), "does not exist")
        assert self._tables.committed(self._wanted("create"), "nobody") == ""

    def _check_made_once(self) -> None:
        first, second = self._run("create"), self._run("create")
        done = self._commit(first)
        assert done.is_new
        assert done.snapshot
        assert self._tables.committed(first.table, first.run_id) == done.snapshot
        for again in (first, replace(first, is_own=False)):
            assert self._commit(again) == Committed(snapshot=done.snapshot, is_new=False)
        _refused(partial(self._commit, second), "another program created")
        _refused(partial(self._wanted, "create"), "already exists")
        self._has(_ROWS)

    def _check_appended_at_once(self) -> None:
        runs = [self._run("append") for _ in range(4)]
        with ThreadPoolExecutor(len(runs)) as pool:
            done = list(pool.map(self._commit, runs))
        assert all(each.is_new for each in done)
        snapshots = [each.snapshot for each in done]
        assert len(set(snapshots)) == len(runs), snapshots
        assert [self._tables.committed(each.table, each.run_id) for each in runs] == snapshots
        self._has(5 * _ROWS)

    def _check_one_run_at_once(self) -> None:
        run = self._run("append")
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(self._commit, [replace(run, is_own=False)] * 4))
        assert sum(each.is_new for each in done) == 1, done
        self._has(6 * _ROWS)

    def _check_others_columns(self) -> None:
        import pyarrow as pa

        schema = _schema()
        for other, why in (
            (schema.remove(0), "is not in the files"),
            (schema.append(pa.field("more", pa.int64())), "it has no column 'more'"),
            (schema.set(0, pa.field("id", pa.string(), nullable=False)), "'id' is"),
            (schema.set(0, pa.field("id", pa.int64())), "may not be null"),
        ):
            _refused(partial(self._wanted, "append", other), why)
        for arrow in (
            pa.timestamp("ns", "UTC"),
            pa.month_day_nano_interval(),
            pa.list_(pa.int64()),
        ):
            odd = schema.append(pa.field("odd", arrow))
            _refused(partial(self._wanted, "append", odd), "column 'odd' has the type")
        turned = pa.schema([schema.field(1), schema.field(0)])
        assert set(self._wanted("append", turned).field_ids) == set(
            self._wanted("append").field_ids
        )

    def _check_overwritten(self) -> None:
        earlier = self._run("append")
        assert self._commit(earlier).is_new
        late, run = self._run("overwrite"), self._run("overwrite")
        assert self._commit(run).is_new
        self._has(_ROWS)
        _refused(partial(self._commit, late), "was changed")
        done = self._commit(run)
        assert not done.is_new
        self._has(_ROWS)
        known = RunLog(is_known=True, rows=_ROWS, changes=())
        assert self._log(run) == known
        before = self._log(earlier)
        assert (before.is_known, before.rows) == (True, _ROWS)
        removed = [(each.snapshot, each.files, each.keeps_rows) for each in before.changes]
        assert removed == [(done.snapshot, (_NAME,), False)], before
        assert before.changes[0].time
        assert before.changes[0].operation
        assert not self._log(late).is_known

    def _check_files_are_gone(self) -> None:
        run = self._run("append")
        gone = replace(run, files=(replace(run.files[0], path=f"{run.table.files}/gone.parquet"),))
        _refused(partial(self._commit, gone), "")
        assert self._tables.committed(run.table, run.run_id) == ""
        self._has(_ROWS)

    def _commit(self, run: Commit) -> Committed:
        return committed_once(self._tables, run)

    def _log(self, run: Commit) -> RunLog:
        return self._tables.run_log(run.table, run.run_id, [_NAME])

    def _has(self, rows: int) -> None:
        found = self._rows(self._name)
        assert found == rows, f"the table has {found} rows instead of {rows}"

    def _wanted(self, mode: SaveMode, schema: pa.Schema | None = None) -> LakeTable:
        return self._tables.prepared(
            LakeTable(kind=self._kind, name=self._name, save_mode=mode, location="", files=""),
            schema or _schema(),
        )

    def _run(self, mode: SaveMode) -> Commit:
        """Return a run that has written a file with rows, and one without rows."""
        import os

        self._number += 1
        run_id = f"run-{self._number}"
        table = self._wanted(mode)
        place = os.path.join(self._tables.data_place(self._name), run_id)
        os.makedirs(place)
        table = replace(table, files=f"{table.files}/{run_id}")
        files = tuple(
            NewFile(
                path=f"{table.files}/{name}",
                rows=rows,
                bytes=_written(os.path.join(place, name), rows, table.field_ids),
            )
            for name, rows in ((_NAME, _ROWS), ("nothing.parquet", 0))
        )
        return Commit(
            run_id=run_id, table=table, files=files, properties={RUN_ID: run_id}, is_own=True
        )


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


def _written(path: str, rows: int, ids: tuple[int, ...]) -> int:
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

    data = pa.table({"id": range(rows), "v": ["x"] * rows}, schema=_schema())
    pq.write_table(data.cast(with_field_ids(_schema(), ids)), path)
    return os.path.getsize(path)


def _refused(act: Callable[[], object], why: str) -> None:
    refused = None
    try:
        act()
    except OutputFailed as error:
        refused = error
    assert refused is not None, f"it was not refused: {why}"
    assert why in refused.message, refused.message
    assert refused.hint
