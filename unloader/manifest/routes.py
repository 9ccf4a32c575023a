"""What a run answers: its manifest, or those of its routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unloader.manifest.model import Manifest, to_json

ROUTES = "routes"
"""Key of the manifests of several routes."""


def answer(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the manifest as JSON, or a document with that of each route."""
    if len(manifests) == 1:
        return to_json(manifests[0])
    first = manifests[0]
    return {
        "run_id": first.run_id,
        "status": first.status,
        ROUTES: [to_json(each) for each in manifests],
    }
