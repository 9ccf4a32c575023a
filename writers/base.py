"""What a writer of rows is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow
    from writers.model import StageSeconds, WrittenFile


class Writer(Protocol):
    """Takes the batches of one work unit and leaves staged files.

    `close` makes the files real (flushed, synced, still under staging names); `abort` leaves
    nothing behind. Exactly one of the two is called, once.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode one batch of the writer's schema; ValueNotRepresentable names column and row."""

    def write_large(self, row: LargeRow) -> None:
        """Encode one row whose large values come in pieces, after the rows written so far.

        The bytes equal the bytes of a batch of the same row. A format that cannot write a value in
        pieces collects it up to `writers.large_rows.COLLECTED_BYTES`, and refuses a larger one.
        """

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish and sync the files, as they were written, at least one; or leave none."""

    def abort(self) -> None:
        """Stop, and remove every staged file; never raises for files already gone."""

    @property
    def bytes_written(self) -> int:
        """Bytes handed to the destination so far, after compression."""

    @property
    def stages(self) -> StageSeconds:
        """Wall seconds spent encoding and writing so far."""
