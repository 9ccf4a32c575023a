"""What is in a file and where: row groups, column chunks and pages that are written."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from writers.parquet.native.bounds import Bounds
from writers.parquet.native.columns import ColumnForm, Encoding
from writers.parquet.native.thrift import Value


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How a column is written in all row groups."""

    form: ColumnForm
    encoding: Encoding
    codec: str
    level: int | None


class WrittenPage(Struct, frozen=True, kw_only=True):
    """A data page in the file."""

    offset: int
    size: int
    """With its header."""
    first_row: int
    rows: int
    nulls: int
    bounds: Bounds | None

    @property
    def has_values(self) -> bool:
        """Whether not all of its rows are NULL."""
        return self.nulls < self.rows


class Chunk(Struct, kw_only=True):
    """A column chunk that was just written."""

    plan: ColumnPlan
    start: int
    data_start: int = 0
    """Of the first data page."""
    has_dictionary: bool = False
    compressed: int = 0
    uncompressed: int = 0
    pages: list[WrittenPage] = field(default_factory=list)
    kinds: Counter[tuple[bool, Encoding]] = field(default_factory=Counter)
    """How many pages there are: of dictionaries or not, and their encoding."""


class Place(Struct, frozen=True, kw_only=True):
    """Where something is in a file."""

    offset: int
    size: int


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """What the end of the file has of a column chunk, encoded: it is held until then."""

    metadata: Value
    column_index: bytes | None
    offset_index: bytes | None


class RowGroup(Struct, frozen=True, kw_only=True):
    """A row group in the file."""

    rows: int
    start: int
    compressed: int
    uncompressed: int
    chunks: list[ChunkRecord]
