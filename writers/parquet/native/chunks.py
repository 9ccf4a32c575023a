"""Column chunks: the pages of one column in one row group, compressed and then written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from writers.parquet.native.columns import ColumnForm, Encoding
from writers.parquet.native.layout import Chunk, ColumnPlan, WrittenPage
from writers.parquet.native.metadata import page_header

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.files.sink import Sink
    from writers.parquet.native.pages import Page


_ARROW_NAMES = {"lz4": "lz4_raw"}


class ChunkWriter:
    """Gathers the pages of a column until the row group ends."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._codec: Any = None
        if plan.codec != "none":
            import pyarrow as pa

            self._codec = pa.Codec(_ARROW_NAMES.get(plan.codec, plan.codec), plan.level)
        self._pages: list[tuple[Page, int, pa.Buffer]] = []

    def add(self, page: Page) -> None:
        """Compress a page, which is in the caches still, and hold it."""
        data, size = page.data, page.data.size
        if self._codec is not None:
            data = self._codec.compress(data)
        # A dictionary is complete when its chunk is, and must stand before the rest.
        self._pages.insert(0 if page.dictionary else len(self._pages), (page, size, data))

    def write(self, sink: Sink) -> Chunk:
        """Write the chunk and begin anew."""
        chunk = Chunk(plan=self._plan, start=sink.bytes_accepted)
        row = 0
        for page, size, data in self._pages:
            header = page_header(page, uncompressed=size, compressed=data.size)
            offset = sink.bytes_accepted
            sink.write(header)
            sink.write(data)
            chunk.compressed += len(header) + data.size
            chunk.uncompressed += len(header) + size
            chunk.kinds[page.dictionary, page.encoding] += 1
            if page.dictionary:
                chunk.has_dictionary = True
                continue
            chunk.data_start = chunk.data_start or offset
            chunk.pages.append(
                WrittenPage(
                    offset=offset,
                    size=len(header) + data.size,
                    first_row=row,
                    rows=page.rows,
                    nulls=page.nulls,
                    bounds=page.bounds,
                )
            )
            row += page.rows
        self._pages.clear()
        return chunk


def plans_of(forms: Sequence[ColumnForm], options: dict[str, Any]) -> list[ColumnPlan] | None:
    """Return the plan that pyarrow's options make, None where the library cannot follow it.

    Args:
        forms: Of all columns.
        options: As `writers.parquet.columns.column_options` returns them.
    """
    codec, level = options["compression"], options["compression_level"]
    plans = []
    for form in forms:
        encoding = Encoding[options["column_encoding"].get(form.name, "PLAIN")]
        if form.name in options["use_dictionary"] and form.can(Encoding.RLE_DICTIONARY):
            encoding = Encoding.RLE_DICTIONARY
        if not form.can(encoding):
            return None
        plans.append(
            ColumnPlan(
                form=form,
                encoding=encoding,
                codec=codec[form.name] if isinstance(codec, dict) else codec,
                level=level.get(form.name) if isinstance(level, dict) else level,
            )
        )
    return plans
