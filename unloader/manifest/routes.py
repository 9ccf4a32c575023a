"""What a run answers: its manifest, or those of its routes, and the sums of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from unloader import json_fields
from unloader.manifest.model import Manifest, to_json

ROUTES = "routes"
"""Key of the manifests of several routes."""


class RoutesTotals(Struct, frozen=True, kw_only=True):
    """Figures of a run over all of its outputs."""

    rows: int
    """Read once for all outputs; of a single one those that it has."""
    bytes: int
    """Of the files of all."""
    files: int
    seconds: float
    cpu_seconds: float


def totals_of(manifests: Sequence[Manifest]) -> RoutesTotals:
    """Return the figures of a run from its manifests, of which each is of one output."""
    first = manifests[0]
    rows = first.totals.rows
    if len(manifests) > 1:
        rows += first.verified.filtered_rows or 0
    return RoutesTotals(
        rows=rows,
        bytes=sum(each.totals.bytes for each in manifests),
        files=sum(each.totals.files for each in manifests),
        seconds=max(each.totals.seconds for each in manifests),
        cpu_seconds=max(each.totals.cpu_seconds for each in manifests),
    )


def answer(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the manifest as JSON, or a document with that of each route."""
    if len(manifests) == 1:
        return to_json(manifests[0])
    first = manifests[0]
    return {
        "run_id": first.run_id,
        "status": first.status,
        "totals": json_fields.to_json(totals_of(manifests)),
        ROUTES: [to_json(each) for each in manifests],
    }
