"""Every manifest that a run of the suite writes, held against the schema in the docs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from schemas.json_schema import problems
from unloader.manifest import read
from unloader.manifest.model import Manifest, TablesManifest

DOCS = Path(__file__).parents[3] / "docs"


@cache
def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / name).read_text("utf-8"))
    return found


def check(document: object) -> None:
    """Fail if a document is no manifest, of one table or of several."""
    several = isinstance(document, dict) and "tables" in document
    schema = _schema("run-manifest.schema.json" if several else "manifest.schema.json")
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
