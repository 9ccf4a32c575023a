"""A writer that drops the fetched rows: it counts them and encodes nothing.

For `--to null:rows`, which shows how fast the source alone is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from writers.model import StageSeconds, WrittenFile

if TYPE_CHECKING:
    from writers.large_rows import LargeRow


class Dropped:
    """Takes batches or encoded text; the interface of both kinds of writers."""

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
