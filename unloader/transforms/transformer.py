"""A transform checked against the columns of a source, and applied to its batches.

Nothing is kept between two batches, so rows are the same however they fall into batches, work units
and workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, UsageError
from unloader.transforms import column_steps as steps
from unloader.transforms.column_steps import Arrays, Columns, Work, found
from unloader.transforms.masks import Keys, column_of, masked
from unloader.transforms.model import (
    CastColumn,
    ComputeColumn,
    ConstantColumn,
    DropColumns,
    FilterRows,
    KeepColumns,
    MaskingKey,
    OutputColumn,
    RenameColumns,
    Step,
    Transform,
)
from unloader.transforms.sql_steps import SqlStage, SqlSteps
from writers.large_rows import LargeRow
from writers.schema import check_schema

TOGETHER_ROWS = 16_384
TOGETHER_BYTES = 16 * 1024 * 1024
"""The size of a joint batch. A step of SQL costs at least 1.3 ms of CPU, and a step of Arrow about
0.1 ms (measured)."""


class Together:
    """Batches that wait until there are enough of them for one evaluation."""

    def __init__(self) -> None:
        """Begin with none."""
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Keep a batch, unless it is empty; return whether there are enough now."""
        if not batch.num_rows:
            return False
        self._batches.append(batch)
        self._rows += batch.num_rows
        # To add up the values of many columns took a quarter of the time of simple steps. That is
        # left to a batch that is a part of a larger one, whose buffers say too much.
        is_part = batch.num_columns and batch.column(0).offset
        self._bytes += int(batch.nbytes if is_part else batch.get_total_buffer_size())
        return self._rows >= TOGETHER_ROWS or self._bytes >= TOGETHER_BYTES

    def take(self) -> list[pa.RecordBatch]:
        """Return the batches, and keep none of them."""
        taken, self._batches = self._batches, []
        self._rows = self._bytes = 0
        return taken


class Checked(Struct, frozen=True, kw_only=True):
    """The result of a transform."""

    schema: pa.Schema
    """With the metadata that writers look at."""
    columns: tuple[OutputColumn, ...]
    looked_at: frozenset[str]
    """Names of the input columns whose values a step reads."""


def check(transform: Transform, schema: pa.Schema, keys: Sequence[MaskingKey] = ()) -> Checked:
    """Return the result of a transform; no row and no key is read.

    Args:
        transform: The steps.
        schema: Of the batches that go in, as a projection has it.
        keys: Where keys are found; those with a proof are recorded with it.

    Raises:
        UsageError: A step names no column, or several, or does not suit its type; an expression is
            invalid or refused.
        ConfigError: A library is missing.
    """
    compiled = _Compiling(transform, schema, keys=None)
    if compiled.sql is not None:
        compiled.sql.close()
    proofs = {key.name: key.proof for key in keys}
    return Checked(
        schema=compiled.schema,
        columns=tuple(
            _output(column, compiled.masked_inputs, proofs) for column in compiled.columns
        ),
        looked_at=compiled.looked_at(),
    )


