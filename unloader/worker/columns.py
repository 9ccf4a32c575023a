"""Which columns of a scan an output gets: one scan can serve several outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from writers.schema import selected

if TYPE_CHECKING:
    from unloader.model import Projection
    from writers.base import Writer
    from writers.large_rows import LargeRow
    from writers.model import StageSeconds, WrittenFile


def columns_of(projection: Projection, output: int) -> tuple[int, ...] | None:
    """Return the columns of an output by index, in its order; None where it takes the whole scan.

    Args:
        projection: The columns of the scan.
        output: Index of the output.
    """
    if not projection.outputs:
        return None
    taken = projection.outputs[output]
    return None if taken == tuple(range(len(projection.columns))) else taken


def open_for_columns(
    open_file: Callable[[Any], Writer], schema: Any, taken: tuple[int, ...] | None
) -> Writer:
    """Return a writer that takes the batches of the whole scan.

    Args:
        open_file: Opens the writer of the output's own columns.
        schema: Of the scan.
        taken: As of `columns_of`. For None it is the output's own writer that is returned, so that
            a single output pays nothing for the others.
    """
    if taken is None:
        return open_file(schema)
    return _ColumnsWriter(writer=open_file(selected(schema, taken)), taken=taken)


class _ColumnsWriter(Struct, frozen=True, kw_only=True):
    """A writer that gets some columns of each batch; a `Writer` itself."""

    writer: Writer
    taken: tuple[int, ...]

    def write(self, batch: Any) -> None:
        self.writer.write(batch.select(self.taken))

    def write_large(self, row: LargeRow) -> None:
        values = dict(row.values)
        own = tuple((at, values[index]) for at, index in enumerate(self.taken) if index in values)
        columns = row.row.select(self.taken)
        if own:
            self.writer.write_large(replace(row, row=columns, values=own))
        else:
            self.writer.write(columns)

    def close(self) -> tuple[WrittenFile, ...]:
        return self.writer.close()

    def abort(self) -> None:
        self.writer.abort()

    @property
    def bytes_written(self) -> int:
        return self.writer.bytes_written

    @property
    def stages(self) -> StageSeconds:
        return self.writer.stages
