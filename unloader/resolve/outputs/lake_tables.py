"""Files that become part of a table of a lakehouse: where they go, and whether they fit in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unloader.lakehouse.model import Wanted
from unloader.lakehouse.opening import lake_format
from unloader.lakehouse.places import lake_kind
from unloader.model import OutputOptions
from writers.objects.location import below
from writers.schema import read_schema

if TYPE_CHECKING:
    from unloader.resolve.preparation import Prepared


def in_table(options: OutputOptions, ready: Prepared, run_id: str) -> OutputOptions:
    """Return the output of one run, its place a real one: below the table's data, named by the run.

    Raises:
        UsageError: The name of the table cannot be read.
        ConfigError: A library is missing, or a catalog is not configured.
        OutputFailed: The files cannot become part of the table, as far as that is known now.
    """
    name = options.destination
    kind = lake_kind(name)
    assert kind is not None
    projection = ready.extract.projection if ready.transform is None else ready.transform.written
    tables = lake_format(kind)
    table = tables.prepared(
        Wanted(
            name=name,
            save_mode=options.save_mode or "create",
            replace_where=options.replace_where,
            branch=options.branch,
            schema=read_schema(projection.schema),
        )
    )
    return replace(
        options,
        destination=below(tables.data_place(name), run_id),
        lake_table=replace(table, files=f"{table.files}/{run_id}"),
    )
