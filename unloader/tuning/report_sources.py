"""The report of a place: of the manifest of a run, or of the output of a sweep."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from unloader.errors import OutputFailed, UnloaderError
from unloader.manifest.model import Manifest, TablesManifest
from unloader.manifest.read import manifest_data, parse_run, read_manifest
from unloader.storage.place_names import PlacePath, path_of
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN
from unloader.tuning.ceilings import read_ceilings
from unloader.tuning.run_report import RunReport, TablesReport, run_report, tables_report
from unloader.tuning.sweep_document import is_sweep, sweep_of
from unloader.tuning.sweep_report import SweepPage, sweep_report
from writers.files.regular import read_regular
from writers.objects.location import Location


def report_at(
    place: PlacePath, ceilings: Path | None = None
) -> RunReport | TablesReport | SweepPage:
    """Return the report of a place.

    Args:
        place: The directory of a finished run, or of an interrupted run with finished units; or a
            file: a manifest, or the output of `unloader sweep --json`.
        ceilings: A file of `unloader preflight --save`, to compare a sweep with.

    Raises:
        OutputFailed: The manifest is missing or damaged.
        ConfigError: The sweep has no points, or the ceilings cannot be read.
    """
    if isinstance(place, Location) or not place.is_file():
        return _of_run_in(place)
    data = _data(place)
    document = _decoded(data)
    if isinstance(document, dict) and is_sweep(document):
        held = None if ceilings is None else read_ceilings(ceilings)
        return sweep_report(sweep_of(document, place), held)
    if document is None and place.name != MANIFEST:
        raise OutputFailed(
            f"{place} is neither a manifest nor the output of unloader sweep --json",
            "give the directory of a finished run, or one of those files",
        )
    return _report(data, place)


def of_manifest(manifest: Manifest) -> RunReport:
    """Return the report of a run, with the routes whose manifests are still in their places."""
    if manifest.route is None:
        return run_report(manifest)
    found = [manifest]
    for other in manifest.route.others:
        with suppress(UnloaderError, OSError):
            # Another run may have replaced it.
            found += [
                each for each in [read_manifest(path_of(other.to))] if _is_same(each, manifest)
            ]
    return run_report(manifest, found)


def _is_same(one: Manifest, other: Manifest) -> bool:
    return one.run_id == other.run_id and one.route is not None


def _data(path: Path) -> bytes:
    try:
        return read_regular(path, follow=True)
    except OSError as error:
        raise OutputFailed(
            f"cannot read {path}: {error.strerror or error}",
            "check the path and its permissions",
        ) from error


def _decoded(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _of_run_in(place: PlacePath) -> RunReport | TablesReport:
    """Return the report of the run at a place, finished or, without one, broken."""
    left = _left_in(place)
    if left:
        return _report(left, place / RUN / MANIFEST)
    return _report(manifest_data(place), place / MANIFEST)


def _report(data: bytes, path: PlacePath) -> RunReport | TablesReport:
    manifest = parse_run(data, path)
    if isinstance(manifest, TablesManifest):
        return tables_report(manifest)
    return of_manifest(manifest)


def _left_in(place: PlacePath) -> bytes:
    """Return the manifest that a broken run has left, where no finished one stands."""
    name, storage = str(place), storage_at(str(place))
    with suppress(OSError):
        if MANIFEST not in storage.names(name):
            return storage.record(name, MANIFEST)
    return b""
