"""`unloader describe`: what a database has, and what would become of a table's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.columns import csv_form
from unloader.cli.display.progress import display_for
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import given
from unloader.request.names import parse_table

if TYPE_CHECKING:
    from unloader.api import TableDescription
    from unloader.model import ReadColumn, TableSummary


@click.command(
    "describe",
    cls=JobCommand,
    short_help="Show the tables of a database, or the columns of one table.",
    epilog="""\b
    Examples:
      unloader describe duckdb:///data/sales.db
      unloader describe oracle://scott@db01:1521/SALES --table ORDERS
      unloader describe postgresql://etl@db01/sales --table public.orders
    """,
)
@click.argument("source")
@declared_options("describe")
@click.pass_context
def command(context: click.Context, /, source: str, **values: Any) -> None:
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
            text = _list(tables)
        else:
            described = api.describe(spec, table, values["as_text"], display)
            document, text = _document(spec.location, described), _shown(described)
    if values["json"]:
        render.emit_json(document)
    elif not values["quiet"]:
        render.emit(text)


def _list(tables: tuple[TableSummary, ...]) -> str:
    return render.table(
        ("schema", "name", "kind", ">rows", ">bytes", ">partitions"),
        (
            (
                render.name(table.schema or render.UNKNOWN),
                render.shortened(render.name(table.name), 60),
                table.kind,
                render.count(table.rows),
                render.size(table.bytes),
                str(table.partitions),
            )
            for table in tables
        ),
    )


def _shown(described: TableDescription) -> str:
    table = described.table
    parts = [
        render.facts(
            (
                ("table", render.shortened(render.name(table.label))),
                ("server", described.server_version),
                ("rows", render.about(render.count(table.rows), "estimate")),
                ("bytes", render.about(render.size(table.bytes), "in the source")),
                ("ranges from", table.ranges_from or render.UNKNOWN),
            )
        ),
        _columns(described),
    ]
    if table.partitions:
        parts.append(_partitions(described))
    parts.extend(f"missing privilege: {each}" for each in described.missing_privileges)
    return "\n\n".join(parts)


def _columns(described: TableDescription) -> str:
    return render.table(
        ("column", "type", "in CSV", "in Parquet", "lossless", "note"),
        (
            (
                render.shortened(render.name(text.name), 60),
                text.source_type,
                csv_form(text.output_type),
                parquet.output_type,
                "yes" if text.lossless and parquet.lossless else "no",
                "; ".join(dict.fromkeys(note for note in (text.note, parquet.note) if note)),
            )
            for text, parquet in _pairs(described)
        ),
    )


def _partitions(described: TableDescription) -> str:
    return render.table(
        (">position", "partition", ">rows", ">bytes"),
        (
            (
                str(each.position),
                render.name(each.name),
                render.count(each.rows),
                render.size(each.bytes),
            )
            for each in described.table.partitions
        ),
    )


def _pairs(described: TableDescription) -> tuple[tuple[ReadColumn, ReadColumn], ...]:
    return tuple(zip(described.columns, described.parquet_columns, strict=True))


def _document(location: str, described: TableDescription) -> dict[str, Any]:
    table = described.table
    return {
        "source": location,
        "server_version": described.server_version,
        "schema": table.schema,
        "name": table.name,
        "rows": table.rows,
        "bytes": table.bytes,
        "ranges_from": table.ranges_from,
        "columns": [
            {
                "name": text.name,
                "source_type": text.source_type,
                "nullable": text.nullable,
                "csv": _becomes(text),
                "parquet": _becomes(parquet),
            }
            for text, parquet in _pairs(described)
        ],
        "partitions": [
            {
                "name": each.name,
                "position": each.position,
                "rows": each.rows,
                "bytes": each.bytes,
            }
            for each in table.partitions
        ],
        "missing_privileges": described.missing_privileges,
    }


def _becomes(column: ReadColumn) -> dict[str, Any]:
    return {
        "output_type": column.output_type,
        "lossless": column.lossless,
        "note": column.note,
    }
