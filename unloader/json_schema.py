"""JSON Schemas of plain data, made from its records as `json_fields` writes them."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct

from unloader.json_fields import default_of, fields_of, hints_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def document(title: str, top: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole schema: what stands at its top, and the types that it refers to."""
    return {"$schema": DIALECT, "title": title, **top, "$defs": dict(sorted(found.items()))}


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as it stands in the docs."""
    return json.dumps(schema, indent=2) + "\n"


def schema_of(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; those of records go into `found`, by their names."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, found) for each in of]}
    if origin is Literal:
        return {"enum": list(of)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(of[1], found)}
    if origin is tuple and of[-1] is Ellipsis:
        return {"type": "array", "items": schema_of(of[0], found)}
    if origin is tuple:
        items = [schema_of(each, found) for each in of]
        return {"type": "array", "prefixItems": items, "minItems": len(of), "maxItems": len(of)}
    if isinstance(kind, type) and issubclass(kind, Struct):
        if kind.__name__ not in found:
            found[kind.__name__] = {}  # Known from here on, should it hold itself.
            found[kind.__name__] = object_of(kind, found)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return _PLAIN[kind]


def object_of(kind: type[Struct], found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a dataclass, written out and not referred to."""
    fields, hints, config = fields_of(kind), hints_of(kind), kind.__struct_config__
    properties = {key: schema_of(hints[name], found) for name, key, _ in fields}
    required = [
        key
        for name, key, is_optional in fields
        if not (is_optional or (config.omit_defaults and default_of(kind, name) is not NODEFAULT))
    ]
    if config.tag is not None:
        properties = {str(config.tag_field): {"enum": [config.tag]}, **properties}
        required.insert(0, str(config.tag_field))
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
