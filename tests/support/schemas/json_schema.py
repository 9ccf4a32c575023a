"""Manifests and logs checked against the published JSON Schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from unloader.cli.streams import asked_for
from unloader.manifest import read
from unloader.manifest.model import Manifest, TablesManifest

Schema = dict[str, Any]
SAID = {"$schema", "$defs", "definitions", "title", "description", "default", "discriminator"}
"""Words that say nothing of a value."""
TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def problems(value: Any, schema: Schema, known: dict[str, Schema], where: str = "") -> list[str]:
    """Return the differences of a value from its schema, one line each.

    Args:
        value: The result of `json.loads`.
        schema: Its schema.
        known: The schemas that `$ref` can name.
        where: Path of the value, for the lines.
    """
    if "type" in schema and not TYPES[schema["type"]](value):
        return _type(value, schema, known, where or "$")
    rest = schema.keys() - SAID
    return [
        found for word in sorted(rest) for found in RULES[word](value, schema, known, where or "$")
    ]


def _ref(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return problems(value, known[schema["$ref"].rpartition("/")[2]], known, where)


def _type(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    wrong = not TYPES[schema["type"]](value)
    return [f"{where} is {value!r:.60}, not {schema['type']}"] if wrong else []


def _enum(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [] if value in schema["enum"] else [f"{where} is {value!r:.60}"]


def _any(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    tried = [problems(value, each, known, where) for each in schema["anyOf"]]
    return [] if not all(tried) else [f"{where} is none of several: {tried}"]


def _items(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> Iterator[str]:
    kind, first = schema["items"], len(schema.get("prefixItems", ()))
    for at, each in enumerate(value[first:] if isinstance(value, list) else (), first):
        if kind is False:
            yield f"{where}[{at}] is one too many"
        else:
            yield from problems(each, kind, known, f"{where}[{at}]")


def _prefix(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> Iterator[str]:
    for at, (each, kind) in enumerate(zip(value, schema["prefixItems"], strict=False)):
        yield from problems(each, kind, known, f"{where}[{at}]")


def _least(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [] if len(value) >= schema["minItems"] else [f"{where} is too short"]


def _most(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [] if len(value) <= schema["maxItems"] else [f"{where} is too long"]


def _properties(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> Iterator[str]:
    for key, kind in schema["properties"].items():
        if isinstance(value, dict) and key in value:
            yield from problems(value[key], kind, known, f"{where}.{key}")


def _required(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [f"{where} has no {key!r}" for key in schema["required"] if key not in value]


def _additional(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> Iterator[str]:
    kind = schema["additionalProperties"]
    for key in value.keys() - schema.get("properties", {}).keys():
        if kind is False:
            yield f"{where} has the key {key!r}, which is not in the schema"
        else:
            yield from problems(value[key], kind, known, f"{where}.{key}")


def _pattern(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    fits = not isinstance(value, str) or re.search(schema["pattern"], value)
    return [] if fits else [f"{where} is {value!r:.60}"]


def _minimum(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [] if value >= schema["minimum"] else [f"{where} is {value}"]


def _maximum(value: Any, schema: Schema, known: dict[str, Schema], where: str) -> list[str]:
    return [] if value <= schema["maximum"] else [f"{where} is {value}"]


RULES: dict[str, Callable[..., Any]] = {
    "$ref": _ref,
    "additionalProperties": _additional,
    "anyOf": _any,
    "enum": _enum,
    "items": _items,
    "maxItems": _most,
    "maximum": _maximum,
    "minItems": _least,
    "minimum": _minimum,
    "pattern": _pattern,
    "prefixItems": _prefix,
    "properties": _properties,
    "required": _required,
    "type": _type,
}


PAGE = Path(__file__).parents[3] / "docs" / "log.schema.json"


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PAGE.read_text("utf-8"))
    return found


def checked(text: str) -> list[dict[str, Any]]:
    """Return the lines of a log; fail if one is not as the schema says."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        # Only the schema of its event is reported: "none of several" would explain nothing.
        kind = next(each for each in _schema()["anyOf"] if each["title"] == line["event"])
        found = problems(line, kind, _schema()["$defs"])
        assert not found, (found[:5], line)
    return lines


def check_call(arguments: tuple[str, ...], env: Mapping[str, str], text: str) -> None:
    """Check what a call has written to standard error, if it was asked for JSON."""
    if asked_for(arguments) or env.get("UNLOADER_LOG_FORMAT") == "json":
        checked(text)


DOCS = Path(__file__).parents[3] / "docs"


@cache
def _schema_of_manifests(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / name).read_text("utf-8"))
    return found


def check(document: object) -> None:
    """Fail unless a document is a manifest of one or of several tables."""
    several = isinstance(document, dict) and "tables" in document
    schema = _schema_of_manifests("run-manifest.schema.json" if several else "manifest.schema.json")
    found = problems(document, schema, schema["$defs"])
    assert not found, found[:5]


def check_at(arguments: tuple[str, ...], base: Path = Path()) -> None:
    """Check the manifest of a command that has ended well, if it was a run into directories."""
    if not arguments or arguments[0] != "run" or "--to" not in arguments:
        return
    first = arguments[arguments.index("--to") + 1].partition(",")[0]
    path = base / first / "_manifest.json"
    if path.is_file():
        check(json.loads(path.read_text("utf-8")))


def check_all_written() -> None:
    """From now on check each manifest that is written in this process."""
    write = read.manifest_bytes

    def checked(manifest: Manifest | TablesManifest) -> bytes:
        data = write(manifest)
        check(json.loads(data))
        return data

    read.manifest_bytes = checked
