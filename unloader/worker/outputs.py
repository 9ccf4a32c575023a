"""The outputs of a unit while it is written: each has its own columns, rows and writer.

All take each batch in turn, in one thread: the slowest of them holds up the fetch. So memory is the
batches in flight and the writers' buffers, for any number of outputs. A filter and a transform hold
batches until there are enough of them to be worked on together: a step costs the same for few rows
as for some thousands. Order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from unloader.errors import OutputFailed, VerifyMismatch, failure_of, translate
from unloader.model import AttemptFailure, OutputTask, Projection
from unloader.nouns import counted
from unloader.secrets.keys import masking_keys
from unloader.transforms.sql_steps import checked, open_session, rows_kept
from unloader.transforms.transformer import Together, Transformer
from writers.content.sums import ColumnSums
from writers.files.sink import total
from writers.lob_files import LobFiles
from writers.model import ContentSums, StageSeconds, WrittenFile
from writers.schema import selected

if TYPE_CHECKING:
    from writers.large_rows import LargeRow
    from writers.registry import Writer

_MOST_KEPT = 8
_kept: dict[object, Any] = {}
"""Filters and transformers that units leave to later ones, the last used one last. To check
expressions and to open a session for them takes longer than the rows of a small unit. A session of
DuckDB takes a few MB while it does nothing."""

_WHAT = "the filter"


class UnitOutput:
    """One output of a unit; everything it is given has the columns of the scan."""

    def __init__(
        self,
        task: OutputTask,
        projection: Projection,
        schema: Any,
        open_file: Callable[[Any], Writer | Dropped],
        *,
        checksums: bool,
    ) -> None:
        """Take the task; `open` comes next."""
        self.number, self.route = task.number, task.route
        self.taken = columns_of(projection, task.number)
        self.filtered = None if task.filter is None else 0
        """Rows that its filter has left out; None without a filter."""
        self.failure: AttemptFailure | None = None
        self.files: tuple[WrittenFile, ...] = ()
        self._task, self._projection, self._schema = task, projection, schema
        self._open_file, self._checksums = open_file, checksums
        self._writer: Writer | Dropped | None = None
        self._filter: RowFilter | None = None
        self._transformer: Transformer | None = None
        self._tools: dict[object, RowFilter | Transformer] = {}
        """The filter and the transformer of this unit, by the values that they are made of."""
        self._held = Together()
        self._transform_seconds = 0.0
        self._lobs: LobFiles | None = None
        self._sums: ColumnSums | None = None
        """Checksums of the rows that a filter keeps or a transform makes, or with the places of
        values in packed files."""

    def open(self) -> None:
        """Check filter and transform against the columns and the keys, and open the writer."""
        condition, transform = self._task.filter, self._task.transform
        own = self._schema if self.taken is None else selected(self._schema, self.taken)
        if condition is not None:
            filters = self._projection.filters
            looked_at = () if filters is None else tuple(filters[self.number])
            read = selected(self._schema, looked_at)
            key: object = (condition, read.serialize().to_pybytes(), looked_at)
            row_filter = _kept.pop(key, None) or RowFilter(condition, read, looked_at)
            self._filter = self._tools[key] = row_filter
        if transform is not None:
            key = (repr(transform), own.serialize().to_pybytes())
            transformer = _kept.pop(key, None) or Transformer(
                transform, own, masking_keys(transform.keys)
            )
            self._transformer = self._tools[key] = transformer
            own = transformer.schema
        if self._task.lobs:
            self._lobs = LobFiles(self._task.spec, own, self._task.stem, self._task.lobs)
            own = self._lobs.schema
        if self._checksums and (self._tools or self._lobs):
            self._sums = ColumnSums(own)
        self._writer = self._open_file(own)

    @property
    def writer(self) -> Writer | Dropped:
        assert self._writer is not None
        return self._writer

    @property
    def bytes_written(self) -> int:
        packed = 0 if self._lobs is None else self._lobs.bytes_written
        return packed if self._writer is None else packed + self._writer.bytes_written

    @property
    def stages(self) -> StageSeconds:
        """As of the writer and the packed files; the transform is a part of encoding."""
        known = StageSeconds() if self._writer is None else self._writer.stages
        for packed in () if self._lobs is None else self._lobs.stages:
            known = total(known, packed)
        return replace(known, encode_s=known.encode_s + self._transform_seconds)

    @property
    def rows(self) -> int:
        """Rows in its files, as the writer counted them; known once it is closed."""
        return sum(file.rows for file in self.files)

    def write(self, batch: Any) -> None:
        if self._filter is None and self.taken is not None:
            batch = batch.select(self.taken)
        if self._tools:
            if self._held.add(batch):
                self._flush()
        elif self._lobs is not None:
            self._put(batch)
        else:
            self.writer.write(batch)

    def _flush(self) -> None:
        batches = self._held.take()
        if self._filter is not None and batches:
            assert self.filtered is not None
            found = []
            for batch, kept in zip(batches, self._filter.kept(batches), strict=True):
                own = batch if self.taken is None else batch.select(self.taken)
                if kept is not None:
                    self.filtered += len(kept) - kept.true_count
                    own = own.filter(kept)
                if own.num_rows:
                    found.append(own)
            batches = found
        if self._transformer is not None and batches:
            began = perf_counter()
            batches = list(self._transformer.apply(batches))
            self._transform_seconds += perf_counter() - began
        for batch in batches:
            self._put(batch)

    def _put(self, batch: Any) -> None:
        if self._lobs is not None:
            batch = self._lobs.packed(batch)
        if self._sums is not None:
            self._sums.add(batch.columns, batch.num_rows)
        self.writer.write(batch)

    def write_large(self, row: LargeRow) -> None:
        """Write a row with values of any size; raises if the filter or a step would read one."""
        self._flush()
        if self._filter is not None and not self._filter.keeps(row):
            assert self.filtered is not None
            self.filtered += 1
            return
        own = row
        if self.taken is not None:
            values = dict(row.values)
            large = tuple((at, values[i]) for at, i in enumerate(self.taken) if i in values)
            own = replace(row, row=row.row.select(self.taken), values=large)
        if self._transformer is not None:
            own = self._transformer.apply_large(own)
        if self._lobs is not None:
            own = self._lobs.packed_row(own)
        if self._sums is not None:
            own = self._sums.hashed(own)
        if own.values:
            self.writer.write_large(own)
        else:
            self.writer.write(own.row)

    def close(self, scanned: int) -> None:
        """Finish the files; written and omitted rows must be as many as were read."""
        self._flush()
        packed = () if self._lobs is None else self._lobs.close()
        self.files = (*self.writer.close(), *packed)
        while self._tools:
            key, tool = self._tools.popitem()
            if key in _kept:
                tool.close()
                continue
            while len(_kept) >= _MOST_KEPT:
                _kept.pop(next(iter(_kept))).close()
            _kept[key] = tool
        if self.rows + (self.filtered or 0) != scanned:
            left_out = "" if self.filtered is None else f" and {self.filtered} were left out"
            raise VerifyMismatch(
                f"{counted(scanned, 'row was', 'rows were')} read, but {self.rows:,} "
                f"written{left_out}",
                "run again; if it happens again, report it with the plan",
            )

    def abort(self) -> None:
        self._held.take()
        while self._tools:
            self._tools.popitem()[1].close()
        if self._writer is not None:
            self._writer.abort()
        if self._lobs is not None:
            self._lobs.abort()

    def content(self, of_all: ContentSums | None) -> ContentSums | None:
        if self._sums is not None:
            return self._sums.result()
        if of_all is None or self.taken is None:
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
        """Do something with each that is left; the last one's error comes through."""
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


