"""What a run answers: its manifest, or the manifests of its routes with their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from unloader.manifest.model import Manifest
from unloader.manifest.tables import TablesManifest

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


def answer(done: Sequence[Manifest] | TablesManifest) -> dict[str, Any]:
    """Return the JSON document of a run: its manifest, or one with the manifest of each route."""
    whole: object = done
    if not isinstance(done, TablesManifest):
        first = whole = done[0]
        if len(done) > 1:
            whole = {
                "run_id": first.run_id,
                "status": first.status,
                "totals": totals_of(done),
                ROUTES: done,
            }
    # As after reading a file: lists, no tuples.
    document: dict[str, Any] = json.decode(json.encode(whole))
    return document
