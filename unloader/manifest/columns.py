"""What a manifest says of each column of the output."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.manifest.asked import ColumnRecord
from unloader.model import COMPARING, ReadColumn
from unloader.resolve.resolved import ResolvedRun
from writers.model import TextFormat
from writers.schema import text_classes

if TYPE_CHECKING:
    from unloader.transforms.model import OutputColumn


def columns_record(run: ResolvedRun) -> tuple[ColumnRecord, ...]:
    """Return what is said of each column, with its place in records of fixed width."""
    projection, output_format = run.written, run.output.format
    classes: Iterable[str | None] = repeat(None)
    if run.request.verify in COMPARING:
        classes = text_classes(projection.schema)
    columns = tuple(
        _column(column, text_class)
        for column, text_class in zip(projection.columns, classes, strict=False)
    )
    if run.output.transform is not None:
        known = zip(columns, run.output.transform.columns, strict=True)
        columns = tuple(_changed(column, how) for column, how in known)
    if not isinstance(output_format, TextFormat) or not output_format.fixed:
        return columns
    return tuple(
        replace(column, position=(field.start + 1, field.start + field.width))
        for column, field in zip(columns, output_format.fixed, strict=True)
    )


def _column(column: ReadColumn, text_class: str | None) -> ColumnRecord:
    return ColumnRecord(
        name=column.name,
        source_type=column.source_type,
        output_type=column.output_type,
        nullable=column.nullable,
        lossless=column.lossless,
        note=column.note,
        text_class=text_class or None,
    )


def _changed(column: ColumnRecord, how: OutputColumn) -> ColumnRecord:
    """Return what is said of a column with what was done to it."""
    return replace(
        column,
        masked=how.masked,
        changes=how.changes or None,
        read_from=None if how.inputs in ((how.name,), ()) else how.inputs,
        clear_values_of=how.unmasked_inputs or None,
    )
