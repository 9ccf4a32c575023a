"""What is in a file and where: row groups, column chunks and pages that are written."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from writers.parquet.native.bounds import Bounds
from writers.parquet.native.columns import ColumnForm, Encoding
from writers.parquet.native.thrift import Value
from writers.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """How a column is written in all row groups."""

    form: ColumnForm
    encoding: Encoding
    codec: str
    level: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage:
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


@dataclass(slots=True, kw_only=True)
class Chunk:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something is in a file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """What the end of the file has of a column chunk, encoded: it is held until then."""

    metadata: Value
    column_index: bytes | None
    offset_index: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group in the file."""

    rows: int
    start: int
    compressed: int
    uncompressed: int
    chunks: list[ChunkRecord]
