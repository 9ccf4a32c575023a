"""Files that become part of a table of a lakehouse: where they go, and whether they fit in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.lakehouse.table_commits import Wanted
from unloader.model import OutputOptions
from unloader.request.names import one_column
from writers.model import ParquetFormat
from writers.objects.location import below
from writers.schema import read_schema

if TYPE_CHECKING:
    from unloader.resolve.preparation import Prepared


def in_table(options: OutputOptions, ready: Prepared, run_id: str) -> OutputOptions:
    """Return the output of one run, its place a real one: below the table's data, named by the run.

    Raises:
        UsageError: The name of the table cannot be read, or there is no column to partition by.
        ConfigError: A library is missing, or a catalog is not configured.
        OutputFailed: The files cannot become part of the table, as far as that is known now.
    """
    name = options.destination
    kind = lake_kind(name)
    assert kind is not None
    projection = ready.extract.projection if ready.transform is None else ready.transform.written
    names = [column.name for column in projection.columns]
    folding = ready.catalog.capabilities.folding
    tables = lake_format(kind)
    table = tables.prepared(
        Wanted(
            name=name,
            save_mode=options.save_mode or "create",
            replace_where=options.replace_where,
            branch=options.branch,
            schema=read_schema(projection.schema),
            partition_by=tuple(
                replace(each, column=one_column(names, each.column, folding))
                for each in options.partition_by
            ),
            sorted_by=ready.format.sorted_by if isinstance(ready.format, ParquetFormat) else (),
        )
    )
    return replace(
        options,
        destination=below(tables.data_place(name), run_id),
        lake_table=replace(table, files=f"{table.files}/{run_id}"),
    )