class RowFilter:
    """A condition on rows of a scan: `schema` has the columns that it reads, by `columns`."""

    def __init__(self, condition: str, schema: Any, columns: tuple[int, ...]) -> None:
        self._columns = columns
        self._session = open_session()
        self._condition = checked(self._session, condition, schema.names, _WHAT)

    def kept(self, batches: Sequence[Any]) -> list[Any]:
        """Return the kept rows of batches, None for all; 1.3 ms of CPU for any number."""
        return rows_kept(self._session, self._condition, batches, self._columns, _WHAT)

    def keeps(self, large: LargeRow) -> bool:
        """Return whether a row is kept whose large values the condition may not read."""
        for index, _ in large.values:
            if index in self._columns:
                name = large.row.schema.field(index).name
                raise OutputFailed(
                    f"column {name} has a value that is too large for memory, but {_WHAT} reads "
                    "this column",
                    "use --where, which the database evaluates",
                )
        return self.kept([large.row]) == [None]

    def close(self) -> None:
        self._session.close()


class Dropped:
    """A writer of batches or encoded text that counts rows and encodes nothing.

    It is for `--to null:rows`, which shows how fast the source alone is.
    """

    records = None
    """To find the records of a text is a part of encoding, which is left out."""

    def __init__(self, name: str) -> None:
        """Begin with nothing; the name takes the place of a file's name."""
        self._name = name
        self._rows = 0
        self.bytes_written = 0
        """Of text, or of rows as they were in memory."""
        self.stages = StageSeconds()

    def write(self, data: Any) -> None:
        if isinstance(data, bytes | bytearray | memoryview):
            self.bytes_written += len(data)
        else:
            self._rows += data.num_rows
            self.bytes_written += data.nbytes

    def write_large(self, row: LargeRow) -> None:
        """Read a row whose values come in pieces to its end: more rows follow in the source."""
        self._rows += 1
        self.bytes_written += row.row.nbytes
        for _, value in row.values:
            self.bytes_written += sum(len(piece) for piece in value.pieces())

    def close(self, rows: int | None = None) -> tuple[WrittenFile, ...]:
        """Return the count as a file's count; for text, `rows` is the source's count."""
        count = self._rows if rows is None else rows
        return (WrittenFile(path=self._name, rows=count, bytes=self.bytes_written, checksum=""),)

    def abort(self) -> None:
        """Do nothing: nothing is left."""
