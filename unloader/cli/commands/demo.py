"""`unloader demo`: the reference table in an embedded database, unloaded twice and verified.

It does the work of `unloader run` and `unloader verify` with their defaults, through the same
functions, so its figures are the product's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import declared
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import display_for
from unloader.errors import Interrupted, OutputFailed
from unloader.events import Notice, Observer
from unloader.model import OutputOptions, PlanOptions, Request, Selection, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.duckdb import reference as duckdb_reference
from writers.model import Compression, ParquetFormat, TextFormat

TABLE = "HASH_PART_0160"

_OUTPUTS: dict[str, tuple[TextFormat | ParquetFormat, Compression, int]] = {
    "csv": (TextFormat(), Compression(), 137),
    "parquet": (ParquetFormat(), Compression(codec="zstd"), 85),
}
"""Format, codec and bytes a row, the last a little over the measured size, to judge the space."""

_NOTICES = 10
"""Lines that report the build, for any number of rows."""


@declared(
    "demo",
    "Try everything on a generated table, without a server.",
    """
    unloader demo
    unloader demo --rows 200k --dir /tmp/unloader-demo --parallelism 2
    """,
)
def demo(**values: Any) -> None:
    """Create a table in a DuckDB file, unload it to CSV and Parquet, and verify the files."""
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        found = run_demo(
            Path(values["dir"]),
            values["rows"],
            parallelism=values["parallelism"],
            observe=display,
            stop=stop,
        )
    rows = (
        (
            *(line["name"], line["rows"], render.size(line["bytes"]), f"{line['seconds']:.2f}"),
            f"{line['mb_per_second']:,.1f} MB/s",
            *(line["verified"], line["directory"]),
        )
        for line in found["results"]
    )
    heads = ("output", ">rows", ">bytes", ">seconds", ">speed", "verified", "directory")
    place = render.facts((("database", found["database"]),))
    render.answer(values, found, lambda: f"{render.table(heads, rows)}\n\n{place}")


def run_demo(
    directory: Path,
    rows: int,
    *,
    parallelism: int,
    observe: Observer,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Build the table in `directory`, unload it to `csv/` and `parquet/` there, verify both.

    A database that an earlier demonstration with as many rows left there is used again; its output
    is replaced. The seconds of a result are of the unload alone. `observe` gets notices of
    the build, then the events of the runs.
    """
    directory = directory.absolute()
    database = directory / "reference.duckdb"
    row_bytes = sum(each for _, _, each in _OUTPUTS.values())
    if rows > 0 and not duckdb_reference.is_current(database, rows, table=TABLE):
        row_bytes += duckdb_reference.BYTES_PER_ROW
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    needed, free = rows * row_bytes, shutil.disk_usage(existing).free
    if needed > free:
        raise OutputFailed(
            f"{rows:,} rows need about {needed:,} bytes in {directory}, but only {free:,} are free",
            f"give --rows {free // row_bytes} or fewer, or another --dir",
        )
    reported = 0

    def report(done: int) -> None:
        nonlocal reported
        if done * _NOTICES // rows > reported:
            reported = done * _NOTICES // rows
            observe(Notice(text=f"reference table: {done:,} of {rows:,} rows built"))

    duckdb_reference.build_reference_table(database, rows, table=TABLE, observe=report, stop=stop)
    source = SourceSpec(kind="duckdb", location=f"duckdb://{quote(str(database))}")
    results = []
    for name, (output_format, compression, _) in _OUTPUTS.items():
        place = directory / name
        request = Request(
            source=source,
            selection=Selection(table=parse_table(TABLE)),
            output=OutputOptions(
                destination=str(place),
                format=output_format,
                compression=compression,
                overwrite=True,
            ),
            limits=PlanOptions(parallelism=parallelism or None),
        )
        totals = api.unload(request, observe=observe, stop=stop)["totals"]
        if stop():
            raise Interrupted(f"the {name} files were not verified", "run the same command again")
        verdict = api.verify(place, source, observe=observe)
        seconds, size = totals["seconds"], totals["bytes"]
        results.append(
            {
                "name": name,
                "rows": totals["rows"],
                "bytes": size,
                "seconds": seconds,
                "mb_per_second": size / 1e6 / seconds if seconds else 0.0,
                "directory": place,
                "verified": verdict["result"] == "ok",
            }
        )
    return {"database": database, "results": results}
