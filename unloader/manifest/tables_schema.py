"""The JSON Schema of the manifest of a run over several tables, made from its types.

Written into the docs by: python -m unloader.manifest.tables_schema > docs/run-manifest.schema.json
"""

from __future__ import annotations

import sys
from typing import Any

from unloader import json_schema
from unloader.manifest.tables import TablesManifest


def schema() -> dict[str, Any]:
    """Return the JSON Schema of such a manifest."""
    found: dict[str, Any] = {}
    top = json_schema.schema_of(TablesManifest, found)
    title = "The manifest of a run of unloader over several tables"
    return json_schema.document(title, top, found)


def text() -> str:
    """Return the schema as it stands in the docs."""
    return json_schema.text(schema())


if __name__ == "__main__":
    sys.stdout.write(text())
