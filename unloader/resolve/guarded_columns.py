"""What `--guard-formulas` means for the columns of a run: their texts may be changed."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.model import Projection
from writers.model import ParquetFormat, TextFormat

NOTE = "with --guard-formulas, a text that begins like a formula gets a leading quote"


def marked(projection: Projection, output: TextFormat | ParquetFormat) -> Projection:
    """Return the projection with the columns told that an output does not write as they are."""
    if not (isinstance(output, TextFormat) and output.guard_formulas):
        return projection
    from writers.schema import read_schema
    from writers.text.formulas import is_guarded

    columns = tuple(
        replace(column, lossless=False, note="; ".join(filter(None, (column.note, NOTE))))
        if is_guarded(field)
        else column
        for column, field in zip(projection.columns, read_schema(projection.schema), strict=True)
    )
    return replace(projection, columns=columns)
