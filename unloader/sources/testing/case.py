"""What the parts of the contract check share: one table of an open source, and ways to cut it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import Catalog
from unloader.sources.projection import OutputNeeds, project
from unloader.sources.testing.worker import WorkerReader
from writers.model import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

PARALLELISMS = (1, 2, 5)
PIECES = 7
"""About how many units a table is cut into where it can be cut."""
ASSUMED_ROW_BYTES = 128
SMALL_FETCH, LARGE_FETCH = 4096, 32 * 1024 * 1024
PARQUET = OutputNeeds(text=None)
CSV_BATCHES = OutputNeeds(text=TextFormat(), batches_only=True)
CSV_ENCODED = OutputNeeds(text=TextFormat())


class Case(Struct, frozen=True):
    """One table of an open source."""

    catalog: Catalog
    reader: WorkerReader
    spec: SourceSpec
    snapshot: Snapshot
    table: TableInfo
    rows: int

    def extract(
        self,
        *outputs: OutputNeeds,
        query: str | None = None,
        where: str | None = None,
        partitions: tuple[str, ...] = (),
    ) -> Extract:
        """Return the extract of the table, of partitions of it, or of a query."""
        return Extract(
            source=self.spec,
            snapshot=self.snapshot,
            table=self.table,
            query=query,
            where=where,
            partitions=partitions,
            projection=project(self.catalog, self.table, query, outputs),
        )

    def batches(
        self, extract: Extract, units: Iterable[WorkUnit], batch_bytes: int = LARGE_FETCH
    ) -> list[pa.RecordBatch]:
        """Return the batches of all units, read one after the other by one reader."""
        return [
            batch
            for unit in units
            for batch in self.reader.batches(extract, unit, batch_bytes=batch_bytes)
        ]


def limits_for(table: TableInfo) -> Iterator[PlanLimits]:
    """Yield every way in which the planner may cut a table."""
    addresses = sum(extent.addresses for extent in table.extents)
    size = table.bytes or (table.rows or addresses) * ASSUMED_ROW_BYTES
    unit_bytes = max(1, size // PIECES)
    carriers = table.partitions or (table,)
    for parallelism in PARALLELISMS:
        yield PlanLimits(parallelism=parallelism)
        yield PlanLimits(parallelism=parallelism, split="none")
        yield PlanLimits(parallelism=parallelism, unit_bytes=unit_bytes)
        if table.partitions:
            yield PlanLimits(parallelism=parallelism, split="partition")
        if table.row_ranges and any(each.extents or each.keys for each in carriers):
            yield PlanLimits(parallelism=parallelism, split="range", unit_bytes=unit_bytes)
