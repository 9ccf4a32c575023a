"""What files begin with where the workers do not make it themselves."""

from __future__ import annotations

from unloader.model import Projection
from writers.model import ParquetFormat, TextFormat


class Headers:
    """The header of a run's files, encoded once, when it is first needed.

    That is while the workers start, who take as long as the import of the encoder.
    """

    def __init__(self, written: Projection, output_format: TextFormat | ParquetFormat) -> None:
        """Take what the header follows from.

        Args:
            written: The columns that are written.
            output_format: How.
        """
        self._names = tuple(column.name for column in written.columns)
        self._encoded = written.route == "encoded"
        self._format = output_format
        self._made: bytes | None = None

    def of_task(self, writes_header: bool) -> bytes:
        """Return what a task must be given: on the batch route the writer makes its own."""
        return self.table() if self._encoded and writes_header else b""

    def table(self) -> bytes:
        """Return preamble and header line; empty for Parquet."""
        if self._made is None:
            self._made = b""
            if isinstance(self._format, TextFormat):
                from writers.text.text_writer import start_of_names

                self._made = start_of_names(self._names, self._format)
        return self._made
