"""Finished runs of a job that is asked for again: see `--skip-finished`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from unloader.errors import OutputFailed
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest, TablesManifest
from unloader.manifest.read import is_finished_home, read_manifest, read_tables_manifest
from unloader.model import Request
from unloader.request.directory_names import existing, has_fields, home_template
from unloader.resolve.broken_run import is_finished
from unloader.resolve.jobs import digest_of_job, digest_of_tables_job
from unloader.selection.choice import TablesRequest
from unloader.storage.place_names import is_kept, path_of
from unloader.storage.storage_lookup import storage_at


def finished_run(request: Request) -> tuple[Manifest, ...]:
    """Return the manifests of a finished run of the job, one for each output; none if none is.

    With `{date}` it is one of today, and so it is for a table of a lakehouse.

    Raises:
        OutputFailed: A place cannot be looked at.
    """
    found: list[Manifest] = []
    for each in request.of_outputs():
        job = digest_of_job(each)
        manifests = map(_manifest_at, _places(each.output.destination))
        same = [manifest for manifest in manifests if manifest is not None and manifest.job == job]
        if not same:
            return ()
        found.append(same[0])
    return tuple(found) if len({each.run_id for each in found}) == 1 else ()


def finished_tables(asked: TablesRequest) -> TablesManifest | None:
    """Return the manifest of a finished run over several tables of the job; None if none is.

    Raises:
        OutputFailed: A place cannot be looked at.
    """
    template = home_template(asked.options.destination)
    if not asked.options.destination or not is_kept((template or ".",)):
        return None
    job = asked.options.job or digest_of_tables_job(asked)
    for home in _places(template or "."):
        if not _is_over(home) or not is_finished_home(path_of(home)):
            continue
        manifest = read_tables_manifest(path_of(home))
        if manifest.job == job:
            return manifest
    return None


def _places(destination: str) -> Sequence[str]:
    """Return where a finished run may be: that of today, if the place is another one each day."""
    if not is_kept((destination,)):
        return ()
    today = f"{datetime.now(UTC):%Y%m%d}"
    if lake_kind(destination) is not None:
        # Imported on use: most runs are not for a table.
        from unloader.lakehouse.lake_runs import homes, uncommitted

        left = dict(uncommitted(destination))
        return [
            home
            for home in homes(destination)
            if path_of(home).name.startswith(today) and home not in left
        ]
    if has_fields(destination):
        return existing(destination, today, storage_at(destination).levels)
    return (destination,)


def _is_over(place: str) -> bool:
    """Return whether nothing is left to do there by `resume`."""
    try:
        return storage_at(place).who_was_here(place, counted=False) is None
    except OSError:
        return False  # The run that follows says so.


def _manifest_at(place: str) -> Manifest | None:
    if not is_finished(place) or is_finished_home(path_of(place)) or not _is_over(place):
        return None
    try:
        return read_manifest(path_of(place))
    except OutputFailed:
        return None  # It is damaged, which the run that follows says.
