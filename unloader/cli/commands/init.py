"""`unloader init`: a commented job file for the tables of a schema."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.jobs.draft import draft
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import given
from unloader.errors import OutputFailed, UsageError
from unloader.nouns import counted
from unloader.redaction import redact

_KEPT = ("password_file", "password_keyring", "password_credential")
"""Options that say where a password is found, and no password."""


@click.command(
    "init",
    cls=JobCommand,
    short_help="Write a job file for the tables of a schema.",
    epilog="""\b
    Examples:
      unloader init duckdb:///data/sales.db --output sales.toml
      unloader init postgresql://etl@db01/sales --schema public --output job.toml
      unloader init oracle://etl@db01:1521/SALES --schema SALES --output job.toml
    """,
)
@click.argument("source")
@declared_options("init")
@click.pass_context
def command(context: click.Context, /, source: str, **values: Any) -> None:
    """Write a job file for the tables of one schema of SOURCE, with comments on what to change.

    The job file names every table, with its estimated rows and its size. Views are commented out.
    It contains no password. Check it with `unloader check FILE`.
    """

    spec = connect_to(source, values, given(context))

    with display_for(values) as display:
        tables = api.schema_tables(spec, values["schema"], display)
    kept = {name.replace("_", "-"): str(values[name]) for name in _KEPT if values[name]}
    text = draft(source, kept, tables)
    if values["output"]:
        _save(Path(values["output"]), text)
    if values["json"]:
        summaries = [{"table": each.typed, **_summary(each.summary)} for each in tables]
        render.emit_json({"output": values["output"], "tables": summaries, "job": text})
    elif not values["output"]:
        if redact(text) != text:
            raise UsageError(
                "a name in the job file looks like a password, and standard output hides passwords",
                "write it to a file: --output FILE",
            )
        render.emit(text)
    elif not values["quiet"]:
        many = counted(len(tables), "table or view", "tables and views")
        check = f"unloader check {shlex.quote(values['output'])}"
        render.emit(f"{values['output']} names {many}; check it with: {check}")


def _summary(summary: Any) -> dict[str, Any]:
    names = ("schema", "name", "kind", "rows", "bytes", "partitions")
    return {name: getattr(summary, name) for name in names}


def _save(path: Path, text: str) -> None:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputFailed(
            f"{path} exists already", "choose another --output, or remove it"
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"the job file {path} cannot be written: {error.strerror}", "check the path"
        ) from error
