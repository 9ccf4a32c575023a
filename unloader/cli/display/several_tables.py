"""What a run over several tables has done, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.storage.kinds import destination_kind
from unloader.storage.model import MANIFEST
from writers.objects.location import below

if TYPE_CHECKING:
    from unloader.manifest.model import TablesManifest
    from unloader.model import Snapshot


def summary(manifest: TablesManifest) -> str:
    """Return the facts on a run whose tables are all complete."""
    totals, directory = manifest.totals, manifest.options.directory
    return render.facts(
        (
            ("tables", render.count(totals.tables)),
            ("rows", render.count(totals.rows)),
            ("bytes", f"{render.count(totals.bytes)} ({render.size(totals.bytes)})"),
            ("files", render.count(totals.files)),
            ("seconds", f"{totals.seconds:.2f}"),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
            ("snapshot", _snapshot(manifest.snapshot)),
            ("verified", verification(manifest)),
            *_places(directory),
        )
    )


def _places(directory: str) -> Iterator[tuple[str, str]]:
    if destination_kind((directory,)) == "null":
        yield "dropped", directory
        return
    yield "directory", directory
    yield "manifest", below(directory, MANIFEST)


def verification(manifest: TablesManifest) -> str:
    """Return whether the tables agree with the source."""
    results = sorted({each.verified or "not complete" for each in manifest.tables})
    return ", ".join(results)


def _snapshot(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.kind == "none":
        return "none: each work unit was read at its own time"
    return f"{snapshot.kind} {snapshot.value}".strip()
