"""Writers that drop what is fetched: rows are counted, and nothing is encoded.

For `--to null:rows`, which shows how fast the source alone is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from writers.model import StageSeconds, WrittenFile

if TYPE_CHECKING:
    from writers.large_rows import LargeRow


class DroppedRows:
    """Takes batches; a `writers.base.Writer`."""

    def __init__(self, name: str) -> None:
        """Begin with nothing.

        Args:
            name: What takes the place of a file's name.
        """
        self._name = name
        self._rows = 0
        self.bytes_written = 0
        """Of the rows as they lay in memory."""
        self.stages = StageSeconds()

    def write(self, batch: Any) -> None:
        """Count the rows of a batch."""
        self._rows += batch.num_rows
        self.bytes_written += batch.nbytes

    def write_large(self, row: LargeRow) -> None:
        """Read a row whose values come in pieces to its end: the source has more behind it."""
        self._rows += 1
        self.bytes_written += row.row.nbytes
        for _, value in row.values:
            self.bytes_written += sum(len(piece) for piece in value.pieces())

    def close(self) -> tuple[WrittenFile, ...]:
        """Return the count as that of a file."""
        return _as_file(self._name, self._rows, self.bytes_written)

    def abort(self) -> None:
        """Do nothing: nothing is left."""


class DroppedText:
    """Takes text that the source has encoded itself; a `writers.base.EncodedWriter`."""

    def __init__(self, name: str) -> None:
        """Begin with nothing; see `DroppedRows`."""
        self._name = name
        self.bytes_written = 0
        self.stages = StageSeconds()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count bytes."""
        self.bytes_written += len(data)

    @property
    def records(self) -> int | None:
        """None: to find the records is a part of encoding, which is left out."""
        return None

    def close(self, rows: int) -> tuple[WrittenFile, ...]:
        """Return the count as that of a file."""
        return _as_file(self._name, rows, self.bytes_written)

    def abort(self) -> None:
        """Do nothing: nothing is left."""


def _as_file(name: str, rows: int, size: int) -> tuple[WrittenFile, ...]:
    return (WrittenFile(path=name, rows=rows, bytes=size, checksum=""),)
