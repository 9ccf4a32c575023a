"""What the manifest of a run says of each of its tables, and of each of its outputs."""

from __future__ import annotations

from collections.abc import Iterator

from unloader.manifest.asked import TableRecord
from unloader.manifest.digest import digest_at_end
from unloader.manifest.model import Manifest
from unloader.manifest.tables import TableEntry
from unloader.manifest.text import manifest_bytes
from unloader.redaction import redact
from unloader.run.tables.state import TableState
from unloader.storage.kinds import is_kept
from unloader.storage.paths import relative


def entries_of(table: TableState, why: str, home: str) -> Iterator[TableEntry]:
    """Yield the entry of a table, or of each of its outputs.

    Args:
        table: As it is now.
        why: Why it is not complete, if it is not.
        home: The directory of the run.
    """
    run = table.run.run
    record = TableRecord(schema=run.extract.table.schema, name=run.extract.table.name)
    what = None if run.extract.query is not None else record
    routes = run.request.routes
    # Of several outputs some may be published although the table has failed.
    published = table.run.manifests or table.run.output.manifests
    known = {each.route.name if each.route else "": each for each in published}
    for number, output in enumerate(run.outputs):
        name = routes[number].name if routes else ""
        manifest = known.get(name)
        kept = is_kept(output.options.destinations)
        directory = relative(output.options.destination, home) if kept else ""
        if manifest is None:
            yield TableEntry(
                table=what,
                route=name or None,
                directory=directory,
                status="failed",
                error=redact(why),
            )
        else:
            yield _complete(what, name, directory, manifest)


def _complete(
    what: TableRecord | None, route: str, directory: str, manifest: Manifest
) -> TableEntry:
    return TableEntry(
        table=what,
        route=route or None,
        directory=directory,
        status="complete",
        rows=manifest.totals.rows,
        bytes=manifest.totals.bytes,
        files=manifest.totals.files,
        source_rows=manifest.verified.source_rows,
        verified=manifest.verified.result,
        units=len(manifest.units),
        worker_seconds=round(sum(unit.seconds for unit in manifest.units), 4),
        digest=manifest.digest or digest_at_end(manifest_bytes(manifest)),
    )
