"""The manifest's JSON Schema, made from its types.

Written into the docs by: python -m unloader.manifest.schema > docs/manifest.schema.json
"""

from __future__ import annotations

import sys
from typing import Any

from unloader import json_schema
from unloader.manifest.model import Manifest


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest."""
    found: dict[str, Any] = {}
    top = json_schema.schema_of(Manifest, found)
    return json_schema.document("The manifest of a run of unloader", top, found)


def text() -> str:
    """Return the schema as it stands in the docs."""
    return json_schema.text(schema())


if __name__ == "__main__":
    sys.stdout.write(text())
