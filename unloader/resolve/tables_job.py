"""Whether two requests for several tables are the same job, whatever tables there are by now."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from unloader import json_fields
from unloader.resolve.broken_run import what_it_asks
from unloader.selection.asked import AskedTables, TablesRequest
from unloader.selection.choice import TableChoice
from unloader.selection.patterns import PartPattern


def digest_of(asked: TablesRequest) -> str:
    """Return the SHA-256, in hex, of what decides which rows are written, and in which way."""
    document = {
        "entries": [_entry(entry) for entry in asked.entries],
        "destination": asked.options.destination,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("ascii")).hexdigest()


def _entry(entry: AskedTables) -> dict[str, Any]:
    output = entry.request.output
    routes = entry.request.routes or ()
    return {
        "request": json_fields.fields_to_json(what_it_asks(entry.request)),
        "places": output.destinations,
        "choice": None if entry.choice is None else _choice(entry.choice),
        "routes": [json_fields.fields_to_json(route) for route in routes],
    }


def _choice(choice: TableChoice) -> dict[str, Any]:
    return {
        "tables": [each.text for each in choice.tables],
        "schemas": [_part(each) for each in choice.schemas],
        "exclude": [each.text for each in choice.exclude],
        "families": choice.families,
    }


def _part(pattern: PartPattern) -> list[tuple[str, bool]]:
    return [(segment.text, segment.quoted) for segment in pattern.segments]
