"""The rows and columns that the user requests."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Struct

from unloader.model.source import TableName
from unloader.request.option import PLANNING, READING, Option
from unloader.request.settings import Part
from unloader.request.value_types import COUNT, GLOBS, NAMES, PART, SHARE, TABLES, Kind

_QUERY = "unloader run duckdb:///data/sales.db --query 'SELECT ID FROM ORDERS' \\\n   "
_QUERY_NAME = f"{_QUERY} --query-name ids --to '/extract/{{table}}'"
_PARTITION = (
    "unloader run oracle://etl@db01/SALES --table ORDERS --to /extract \\\n    --partition 'P2026*'"
)

_selection = partial(
    Option, group="Selection", commands=PLANNING, effect="selects", scope="table", planned=True
)

_rows = partial(_selection, commands=READING)

_columns = partial(_rows, kind=NAMES, scope="route", empty=True)


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the source that the user requests."""

    table: Annotated[
        TableName | None,
        _selection(
            Kind("T"),
            commands=("describe", "codecs", "preflight", "sweep"),
            effect="changes",
            common=True,
            example="ORDERS",
        )("Table or view: NAME or SCHEMA.NAME. Put double quotes around a name that is not plain."),
        _selection(TABLES, effect="changes", common=True, example="ORDERS")(
            "Table, view or pattern such as 'SALES.*'. Write NAME or SCHEMA.NAME, with double "
            "quotes around a name that is not plain. Repeat the option for several tables. All "
            "tables are read at one snapshot."
        ),
    ] = None
    query: Annotated[str | None, _rows(Kind("SQL"), common=True, example=f"{_QUERY} --to ids")] = (
        None
    )
    """Unload the result of this query. It is used instead of --table."""
    # The name of the query, in place of the name of a table; None means `query`.
    query_name: Annotated[
        str | None, _selection(Kind("NAME"), effect="none", example=_QUERY_NAME)
    ] = None
    """Name for the result of --query. It replaces {table} in names of directories and files. The
    default is query."""
    columns: Annotated[tuple[str, ...], _columns(example="ID,AMOUNT")] = ()
    """Only these columns, in this order. A pattern such as addr_* selects all columns that match. A
    text in double quotes is a name, and not a pattern. Separate several with commas, or repeat the
    option."""
    exclude: Annotated[tuple[str, ...], _columns(example="'ADDR_*'")] = ()
    """All columns except these names or patterns. Separate several with commas, or repeat the
    option."""
    where: Annotated[
        str | None, _rows(Kind("SQL"), scope="route", common=True, example="'AMOUNT > 100'")
    ] = None
    """Only the rows that meet this condition. The database evaluates it."""
    # Glob patterns; empty means all partitions.
    partitions: Annotated[
        tuple[str, ...], _rows(GLOBS, empty=True, name="partition", example=_PARTITION)
    ] = ()
    """Only the partitions that match one of these patterns. Each pattern must match a partition. A
    partition includes its subpartitions: YEAR, YEAR/MONTH. Separate several with commas, or repeat
    the option."""
    as_text: Annotated[
        tuple[str, ...],
        _selection(
            GLOBS, commands=("describe", *READING), effect="changes", empty=True, example="'*_CODE'"
        ),
    ] = ()
    """Write the columns that match one of these patterns as exact text. Separate several with
    commas, or repeat the option."""
    # A share above 0 and up to 1; 1 and None mean all rows.
    sample: Annotated[float | None, _selection(SHARE)] = None
    """Only a sample of about this size, such as 1%. The sample is the same each time. Without
    --sample-by it consists of whole work units. With --sample-by it has, for some values of the
    column, all rows with these values. 100% is everything."""
    sample_by: Annotated[
        str | None, _selection(Kind("COLUMN"), example="CUSTOMER_ID --sample 1%")
    ] = None
    """Sample by the values of this column. Every table and source that has the column gives the
    same values, so that samples of several tables can be joined."""
    limit_rows: Annotated[int | None, _selection(COUNT)] = None
    """At most this many rows: the first that the database returns. One worker reads them."""
    # The part of a plan that is read here; None means the whole plan.
    part: Annotated[
        Part | None, _selection(PART, commands=("run",), scope="run", planned=False, in_files=False)
    ] = None
    """Read only part K of N of the work units in a plan file, at the snapshot of the plan. The
    other parts run elsewhere, and `unloader merge` combines the parts. auto/N takes K from a job
    array of Slurm (numbered from 1), Kubernetes or AWS Batch."""

    @property
    def sampled_share(self) -> float | None:
        """The requested share; None means everything."""
        return None if self.sample is None or self.sample >= 1 else self.sample
