"""Runs over several tables of a DuckDB file, whole ones and broken ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from msgspec.structs import replace
from processes.command import wait_for

from unloader.errors import Interrupted
from unloader.events import Event, UnitFinished, silent
from unloader.manifest.model import TablesManifest
from unloader.model import OutputOptions, Request, Selection, SourceSpec, TablesOptions
from unloader.request.names import parse_table
from unloader.run.starting import start
from unloader.selection.asked import TablesRequest
from writers.model import TextFormat


def made(path: Path, sizes: Mapping[str, int]) -> SourceSpec:
    """Return a new DuckDB file with tables of that many rows."""
    with duckdb.connect(str(path)) as connection:
        for name, rows in sizes.items():
            connection.execute(
                f"CREATE TABLE {name} AS SELECT i, '{name} ' || i AS v FROM range({rows}) r(i)"
            )
    return SourceSpec(kind="duckdb", location=str(path))


def requests_of(
    source: SourceSpec, template: str, names: Sequence[str], **output: Any
) -> list[Request]:
    """Return the request of each table: CSV, one worker, a work unit of about a thousand rows."""
    return [
        Request(
            source=source,
            selection=Selection(table=parse_table(name)),
            output=OutputOptions(destination=template, format=TextFormat(), **output),
            parallelism=1,
            unit_bytes=16_000,
        )
        for name in names
    ]


def unload(
    requests: Sequence[Request],
    options: TablesOptions | None = None,
    observe: Callable[[Event], None] = silent,
    stop: Callable[[], bool] = lambda: False,
) -> TablesManifest:
    """Unload the tables in one run."""
    template = requests[0].output.destination
    options = replace(options or TablesOptions(destination=""), destination=template)
    return start(TablesRequest.of(requests, options), observe=observe, stop=stop)


def break_off(requests: Sequence[Request], done: str, at: str, **options: Any) -> None:
    """Begin a run over tables, and end it in the middle.

    Args:
        requests: One for each table; the first one has the most rows.
        done: The table that is published by then, as the run names it.
        at: The next one; one of its units is done by then.
        options: Of the run.
    """
    manifest = Path(requests[0].output.destination).parent / done / "_manifest.json"
    units = 0

    def watch(event: Event) -> None:
        nonlocal units
        units += isinstance(event, UnitFinished) and event.unit.startswith(f"{at}/")
        if units == 2:
            # Of this unit nothing is on record yet. The thread that publishes continues meanwhile.
            wait_for(manifest.exists, "a published table")
            raise Interrupted("stopped by the test")

    try:
        unload(requests, TablesOptions(destination="", **options), watch)
    except Interrupted:
        return
    raise AssertionError("it came to its end")
