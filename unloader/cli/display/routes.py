"""What a plan shows of several outputs: where each goes, and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unloader.cli.display import render
from unloader.cli.display.forms import csv_form, lossless_word


def routes_text(routes: Sequence[dict[str, Any]]) -> str:
    """Return the outputs of a plan, each with its columns and their types.

    Args:
        routes: As a plan has them for its reader.
    """
    return "\n\n".join(_route(each) for each in routes)


def _route(route: dict[str, Any]) -> str:
    facts = [
        ("to", ", ".join(route["to"])),
        ("format", f"{route['format']}, {route['compression']}"),
        ("filter", route["filter"] or ""),
    ]
    is_text = route["format"] == "csv"
    columns = render.table(
        ("column", "type", "in the output", "lossless", "note"),
        (
            (
                render.name(each["name"]),
                each["source_type"] or render.UNKNOWN,
                csv_form(each["output_type"]) if is_text else each["output_type"],
                lossless_word(each["lossless"]),
                each["note"] or "",
            )
            for each in route["columns"]
        ),
    )
    known = render.facts((name, render.one_line(text)) for name, text in facts if text)
    head = f"route {route['name']}" if route["name"] else "output"
    return f"{head}\n{known}\n\n{columns}"
