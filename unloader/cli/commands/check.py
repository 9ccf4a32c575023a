"""`unloader check`: all that can be known of a job file without reading rows."""

from __future__ import annotations

from typing import Any

import click

from unloader.cli.display import render
from unloader.cli.jobs import checking
from unloader.cli.options.command import JobCommand, declared_options
from unloader.errors import UsageError


@click.command(
    "check",
    cls=JobCommand,
    short_help="Check a job file without reading rows.",
    epilog="""\b
    Examples:
      unloader check nightly.toml
      unloader check nightly.toml --json
    """,
)
@click.argument("job", metavar="JOB.toml")
@declared_options("check")
@click.pass_context
def command(context: click.Context, /, job: str, **values: Any) -> None:
    """Check a job file without reading rows or writing anything.

    It checks keys and their values, and options that contradict each other. It checks the source,
    its tables, the rights on them, the conditions, and the conversion of each column. It checks
    that the destinations can be written, hold no unrelated files and differ from each other. It
    compares the free space with the size of the tables.

    All problems are listed, and not only the first. The exit status is 0 without problems.
    Otherwise it is the status of a run that ends with the first problem.
    """
    if not job.lower().endswith(".toml"):
        raise UsageError(
            "JOB.toml does not end with .toml, and is not shown",
            "name it *.toml; see a table with: unloader describe SOURCE --table T",
        )

    passwords = {name: value for name, value in values.items() if name.startswith("password_")}
    found = checking.check_job(job, passwords)
    if values["json"]:
        render.emit_json(checking.document(found))
    elif not values["quiet"] or found.mistakes:
        render.emit(checking.text(found))
    context.exit(found.exit_code)
