"""The outputs of a unit while it is written: each has its own columns, rows and writer.

All take each batch in turn, in one thread: the slowest of them holds up the fetch. So memory is the
batches in flight and the writers' buffers, for any number of outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from unloader.errors import OutputFailed, VerifyMismatch, translate
from unloader.failures import failure_of
from unloader.model import AttemptFailure, OutputTask, Projection
from unloader.nouns import counted
from unloader.transforms.sql_expressions import checked, open_session
from unloader.transforms.sql_steps import SqlStage
from unloader.transforms.transformer import Together
from unloader.worker.transforming import Kept, TransformedWriter
from writers.content.sums import ColumnSums
from writers.model import ContentSums, StageSeconds, WrittenFile
from writers.schema import selected

if TYPE_CHECKING:
    from writers.base import Writer
    from writers.large_rows import LargeRow


class UnitOutput:
    """One output of a unit; everything it is given has the columns of the scan."""

    def __init__(
        self,
        task: OutputTask,
        projection: Projection,
        schema: Any,
        open_file: Callable[[Any], Writer],
        *,
        checksums: bool,
    ) -> None:
        """Take the task; `open` comes next."""
        self.number, self.route = task.number, task.route
        self.taken = columns_of(projection, task.number)
        self.filtered: int | None = None
        """Rows that its filter has left out; None without a filter."""
        self.failure: AttemptFailure | None = None
        self.files: tuple[WrittenFile, ...] = ()
        self._schema, self._open_file = schema, open_file
        self._checksums = checksums
        self._condition = task.filter
        self._transform = task.transform
        self._changed: TransformedWriter | None = None
        self._looked_at = () if projection.filters is None else projection.filters[task.number]
        self._writer: Writer | None = None
        self._held: Together
        self._filter: RowFilter | None = None
        self._sums: ColumnSums | None = None
        """Checksums of the rows that a filter keeps."""

    def open(self) -> None:
        own = self._schema if self.taken is None else selected(self._schema, self.taken)
        if self._condition is not None:
            self.filtered = 0
            self._filter = row_filter(self._condition, self._schema, self._looked_at)
            self._held = Together()
            if self._checksums and self._transform is None:
                self._sums = ColumnSums(own)
        if self._transform is None:
            self._writer = self._open_file(own)
            return

        self._writer = self._changed = TransformedWriter(
            self._transform, own, self._open_file, checksums=self._checksums
        )

    @property
    def writer(self) -> Writer:
        assert self._writer is not None
        return self._writer

    @property
    def bytes_written(self) -> int:
        return 0 if self._writer is None else self._writer.bytes_written

    @property
    def stages(self) -> StageSeconds:
        return StageSeconds() if self._writer is None else self._writer.stages

    @property
    def rows(self) -> int:
        """Rows in its files, as the writer counted them; known once it is closed."""
        return sum(file.rows for file in self.files)

    def write(self, batch: Any) -> None:
        if self._filter is None:
            self.writer.write(batch if self.taken is None else batch.select(self.taken))
        elif self._held.add(batch):
            self._write_held()

    def _write_held(self) -> None:
        """Write the kept rows of the batches that wait for the filter, each as a batch."""
        assert self._filter is not None
        assert self.filtered is not None
        held = self._held.take()
        if not held:
            return
        for batch, kept in zip(held, self._filter.kept(held), strict=True):
            own = batch if self.taken is None else batch.select(self.taken)
            if kept is not None:
                self.filtered += len(kept) - kept.true_count
                own = own.filter(kept)
            if own.num_rows:
                if self._sums is not None:
                    self._sums.add(own.columns, own.num_rows)
                self.writer.write(own)

    def write_large(self, row: LargeRow) -> None:
        if self._filter is not None:
            assert self.filtered is not None
            self._write_held()
            if not self._filter.keeps(row):
                self.filtered += 1
                return
        own = row
        if self.taken is not None:
            values = dict(row.values)
            large = tuple((at, values[i]) for at, i in enumerate(self.taken) if i in values)
            own = replace(row, row=row.row.select(self.taken), values=large)
        if self._sums is not None:
            own = self._sums.hashed(own)
        if own.values:
            self.writer.write_large(own)
        else:
            self.writer.write(own.row)

    def close(self, scanned: int) -> None:
        """Finish the files.

        Raises:
            VerifyMismatch: The rows in the files and the omitted rows do not add up to the read
                rows.
        """
        if self._filter is not None:
            self._write_held()
        self.files = self.writer.close()
        if self._filter is not None:
            self._filter.keep()
            self._filter = None
        if self.rows + (self.filtered or 0) != scanned:
            left_out = "" if self.filtered is None else f" and {self.filtered} were left out"
            raise VerifyMismatch(
                f"{counted(scanned, 'row was', 'rows were')} read, but {self.rows:,} "
                f"written{left_out}",
                "run again; if it happens again, report it with the plan",
            )

    def abort(self) -> None:
        if self._filter is not None:
            self._filter.close()
            self._filter = None
        if self._writer is not None:
            self._writer.abort()

    def content(self, of_all: ContentSums | None) -> ContentSums | None:
        """Return the checksums of the values in its files."""
        if self._changed is not None:
            return self._changed.content
        if of_all is None:
            return None
        if self._sums is not None:
            return self._sums.result()
        if self.taken is None:
            return of_all
        return replace(
            of_all,
            nulls=tuple(of_all.nulls[index] for index in self.taken),
            sums=tuple(of_all.sums[index] for index in self.taken),
        )


class Outputs:
    """All outputs of a unit; some may be given up on the way."""

    def __init__(self, outputs: Sequence[UnitOutput], *, drops: bool) -> None:
        """Take them; with `drops` one that fails is given up as long as there are others."""
        self.all = tuple(outputs)
        self._drops = drops

    @property
    def left(self) -> list[UnitOutput]:
        return [each for each in self.all if each.failure is None]

    @property
    def bytes_written(self) -> int:
        return sum(each.bytes_written for each in self.all if each.failure is None)

    def each(self, do: Callable[[UnitOutput], None]) -> None:
        """Do something with each that is left.

        Raises:
            Exception: Any error that does not belong to one output, or the last output's error.
        """
        if len(self.all) == 1 and not self.all[0].route:
            do(self.all[0])
            return
        for output in self.left:
            try:
                do(output)
            except Exception as error:
                known = translate(error)
                if not isinstance(known, (OutputFailed, VerifyMismatch)):
                    raise
                if not self._drops or known.retryable or len(self.left) == 1:
                    named = f"route {output.route}: {known.message}"
                    raise type(known)(named, known.hint) from error
                output.failure = failure_of(error)
                output.abort()

    def abort(self) -> None:
        for output in self.left:
            output.abort()


def columns_of(projection: Projection, output: int) -> tuple[int, ...] | None:
    """Return the columns of an output by index, in its order; None is the whole scan."""
    if not projection.outputs:
        return None
    taken = projection.outputs[output]
    return None if taken == tuple(range(len(projection.columns))) else taken


WHAT = "the filter"

_FILTERS: Kept[RowFilter] = Kept()
"""By their conditions and the columns of these."""


def row_filter(condition: str, schema: Any, columns: Sequence[int]) -> RowFilter:
    """Return a filter that a unit before has left, or a new one; see `RowFilter`."""
    key = (condition, selected(schema, columns).serialize().to_pybytes(), tuple(columns))
    return _FILTERS.take(key) or RowFilter(condition, schema, columns)


class RowFilter:
    def __init__(self, condition: str, schema: Any, columns: Sequence[int]) -> None:
        """Get ready."""
        self._columns = tuple(columns)
        looked_at = selected(schema, self._columns)
        self._kept_as = (condition, looked_at.serialize().to_pybytes(), self._columns)
        self._session = open_session()
        names = looked_at.names
        expression = checked(self._session, condition, names, WHAT)
        self._evaluation = SqlStage(self._session, WHAT)
        self._evaluation.filter(expression)

    def kept(self, batches: Sequence[Any]) -> list[Any]:
        """Return which rows of each of some batches are kept; None is all of one.

        They are evaluated together: that costs 1.3 ms of CPU however few the rows are.

        Raises:
            OutputFailed: The condition fails on a row.
        """
        return self._evaluation.kept(batches, self._columns)

    def keeps(self, large: LargeRow) -> bool:
        """Return whether a row with values too large for memory is kept.

        Raises:
            OutputFailed: The condition would have to look at such a value.
        """
        for index, _ in large.values:
            if index in self._columns:
                name = large.row.schema.field(index).name
                raise OutputFailed(
                    f"column {name} has a value that is too large for memory, but {WHAT} reads "
                    "this column",
                    "use --where, which the database evaluates",
                )
        return self.kept([large.row]) == [None]

    def keep(self) -> None:
        """Keep it for later units; all its rows were taken."""
        _FILTERS.keep(self._kept_as, self)

    def close(self) -> None:
        self._session.close()
