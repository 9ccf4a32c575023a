"""A transform checked against the columns of a source, and applied to its batches.

Nothing is kept between two batches, so rows are the same however they fall into batches, work units
and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, UsageError
from unloader.transforms import column_steps as steps
from unloader.transforms.column_steps import Arrays, Columns, Work, found
from unloader.transforms.masks import Keys, masked
from unloader.transforms.model import OutputColumn, Step, TransformOptions
from unloader.transforms.sql_steps import computed, open_session
from writers.large_rows import LargeRow
from writers.schema import check_schema

TOGETHER_ROWS = 16_384
TOGETHER_BYTES = 16 * 1024 * 1024
"""The size of a joint batch. A step of SQL costs at least 1.3 ms of CPU, and a step of Arrow about
0.1 ms (measured)."""


class Together:
    """Batches that wait until there are enough of them for one evaluation."""

    def __init__(self) -> None:
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
        taken, self._batches = self._batches, []
        self._rows = self._bytes = 0
        return taken


class Checked(Struct, frozen=True, kw_only=True):
    schema: pa.Schema
    """With the metadata that writers look at."""
    columns: tuple[OutputColumn, ...]
    looked_at: frozenset[str]
    """Names of the input columns whose values a step reads."""


def check(options: TransformOptions, schema: pa.Schema) -> Checked:
    """Return the result of a transform on batches of a schema; no row and no key is read.

    Raises UsageError if a step does not suit the columns, or an expression is invalid or refused,
    and ConfigError if a library is missing.
    """
    made = Transformer(options, schema, None)
    made.close()
    proofs = {key.name: key.proof for key in options.keys}
    columns = []
    for column in made.columns:
        how = column.masked
        if how is not None and how.key_name:
            how = replace(how, key_proof=proofs.get(how.key_name, ""))
        clear = column.clear & made.masked_inputs
        columns.append(
            OutputColumn(
                name=column.name,
                output_type=str(column.field.type),
                inputs=column.inputs,
                source=column.source,
                changes=column.changes,
                masked=how,
                unmasked_inputs=tuple(name for name in column.inputs if name in clear),
            )
        )
    return Checked(schema=made.schema, columns=tuple(columns), looked_at=made.looked_at)


class Transformer:
    """Applies a transform to batches of a `schema` in one thread; `keys` are None without rows."""

    def __init__(self, options: TransformOptions, schema: pa.Schema, keys: Keys | None) -> None:
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
        self.masked_inputs: set[str] = set()
        self._stages: list[Work] = []
        self._session: Any = None
        self._computed_from: set[str] = set()
        for step in options.steps:
            self._add(step, keys)
        names = steps.names_of(self.columns)
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"two columns of the output would have the name {name!r}",
                    "give one of them another name with --rename, or leave it out with --exclude",
                )
        self.schema = steps.schema_of(self.columns).with_metadata(schema.metadata)
        looked_at = {
            name
            for column in self.columns
            for name in column.inputs
            if column.origin is None or schema.names[column.origin] != name
        }
        self.looked_at = frozenset(looked_at | self._computed_from)
        """The input columns whose values a step reads."""

    def _add(self, step: Step, keys: Keys | None) -> None:
        before = self.columns
        if step.step == "compute":
            self._session = self._session or open_session()
            self.columns, inputs = computed(self._session, step, before, self._stages)
            self._computed_from.update(inputs)
        elif step.step == "rename":
            self.columns = steps.renamed(step, before)
        elif step.is_mask:
            self.columns, work = masked(step, before, keys)
            at = found(steps.names_of(before), step.column, "mask")
            self.masked_inputs |= before[at].clear
            self._stages.append(work)
        else:
            made = {"keep": steps.kept, "cast": steps.cast, "constant": steps.constant}
            self.columns, work = made[step.step](step, before)
            self._stages.append(work)

    def apply(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of the rows of some batches, in pieces no larger than the largest.

        Columns that no step touches are not copied. Raises OutputFailed for a value that a step
        cannot take, which is not shown, and SchemaMismatch if a batch has other columns.
        """
        for each in batches:
            check_schema(each, self._given)
        table = pa.Table.from_batches(batches, self._given)
        if not table.num_rows:
            return
        arrays: Arrays = table.columns
        for stage in self._stages:
            arrays = stage(arrays, table.num_rows)
        most = max(batch.num_rows for batch in batches)
        made = pa.Table.from_arrays(arrays, schema=self.schema)
        yield from (each for each in made.to_batches(max_chunksize=most) if each.num_rows)

    def apply_large(self, large: LargeRow) -> LargeRow:
        """Return what becomes of a row with values too large for memory, which no step can read."""
        places = dict(large.values)
        for index in places:
            name = str(large.row.schema.field(index).name)
            if name in self.looked_at:
                raise OutputFailed(
                    f"column {name} has a value that is too large for memory, but a step has to "
                    "read it",
                    f"leave it out with --exclude, or redact it: --mask '{name}=redact'",
                )
        values = tuple(
            (at, places[column.origin])
            for at, column in enumerate(self.columns)
            if column.origin is not None and column.origin in places
        )
        (row,) = self.apply([large.row])
        return replace(large, row=row, values=values)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
