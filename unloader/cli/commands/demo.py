"""`unloader demo`: the whole way on a table made for it, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.signals import stop_on_signals
from unloader.demo import run_demo

if TYPE_CHECKING:
    from unloader.demo import DemoResult


@click.command(
    "demo",
    cls=JobCommand,
    short_help="Try everything on a generated table, without a server.",
    epilog="""\b
    Examples:
      unloader demo
      unloader demo --rows 200k --dir /tmp/unloader-demo --parallelism 2
    """,
)
@declared_options("demo")
def command(**values: Any) -> None:
    """Create a table in a DuckDB file, unload it to CSV and Parquet, and verify the files."""

    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        result = run_demo(
            Path(values["dir"]),
            values["rows"],
            parallelism=values["parallelism"],
            observe=display,
            stop=stop,
        )
    if values["json"]:
        render.emit_json(_document(result))
    elif not values["quiet"]:
        render.emit(_shown(result))


def _document(result: DemoResult) -> dict[str, Any]:
    return {
        "database": result.database,
        "results": [asdict(line) for line in result.results],
    }


def _shown(result: DemoResult) -> str:
    lines = render.table(
        ("output", ">rows", ">bytes", ">seconds", ">speed", "verified", "directory"),
        (
            (
                line.name,
                render.count(line.rows),
                render.size(line.bytes),
                f"{line.seconds:.2f}",
                f"{line.mb_per_second:,.1f} MB/s",
                "yes" if line.verified else "no",
                str(line.directory),
            )
            for line in result.results
        ),
    )
    return f"{lines}\n\n{render.facts((('database', str(result.database)),))}"