class Transformer:
    """Applies a transform to batches; used by one thread at a time."""

    def __init__(self, transform: Transform, schema: pa.Schema, keys: Keys) -> None:
        """Check the transform, and get ready.

        Args:
            transform: The steps.
            schema: Of the batches that will come.
            keys: By their names, as `masking_keys.masking_keys` reads them.

        Raises:
            UsageError: As `check`.
            ConfigError: A key is missing or invalid; a library is missing.
        """
        compiled = _Compiling(transform, schema, keys=keys)
        self._given = schema
        self._stages = compiled.stages
        self._sql = compiled.sql
        self._columns = compiled.columns
        self._looked_at = compiled.looked_at()
        self.schema = compiled.schema

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what becomes of the rows of a batch, in their order.

        Raises:
            OutputFailed: A value is not one that a step can take; it is not shown.
            SchemaMismatch: The batch has other columns than were promised.
        """
        check_schema(batch, self._given)
        return pa.RecordBatch.from_arrays(
            self._run(batch.columns, batch.num_rows), schema=self.schema
        )

    def apply_all(
        self, batches: Iterable[pa.RecordBatch | LargeRow]
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield what becomes of the rows of batches, in their order; none of them is empty.

        Several batches are worked on together, since each step costs the same for few rows as for
        some thousands. Columns that no step touches are not copied.

        Raises:
            OutputFailed, SchemaMismatch: As `apply`.
        """
        held, is_enough = Together(), False
        for item in batches:
            if is_enough or isinstance(item, LargeRow):
                yield from self.apply_together(held.take())
            if isinstance(item, LargeRow):
                large = self.apply_large(item)
                if large is not None:
                    yield large
            is_enough = not isinstance(item, LargeRow) and held.add(item)
        yield from self.apply_together(held.take())

    def apply_together(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of the rows of some batches, in pieces no larger than the largest.

        Raises:
            OutputFailed, SchemaMismatch: As `apply`.
        """
        if not batches:
            return
        for each in batches:
            check_schema(each, self._given)
        table = pa.Table.from_batches(batches, self._given)
        arrays = self._run(table.columns, table.num_rows)
        most = max(batch.num_rows for batch in batches)
        made = pa.Table.from_arrays(arrays, schema=self.schema)
        yield from (each for each in made.to_batches(max_chunksize=most) if each.num_rows)

    def _run(self, arrays: Arrays, rows: int) -> Arrays:
        for stage in self._stages:
            if callable(stage):
                arrays = stage(arrays, rows)
            else:
                arrays, rows = stage.run(arrays, rows)
        return arrays

    def apply_large(self, large: LargeRow) -> LargeRow | None:
        """Return what becomes of a row with values too large for memory; None if it is left out.

        Raises:
            OutputFailed: A step would have to look at such a value.
        """
        places = dict(large.values)
        batch = large.row
        for index in places:
            self._check_untouched(str(batch.schema.field(index).name))
        row = self.apply(batch)
        if not row.num_rows:
            return None
        values = tuple(
            (at, places[column.origin])
            for at, column in enumerate(self._columns)
            if column.origin is not None and column.origin in places
        )
        return replace(large, row=row, values=values)

    def close(self) -> None:
        """End the session of DuckDB, if there is one."""
        if self._sql is not None:
            self._sql.close()

    def _check_untouched(self, name: str) -> None:
        if name in self._looked_at:
            raise OutputFailed(
                f"column {name} has a value that is too large for memory, but a step has to read "
                "it",
                f"leave it out with --exclude, or redact it: --mask '{name}=redact'",
            )


class _Compiling:
    """The steps of one transform, one after the other."""

    def __init__(self, transform: Transform, schema: pa.Schema, *, keys: Keys | None) -> None:
        self._given = schema
        self.columns: Columns = tuple(
            steps.Column(
                field=field,
                inputs=(field.name,),
                clear=frozenset((field.name,)),
                source=field.name,
                origin=index,
            )
            for index, field in enumerate(schema)
        )
        self.stages: list[Work | SqlStage] = []
        self.masked_inputs: set[str] = set()
        self.sql: SqlSteps | None = None
        for step in transform.steps:
            self._add(step, keys)
        _check_names(self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output, with the metadata of the input."""
        return steps.schema_of(self.columns).with_metadata(self._given.metadata)

    def looked_at(self) -> frozenset[str]:
        """Return the input columns whose values a step reads."""
        names = self._given.names
        found = {
            name
            for column in self.columns
            for name in column.inputs
            if column.origin is None or names[column.origin] != name
        }
        return frozenset(found | (self.sql.inputs if self.sql is not None else set()))

    def _add(self, step: Step, keys: Keys | None) -> None:
        if isinstance(step, (ComputeColumn, FilterRows)):
            if self.sql is None:
                self.sql = SqlSteps()
            self.columns = self.sql.add(step, self.columns, self.stages)
            return
        before = self.columns
        self.columns, work = _compiled(step, before, keys)
        if not isinstance(
            step,
            (KeepColumns, DropColumns, RenameColumns, CastColumn, ConstantColumn),
        ):
            at = found(steps.names_of(before), column_of(step), "mask")
            self.masked_inputs |= before[at].clear
        if not isinstance(step, RenameColumns):
            self.stages.append(work)


def _compiled(step: Step, columns: Columns, keys: Keys | None) -> tuple[Columns, Work]:
    if isinstance(step, KeepColumns):
        return steps.kept(step, columns)
    if isinstance(step, DropColumns):
        return steps.dropped(step, columns)
    if isinstance(step, RenameColumns):
        return steps.renamed(step, columns)
    if isinstance(step, CastColumn):
        return steps.cast(step, columns)
    if isinstance(step, ConstantColumn):
        return steps.constant(step, columns)
    if isinstance(step, (ComputeColumn, FilterRows)):
        raise TypeError(type(step))
    return masked(step, columns, keys)


def _check_names(columns: Columns) -> None:
    names = steps.names_of(columns)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two columns of the output would have the name {name!r}",
                "give one of them another name with --rename, or leave it out with --exclude",
            )


def _output(
    column: steps.Column, masked_inputs: set[str], proofs: Mapping[str, str]
) -> OutputColumn:
    how = column.masked
    if how is not None and how.key_name:
        how = replace(how, key_proof=proofs.get(how.key_name, ""))
    return OutputColumn(
        name=column.name,
        output_type=str(column.field.type),
        inputs=column.inputs,
        source=column.source,
        changes=column.changes,
        masked=how,
        unmasked_inputs=tuple(
            name for name in column.inputs if name in column.clear & masked_inputs
        ),
    )
