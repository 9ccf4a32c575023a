"""Arrow batches as the driver makes them, with its refusals reported in words of this program."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa

from unloader.errors import OutputFailed, SourceError, UnloaderError
from unloader.sources.oracle.reading.arrow import requested_schema
from unloader.sources.oracle.reading.tuples import Fetched, NumberRefused

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.reading.fetch import FetchPlan

_MISFIT = re.compile(r"DPY-4042: (\S+) cannot be converted to .* decimal\((\d+), (\d+)\)")


_OVERFLOW = "DPY-8002"
_NO_CONVERSION = ("DPY-3030", "DPY-3038", "DPY-4036")


def arrow_batches(
    connection: oracledb.Connection, sql: str, plan: FetchPlan, rows: int
) -> Generator[Fetched, None, None]:
    """Yield what a statement fetches, `rows` rows at a time.

    Raises:
        NumberRefused: A number does not fit.
        ValueError: There is a date that the driver cannot make.
        OutputFailed: A batch is larger than Arrow's columns can be.
        SourceError: The driver makes no Arrow values of a column's type.
        oracledb.Error: The driver or the database failed.
    """
    import oracledb

    frames = connection.fetch_df_batches(sql, size=rows, requested_schema=requested_schema(plan))
    while True:
        try:
            frame = next(frames, None)
        except oracledb.Error as error:
            if match := _MISFIT.search(str(error)):
                raise NumberRefused(match[1], int(match[2]), int(match[3])) from error
            if refusal := _refusal(error, plan, rows):
                raise refusal from error
            raise
        if frame is None:
            return
        batch = pa.RecordBatchReader.from_stream(frame).read_next_batch()
        if batch.num_rows:
            yield batch.columns


def _refusal(error: Exception, plan: FetchPlan, rows: int) -> UnloaderError | None:
    """Return the user's error where Arrow is what the driver fails at, None elsewhere."""
    text = str(error).splitlines()[0]
    if text.startswith(_OVERFLOW):
        names = [
            plan.columns[item.column].name
            for item in plan.items
            if item.part == "value" and item.fetched in ("string", "binary")
        ]
        return OutputFailed(
            f"{rows} rows have more than 2 GiB in one of the columns {', '.join(names)}",
            "lower --fetch-memory, so that a batch has fewer rows",
        )
    if text.startswith(_NO_CONVERSION):
        types = ", ".join(f"{column.name} {column.source_type}" for column in plan.columns)
        return SourceError(
            f"the columns have changed since the run began ({types}): {text}",
            "run again, or use --fetch tuples, which is slower",
        )
    return None
