"""Whether each output gets what it needs: batches for CSV, rendered text, both from one scan."""

from __future__ import annotations

import csv
import io

from partition_planner.model import PlanLimits, WorkUnit
from partition_planner.planner import plan
from unloader.model import Extract
from unloader.sources.testing.case import CSV_BATCHES, CSV_ENCODED, PARQUET, Case
from unloader.sources.testing.rows import check_batches, columns_of, ensure
from writers.model import TextFormat


def check_text(case: Case) -> None:
    """Read for CSV, by batches and, where the source offers it, as text of its own."""
    extract = case.extract(CSV_BATCHES)
    ensure(extract.projection.route == "arrow", "text was rendered where batches were asked for")
    units = plan(case.table, PlanLimits(parallelism=2)).units
    batches = case.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read for CSV")
    encoded = case.extract(CSV_ENCODED)
    if encoded.projection.route == "encoded":
        ensure(case.catalog.capabilities.encoded_text, "text is rendered without the capability")
        total = sum(_check_encoded(case, encoded, unit) for unit in units)
        ensure(total == case.rows, f"{total} rows, not {case.rows}, are rendered as text")


def check_both(case: Case) -> None:
    """Read once for Parquet and for CSV: each gets what it gets from a scan of its own."""
    units = plan(case.table, PlanLimits(parallelism=1, split="none")).units
    both = case.extract(PARQUET, CSV_BATCHES)
    found = case.batches(both, units)
    check_batches(found, both.projection)
    for taken, output in zip(both.projection.outputs, (PARQUET, CSV_BATCHES), strict=True):
        alone = case.extract(output)
        ensure(
            columns_of(found, taken) == columns_of(case.batches(alone, units)),
            f"one scan for Parquet and CSV has other values than one for {output} alone",
        )


def _check_encoded(case: Case, extract: Extract, unit: WorkUnit) -> int:
    pieces, rows = case.reader.encoded(extract, unit, TextFormat())
    ensure(all(piece.endswith(b"\n") for piece in pieces), "a piece of text ends within a record")
    text = b"".join(pieces).decode("utf-8")
    records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    width = len(extract.projection.columns)
    # The module gives an empty list for an empty line: one column that is NULL.
    ensure(
        all(len(record) == width or (width == 1 and not record) for record in records),
        f"a record of rendered text does not have {width} values",
    )
    ensure(len(records) == rows, f"{len(records)} records were rendered, but {rows} were counted")
    return len(records)
