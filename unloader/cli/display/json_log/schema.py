"""The JSON Schema of the lines of a log, made from their types.

Written into the docs by: python -m unloader.cli.display.json_log.schema > docs/log.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from unloader.cli.display.json_log.lines import LINES, Head


def schema() -> dict[str, Any]:
    """Return the schema of one line."""
    refs, found = schema_components([Head, *LINES.values()], ref_template="#/$defs/{name}")
    names = [ref["$ref"].removeprefix("#/$defs/") for ref in refs]
    head, *lines = (found[name] for name in names)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of unloader --log-format json",
        "anyOf": [
            _line(event, kind, {**head["properties"], **line["properties"]})
            for (event, kind), line in zip(LINES.items(), lines, strict=True)
        ],
        "$defs": {name: each for name, each in found.items() if name not in names},
    }


def text() -> str:
    """Return the schema as it stands in the docs."""
    return json.dumps(schema(), indent=2) + "\n"


def _line(event: str, kind: type[Struct], properties: dict[str, Any]) -> dict[str, Any]:
    # A field with a default is in each line, too, except in lines that leave defaults out.
    may_lack = kind.__struct_config__.omit_defaults
    return {
        "title": event,
        "type": "object",
        "properties": {**properties, "event": {"enum": [event]}},
        "required": [
            key for key, each in properties.items() if not (may_lack and "default" in each)
        ],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    sys.stdout.write(text())
