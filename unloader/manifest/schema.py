"""The JSON Schemas of the manifests, made from their types.

python -m unloader.manifest.schema manifest > docs/manifest.schema.json
python -m unloader.manifest.schema run-manifest > docs/run-manifest.schema.json
"""

from __future__ import annotations

import json
import sys

from msgspec.json import schema

from unloader.manifest.model import Manifest, TablesManifest

_KINDS: dict[str, tuple[type, str]] = {
    "manifest": (Manifest, "The manifest of a run of unloader"),
    "run-manifest": (TablesManifest, "The manifest of a run of unloader over several tables"),
}


def schema_text(name: str) -> str:
    """Return the schema of one kind of manifest as it is in the docs."""
    kind, title = _KINDS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **schema(kind)}, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text(sys.argv[1]))
