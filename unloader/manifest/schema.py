"""The manifest's JSON Schema, made from its types.

Written into the docs by: python -m unloader.manifest.schema > docs/manifest.schema.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from typing import Any, Literal, Union, get_args, get_origin

from unloader.json_fields import OPTIONAL, hints_of, key_of
from unloader.manifest.model import Manifest

_PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest."""
    found: dict[str, Any] = {}
    top = _schema_of(Manifest, found)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The manifest of a run of unloader",
        **top,
        "$defs": dict(sorted(found.items())),
    }


def text() -> str:
    """Return the schema as it stands in the docs."""
    return json.dumps(schema(), indent=2) + "\n"


def _schema_of(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; those of dataclasses go into `found`, by their names."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(each, found) for each in of]}
    if origin is Literal:
        return {"enum": list(of)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(of[1], found)}
    if origin is tuple and of[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(of[0], found)}
    if origin is tuple:
        items = [_schema_of(each, found) for each in of]
        return {"type": "array", "prefixItems": items, "minItems": len(of), "maxItems": len(of)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in found:
            found[kind.__name__] = {}  # Known from here on, should it hold itself.
            found[kind.__name__] = _object(kind, found)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return _PLAIN[kind]


def _object(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    fields = dataclasses.fields(kind)
    hints = hints_of(kind)
    return {
        "type": "object",
        "properties": {key_of(each): _schema_of(hints[each.name], found) for each in fields},
        "required": [key_of(each) for each in fields if not each.metadata.get(OPTIONAL)],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    sys.stdout.write(text())
