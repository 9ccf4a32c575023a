"""Commands before a run: describe a source, draft a job file with init, and check one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.commands import declared
from unloader.cli.display import render
from unloader.cli.display.columns import csv_form
from unloader.cli.jobs import checking
from unloader.cli.jobs.draft import draft
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import connect_to
from unloader.cli.watching import display_for
from unloader.errors import OutputFailed, UsageError
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.names import parse_table


@declared(
    "describe",
    "Show the tables of a database, or the columns of one table.",
    """
    unloader describe duckdb:///data/sales.db
    unloader describe oracle://scott@db01:1521/SALES --table ORDERS
    unloader describe postgresql://etl@db01/sales --table public.orders
    """,
)
@click.argument("source")
@click.pass_context
def describe(context: click.Context, /, source: str, **values: Any) -> None:
    """List the tables of SOURCE, or show the columns and partitions of one table.

    For each column, the command shows its type in the database, its form in CSV and in Parquet,
    and whether the conversion is lossless.
    """
    table = None if values["table"] is None else parse_table(values["table"])
    spec = connect_to(source, values, given(context))
    with display_for(values) as display:
        if table is None:
            tables = api.list_tables(spec, display)
            document: dict[str, Any] = {"source": spec.location, "tables": tables}
            rows = (
                (
                    render.name(each.schema or render.UNKNOWN),
                    render.shortened(render.name(each.name), 60),
                    *(each.kind, each.rows, render.size(each.bytes), each.partitions),
                )
                for each in tables
            )
            heads = ("schema", "name", "kind", ">rows", ">bytes", ">partitions")
            text = render.table(heads, rows)
        else:
            document = api.describe(spec, table, values["as_text"], display)
            text = _described(document)
    render.answer(values, document, text)


def _described(table: dict[str, Any]) -> str:
    label = ".".join(filter(None, (table["schema"], table["name"])))
    facts = (
        ("table", render.shortened(render.name(label))),
        ("server", table["server_version"]),
        ("rows", render.about(render.count(table["rows"]), "estimate")),
        ("bytes", render.about(render.size(table["bytes"]), "in the source")),
        ("ranges from", table["ranges_from"] or render.UNKNOWN),
    )
    columns = []
    for each in table["columns"]:
        csv, parquet = each["csv"], each["parquet"]
        notes = dict.fromkeys(filter(None, (csv["note"], parquet["note"])))
        columns.append(
            (
                *(render.shortened(render.name(each["name"]), 60), each["source_type"]),
                *(csv_form(csv["output_type"]), parquet["output_type"]),
                *(bool(csv["lossless"] and parquet["lossless"]), "; ".join(notes)),
            )
        )
    heads = ("column", "type", "in CSV", "in Parquet", "lossless", "note")
    parts = [render.facts(facts), render.table(heads, columns)]
    if table["partitions"]:
        partitions = (
            (
                *(str(each["position"]), render.name(each["name"])),
                *(each["rows"], render.size(each["bytes"])),
            )
            for each in table["partitions"]
        )
        parts.append(render.table((">position", "partition", ">rows", ">bytes"), partitions))
    parts.extend(f"missing privilege: {each}" for each in table["missing_privileges"])
    return "\n\n".join(parts)


_KEPT = ("password_file", "password_keyring", "password_credential")
"""Options that say where a password is found, and no password."""


@declared(
    "init",
    "Write a job file for the tables of a schema.",
    """
    unloader init duckdb:///data/sales.db --output sales.toml
    unloader init postgresql://etl@db01/sales --schema public --output job.toml
    unloader init oracle://etl@db01:1521/SALES --schema SALES --output job.toml
    """,
)
@click.argument("source")
@click.pass_context
def init(context: click.Context, /, source: str, **values: Any) -> None:
    """Write a job file for the tables of one schema of SOURCE, with comments on what to change.

    The job file names every table, with its estimated rows and its size. Views are commented out.
    It contains no password. Check it with `unloader check FILE`.
    """
    spec = connect_to(source, values, given(context))
    with display_for(values) as display:
        tables = api.schema_tables(spec, values["schema"], display)
    kept = {name.replace("_", "-"): str(values[name]) for name in _KEPT if values[name]}
    text, path = draft(source, kept, tables), values["output"]
    if path:
        try:
            with open(Path(path), "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise OutputFailed(
                f"{path} exists already", "choose another --output, or remove it"
            ) from None
        except OSError as error:
            raise OutputFailed(
                f"the job file {path} cannot be written: {error.strerror}", "check the path"
            ) from error
    elif not values["json"]:
        if redact(text) != text:
            raise UsageError(
                "a name in the job file looks like a password, and standard output hides passwords",
                "write it to a file: --output FILE",
            )
        render.emit(text)
        return
    summaries = [{"table": each.typed, **to_builtins(each.summary)} for each in tables]
    many = counted(len(tables), "table or view", "tables and views")
    done = f"{path} names {many}; check it with: unloader check {shlex.quote(path or '')}"
    render.answer(values, {"output": path, "tables": summaries, "job": text}, lambda: done)


@declared(
    "check",
    "Check a job file without reading rows.",
    """
    unloader check nightly.toml
    unloader check nightly.toml --json
    """,
)
@click.argument("job", metavar="JOB.toml")
@click.pass_context
def check(context: click.Context, /, job: str, **values: Any) -> None:
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
        render.emit(render.json_text(checking.document(found)))
    elif not values["quiet"] or found.mistakes:
        render.emit(checking.text(found))
    context.exit(found.exit_code)
