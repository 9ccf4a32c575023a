"""The JSON Schemas of the manifests, and the tables of docs/manifest.md, made from their types.

python tests/support/schemas/manifest_pages.py manifest > docs/manifest.schema.json
python tests/support/schemas/manifest_pages.py run-manifest > docs/run-manifest.schema.json
python tests/support/schemas/manifest_pages.py page docs/manifest.md > manifest.md && mv manifest.md docs/

The page keeps its texts. Names, order and types of fields come from the records. The meaning of a
new field is TODO until it is written on the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import NODEFAULT, inspect
from msgspec.json import schema

from unloader.manifest.model import Efficiency, Manifest, TablesManifest
from unloader.model import BoundSeat
from writers.model import Candidate, Choice, ParquetFormat, TextFormat, WrittenFile

_KINDS: dict[str, tuple[type, str]] = {
    "manifest": (Manifest, "The manifest of a run of unloader"),
    "run-manifest": (TablesManifest, "The manifest of a run of unloader over several tables"),
}

_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "The manifest": Manifest,
    "The manifest of several tables": TablesManifest,
    "efficiency": Efficiency,
    "file": WrittenFile,
    "bound-seat": BoundSeat,
    "text-dialect": TextFormat,
    "parquet-layout": ParquetFormat,
    "choice": Choice,
    "codec-figures": Candidate,
}
"""By the heading on the page. Types with a small initial are referred to by their headings."""

_LINE = re.compile(r"\| `([^`]+)` \| ([^|]+) \| (.+) \|")

_NAMES: dict[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.NoneType: "null",
}

_NOT_WRITTEN = ("units[].stages.load", "units[].outputs")
"""Fields of units that only a run in progress has."""

Line = tuple[str, str]
"""The type and the meaning of a field on the page."""


def schema_text(name: str) -> str:
    kind, title = _KINDS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **schema(kind)}, indent=2) + "\n"


def page_text(page: str) -> str:
    """Return docs/manifest.md, given as it is, with the fields of the records."""
    sections = re.split(r"(?m)^(?=#+ )", page)
    return "".join(map(_section, sections))


def _section(text: str) -> str:
    kind = _SECTIONS.get(text.partition("\n")[0].lstrip("# "))
    if kind is None:
        return text
    lines = text.split("\n")
    places = [at for at, line in enumerate(lines) if _LINE.fullmatch(line)]
    known = {found[1]: (found[2], found[3]) for line in lines if (found := _LINE.fullmatch(line))}
    fields = [
        f"| `{path}` | {told} | {known.get(path, ('', 'TODO'))[1]} |"
        for path, told in _fields(kind, known)
    ]
    return "\n".join((*lines[: places[0]], *fields, *lines[places[-1] + 1 :]))


def _fields(
    kind: type[msgspec.Struct], known: Mapping[str, Line], prefix: str = "", missing: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield path and type of each field, and of the fields of its objects that are on the page."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    if info.tag_field is not None:
        yield prefix + info.tag_field, "integer" if isinstance(info.tag, int) else "string"
    for field in info.fields:
        path = prefix + field.encode_name
        has_default = not (field.default is NODEFAULT and field.default_factory is NODEFAULT)
        left_out = has_default and kind.__struct_config__.omit_defaults
        optional = missing or left_out
        told = _name(field.type, left_out and field.default is None)
        if optional or known.get(path, ("", ""))[0].endswith(", optional"):
            told += ", optional"
        for mark, inner in (("[].", _item(field.type)), (".", _object(field.type))):
            if inner is not None and any(each.startswith(path + mark) for each in known):
                if path in known:
                    yield path, told
                yield from _fields(inner, known, path + mark, optional)
                break
        else:
            if path not in _NOT_WRITTEN:
                yield path, told


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _object(kind: inspect.Type) -> type[msgspec.Struct] | None:
    found = [each.cls for each in _alternatives(kind) if isinstance(each, inspect.StructType)]
    return found[0] if len(found) == 1 else None


def _item(kind: inspect.Type) -> type[msgspec.Struct] | None:
    items = [e.item_type for e in _alternatives(kind) if isinstance(e, inspect.VarTupleType)]
    return _object(items[0]) if items else None


def _name(kind: inspect.Type, without_null: bool = False) -> str:
    if isinstance(kind, inspect.UnionType):
        names = dict.fromkeys(map(_name, kind.types))
        return " or ".join(name for name in names if name != "null" or not without_null)
    if isinstance(kind, inspect.LiteralType):
        return "string" if isinstance(kind.values[0], str) else "boolean"
    if isinstance(kind, inspect.StructType):
        heading = next((head for head, cls in _SECTIONS.items() if cls is kind.cls), "")
        return f"[{heading}](#{heading})" if heading.islower() else "object"
    if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        return f"list of {_name(kind.item_type)}"
    if isinstance(kind, inspect.TupleType):
        return f"list of {_name(kind.item_types[0])}"
    if isinstance(kind, inspect.DictType):
        return f"map to {_name(kind.value_type)}"
    return _NAMES[type(kind)]


if __name__ == "__main__":
    if sys.argv[1] == "page":
        sys.stdout.write(page_text(Path(sys.argv[2]).read_text("utf-8")))
    else:
        sys.stdout.write(schema_text(sys.argv[1]))
