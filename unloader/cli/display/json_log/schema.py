"""The JSON Schema of the lines of a log, made from their types.

Written into the docs by: python -m unloader.cli.display.json_log.schema > docs/log.schema.json
"""

from __future__ import annotations

import sys
from typing import Any

from unloader import json_schema
from unloader.cli.display.json_log.lines import LINES, Head


def schema() -> dict[str, Any]:
    """Return the schema of one line."""
    found: dict[str, Any] = {}
    lines = [_line(event, kind, found) for event, kind in LINES.items()]
    return json_schema.document("A line of unloader --log-format json", {"anyOf": lines}, found)


def text() -> str:
    """Return the schema as it stands in the docs."""
    return json_schema.text(schema())


def _line(event: str, kind: type, found: dict[str, Any]) -> dict[str, Any]:
    head, own = (json_schema.object_of(each, found) for each in (Head, kind))
    return {
        "title": event,
        "type": "object",
        "properties": {**head["properties"], "event": {"enum": [event]}, **own["properties"]},
        "required": list(dict.fromkeys((*head["required"], *own["required"]))),
        "additionalProperties": False,
    }


if __name__ == "__main__":
    sys.stdout.write(text())
