"""What a plan, a check or a description shows of columns, outputs and parts of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.nouns import counted
from unloader.request.settings import percent_text
from unloader.resolve.resolved import of_output
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.model import ReadColumn
    from unloader.resolve.resolved import ResolvedTable


_FORMS = (
    (("int", "uint"), "whole number"),
    (("decimal",), "number, all digits"),
    (("float", "double", "halffloat"), "number, shortest exact"),
    (("bool",), "true or false"),
    (("date",), "date, ISO 8601"),
    (("time32", "time64"), "time, ISO 8601"),
    (("duration", "month_day_nano", "interval"), "interval"),
    (("binary", "large_binary", "fixed_size_binary"), "binary, hexadecimal"),
    (("list", "large_list", "fixed_size_list", "struct", "map"), "JSON"),
    (("null",), "always NULL"),
)
"""The beginnings of Arrow types' names, and their forms in the default dialect."""


def csv_form(output_type: str) -> str:
    """Return the form of an Arrow type in the default dialect; `text` for all text."""
    if output_type.startswith("timestamp"):
        return "timestamp with offset, ISO 8601" if "tz=" in output_type else "timestamp, ISO 8601"
    for beginnings, form in _FORMS:
        if output_type.startswith(beginnings):
            return form
    return "text"


def column_table(columns: Iterable[ReadColumn], *, is_text: bool, head: str = "column") -> str:
    """Return a table of columns with their types in the source and in the output."""
    return render.table(
        (head, "type", "in the output", "lossless", "note"),
        (
            (
                *(render.name(each.name), each.source_type or None),
                csv_form(each.output_type) if is_text else each.output_type,
                *(each.lossless, each.note or ""),
            )
            for each in columns
        ),
    )


def routes_text(run: ResolvedTable) -> str:
    """Return the outputs of a run that has several, each with its columns and their types."""
    parts = []
    for number, route in enumerate(run.request.routes or ()):
        own = of_output(run, number)
        options, is_text = own.output.options, isinstance(own.output.format, TextFormat)
        facts = (
            ("to", render.one_line(", ".join(filter(None, options.destinations))) or None),
            ("format", f"{'csv' if is_text else 'parquet'}, {own.output.compression.codec}"),
            ("filter", render.one_line(options.filter) if options.filter else None),
        )
        columns = column_table(own.written.columns, is_text=is_text)
        name = f"route {route.name}" if route.name else "output"
        parts.append(f"{name}\n{render.facts(facts)}\n\n{columns}")
    return "\n\n".join(parts)


def subset_text(run: ResolvedTable) -> str:
    """Return what part of the rows is read by `--sample`, `--part` and so on; empty for all."""
    keys, sampled, most = run.extract.keys, run.plan.sampled, run.extract.limit_rows
    parts, one = [], run.plan.part
    if one is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(one.of_units, 'unit')}"
        parts.append(f"part {one.number} of {one.of}, {of}")
    if keys is not None:
        parts.append(f"{percent_text(keys.share)} by {render.name(keys.column)}")
    elif sampled is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(sampled.of_units, 'unit')}"
        parts.append(f"{of}, {percent_text(round(sampled.cost_share, 6))}")
    if most is not None:
        parts.append(f"first {counted(most, 'row')}")
    return ", ".join(parts)
