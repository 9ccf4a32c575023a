"""Puts the parts of a plan together: one manifest over the files of all, which stay where they are.

The manifest is written last and only if there is none, so of two that merge at once one wins, and
whoever finds it finds all parts published.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from unloader import __version__
from unloader.errors import OutputFailed
from unloader.manifest.asked import PlanRecord, SubsetRecord
from unloader.manifest.digest import manifest_bytes
from unloader.manifest.model import (
    DirectoryRecord,
    Manifest,
    MergedPart,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.manifest.read import directories_of, read_manifest
from unloader.merging.parts import FoundPart, parts_in
from unloader.model import FinishedUnit, VerifyLevel
from unloader.resolve.resolution import new_run_id
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath, absolute

_LEVELS: tuple[VerifyLevel, ...] = ("none", "count", "full", "source")
"""From the one that checks least."""


def merge(destination: PlacePath) -> Manifest:
    """Write one manifest over all parts of a plan, once all are there; return it.

    If the directory has it already, that is returned.

    Raises:
        OutputFailed: Parts are missing or do not belong together, a file of one is not there or has
            another size, or the directory has the manifest of another run.
    """
    found = parts_in(destination)
    for part in found:
        _check_files(destination / part.place, part.manifest)
    merged = _merged(found, destination)
    home = str(destination)
    try:
        storage_at(home).put_new(home, MANIFEST, manifest_bytes(merged))
    except FileExistsError:
        return _there_already(destination, merged)
    return read_manifest(destination)


def _there_already(destination: PlacePath, merged: Manifest) -> Manifest:
    """Return the manifest that is there, if it is of the same parts."""
    there = read_manifest(destination)
    if there.parts != merged.parts:
        raise OutputFailed(
            f"{destination} has the manifest of another run, {there.run_id}",
            f"if the files of that run are not needed any more, remove {destination / MANIFEST} "
            "and merge again",
        )
    return there


def _check_files(place: PlacePath, manifest: Manifest) -> None:
    """Check that the files of a part are there with the sizes that they had."""
    places = directories_of(manifest, place)
    for name, file in manifest.files.items():
        home = places[file.directory]
        path = home / name
        try:
            size = storage_at(str(home)).size(str(home), name)
        except OSError as error:
            raise OutputFailed(
                f"{path} is missing: {error.strerror}",
                "make it visible on this machine, or run the part again with --overwrite",
            ) from error
        if size != file.bytes:
            raise OutputFailed(
                f"{path} has {size} bytes, but its manifest records {file.bytes}",
                "run the part again with --overwrite",
            )


def _merged(found: Sequence[FoundPart], destination: PlacePath) -> Manifest:
    first = found[0].manifest
    directories = [DirectoryRecord(path=absolute(str(destination)), files=0, bytes=0)]
    units: list[FinishedUnit] = []
    for part in found:
        begins = len(directories)
        directories += _directories(part)
        units += (_moved(unit, begins) for unit in part.manifest.units)
    return Manifest(
        run_id=new_run_id(),
        unloader_version=__version__,
        status="complete",
        source=first.source,
        table=first.table,
        query=first.query,
        subset=_subset([each.manifest for each in found]),
        parts=tuple(_part(each) for each in found),
        route=None if first.route is None else replace(first.route, others=(), dropped=()),
        snapshot=first.snapshot,
        columns=first.columns,
        options=replace(first.options, to=str(destination)),
        settings=(),
        plan=PlanRecord(digest=found[0].record.plan_digest, units=len(units)),
        directories=tuple(directories),
        units=tuple(sorted(units, key=lambda unit: unit.unit)),
        # The manifests of the parts have these; each began at another time.
        failed_attempts=(),
        failed_attempts_left_out=0,
        samples=(),
        workers=(),
        nodes=(),
        warnings=tuple(
            f"part {each.number}: {text}" for each in found for text in each.manifest.warnings
        ),
        not_measured=(
            "see the manifests of the parts for the places and the activity of the workers",
        ),
        totals=_totals([each.manifest for each in found]),
        verified=_verified([each.manifest for each in found]),
    )


def _directories(part: FoundPart) -> list[DirectoryRecord]:
    """Return the directories of a part: the first as seen from that of all parts."""
    known = part.manifest.directories
    if known is None:
        totals = part.manifest.totals
        return [DirectoryRecord(path=part.place, files=totals.files, bytes=totals.bytes)]
    return [replace(known[0], path=part.place), *known[1:]]


def _moved(unit: FinishedUnit, begins: int) -> FinishedUnit:
    """Return a unit with its files in the directories of the merged manifest.

    When it began is counted from the begin of its part, which began at another time.
    """
    files = tuple(replace(file, directory=begins + (file.directory)) for file in unit.files)
    return replace(unit, files=files, started_s=None, worker=None)


def _part(found: FoundPart) -> MergedPart:
    totals = found.manifest.totals
    return MergedPart(
        number=found.number,
        directory=found.place,
        run_id=found.manifest.run_id,
        units=len(found.manifest.units),
        rows=totals.rows,
        bytes=totals.bytes,
        files=totals.files,
        seconds=totals.seconds,
        digest=found.manifest.digest,
    )


def _subset(manifests: Sequence[Manifest]) -> SubsetRecord | None:
    """Return what the plan itself leaves out of the table; None if it is all of it."""
    first, *_ = subsets = [each.subset for each in manifests if each.subset is not None]
    if first.share is None and first.limit_rows is None:
        return None
    units = None if first.part is None else first.part.of_units
    whole = replace(first, part=None, units=units, selectors=None)
    if first.key is not None or first.share is None:
        return replace(whole, units=None, of_units=None)
    # Of a sample of units they alone say which rows are in it.
    read = [each for subset in subsets for each in subset.selectors or ()]
    if any(each.selectors is None for each in subsets):
        return whole  # They are ranges of values.
    return replace(whole, selectors=tuple(read))


def _totals(manifests: Sequence[Manifest]) -> TotalsRecord:
    each = [manifest.totals for manifest in manifests]
    plain = [totals.uncompressed_bytes for totals in each]
    return TotalsRecord(
        rows=sum(totals.rows for totals in each),
        bytes=sum(totals.bytes for totals in each),
        files=sum(totals.files for totals in each),
        # How much of it was at the same time is not known here.
        seconds=max(totals.seconds for totals in each),
        cpu_seconds=round(sum(totals.cpu_seconds for totals in each), 3),
        compress_cpu_seconds=round(sum(totals.compress_cpu_seconds for totals in each), 3),
        uncompressed_bytes=None if None in plain else sum(filter(None, plain)),
        rows_per_second=None,
        bytes_per_second=None,
        lowest_parallelism=None,
        peak_worker_rss_bytes=max(totals.peak_worker_rss_bytes for totals in each),
    )


def _verified(manifests: Sequence[Manifest]) -> VerifiedRecord:
    """Return what was checked of every part."""
    each = [manifest.verified for manifest in manifests]
    rows = [verified.source_rows for verified in each]
    filtered = [verified.filtered_rows for verified in each]
    results = sorted({verified.result for verified in each})
    left_out = [verified.not_compared for verified in each if verified.not_compared is not None]
    return VerifiedRecord(
        level=min((verified.level for verified in each), key=_LEVELS.index),
        source_rows=None if None in rows else sum(filter(None, rows)),
        filtered_rows=None if None in filtered else sum(filter(None, filtered)),
        result=results[0] if len(results) == 1 else "not verified",
        not_compared=tuple(dict.fromkeys(text for texts in left_out for text in texts))
        if left_out
        else None,
    )
