"""Merges the parts of a plan: one manifest over the files of all parts, which stay where they are.

Before that, all parts of the plan must be in a directory, and belong to one plan at one moment. The
manifest of a part records which rows it has read. The names of directories are only for messages.

The manifest is written last, and only into a directory without a manifest. So of two processes that
merge at the same time one wins, and a reader that finds the manifest finds all parts published.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import PlanPart
from partition_planner.planner import known_sum
from unloader import __version__
from unloader.errors import OutputFailed
from unloader.manifest.model import (
    DirectoryRecord,
    Manifest,
    MergedPart,
    OptionsRecord,
    PlanRecord,
    SubsetRecord,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.manifest.read import directories_of, manifest_bytes, read_manifest
from unloader.model import FinishedUnit, Part, VerifyLevel
from unloader.nouns import are, counted, listed
from unloader.request.settings import PART_DIRECTORY, part_directory
from unloader.resolve.resolution import new_run_id
from unloader.storage.place_names import PlacePath, absolute, path_of, relative
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST
from writers.objects.location import below


def merge(destination: PlacePath) -> Manifest:
    """Write one manifest over all parts of a plan, and return it, or the one that is there already.

    OutputFailed: parts are missing or differ, a file has another size, or another run is there.
    """
    found = parts_in(destination)
    for part in found:
        places = directories_of(part.manifest, destination / part.place)
        for name, file in part.manifest.files.items():
            path, home = places[file.directory] / name, str(places[file.directory])
            try:
                size = storage_at(home).size(home, name)
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
    merged, home = _merged(found, destination), str(destination)
    with suppress(FileExistsError):
        storage_at(home).put_new(home, MANIFEST, manifest_bytes(merged))
        return read_manifest(destination)
    there = read_manifest(destination)
    if there.parts != merged.parts:
        raise OutputFailed(
            f"{destination} has the manifest of another run, {there.run_id}",
            f"if the files of that run are not needed any more, remove {destination / MANIFEST} "
            "and merge again",
        )
    return there


def _merged_part(part: FoundPart) -> MergedPart:
    manifest, totals = part.manifest, part.manifest.totals
    return MergedPart(
        number=part.record.number,
        directory=part.place,
        run_id=manifest.run_id,
        units=len(manifest.units),
        digest=manifest.digest,
        **{name: getattr(totals, name) for name in ("rows", "bytes", "files", "seconds")},
    )


def _merged(found: Sequence[FoundPart], destination: PlacePath) -> Manifest:
    first = found[0].manifest
    directories = [DirectoryRecord(path=absolute(str(destination)), files=0, bytes=0)]
    units: list[FinishedUnit] = []
    manifests = [each.manifest for each in found]
    for part in found:
        known, begins = part.manifest.directories, len(directories)
        # The first directory as it is seen from the directory of all parts.
        if known is None:
            totals = part.manifest.totals
            known = (DirectoryRecord(path="", files=totals.files, bytes=totals.bytes),)
        directories += [replace(known[0], path=part.place), *known[1:]]
        for unit in part.manifest.units:
            files = tuple(replace(each, directory=begins + each.directory) for each in unit.files)
            # When it began is counted from the begin of its part, which began at another time.
            units.append(replace(unit, files=files, started_s=None, worker=None))
    return Manifest(
        run_id=new_run_id(),
        unloader_version=__version__,
        status="complete",
        source=first.source,
        table=first.table,
        query=first.query,
        subset=_subset(manifests),
        parts=tuple(map(_merged_part, found)),
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
            f"part {each.record.number}: {text}"
            for each in found
            for text in each.manifest.warnings
        ),
        not_measured=(
            "see the manifests of the parts for the places and the activity of the workers",
        ),
        totals=_totals(manifests),
        verified=_verified(manifests),
    )


def _subset(manifests: Sequence[Manifest]) -> SubsetRecord | None:
    """Return how the plan itself narrows the table; None if the plan reads the whole table."""
    first, *_ = subsets = [each.subset for each in manifests if each.subset is not None]
    if first.share is None and first.limit_rows is None:
        return None
    units = None if first.part is None else first.part.of_units
    whole = replace(first, part=None, units=units, selectors=None)
    if first.key is not None or first.share is None:
        return replace(whole, units=None, of_units=None)
    # For a sample of units, the units alone determine its rows.
    read = [each for subset in subsets for each in subset.selectors or ()]
    if any(each.selectors is None for each in subsets):
        return whole  # They are ranges of values.
    return replace(whole, selectors=tuple(read))


def _totals(manifests: Sequence[Manifest]) -> TotalsRecord:
    each = [manifest.totals for manifest in manifests]
    added = ("rows", "bytes", "files", "cpu_seconds", "compress_cpu_seconds")
    # How much of it was at the same time is not known here.
    longest = ("seconds", "peak_worker_rss_bytes")
    return TotalsRecord(
        uncompressed_bytes=known_sum(totals.uncompressed_bytes for totals in each),
        rows_per_second=None,
        bytes_per_second=None,
        lowest_parallelism=None,
        **{name: round(sum(getattr(totals, name) for totals in each), 3) for name in added},
        **{name: max(getattr(totals, name) for totals in each) for name in longest},
    )


def _verified(manifests: Sequence[Manifest]) -> VerifiedRecord:
    each = [manifest.verified for manifest in manifests]
    results = {verified.result for verified in each}
    left_out = [verified.not_compared for verified in each if verified.not_compared is not None]
    return VerifiedRecord(
        level=min((verified.level for verified in each), key=get_args(VerifyLevel).index),
        source_rows=known_sum(verified.source_rows for verified in each),
        filtered_rows=known_sum(verified.filtered_rows for verified in each),
        result=results.pop() if len(results) == 1 else "not verified",
        not_compared=tuple(dict.fromkeys(chain.from_iterable(left_out))) if left_out else None,
    )


_AS_THE_MACHINE_IS = frozenset((
    "to", "overwrite", "overlap_buffer", "overlap_buffers", "direct_io", "min_free",
    "pause_timeout", "fetch_memory", "worker_memory", "parallelism", "verify", "retries",
    "retry_delay", "retry_delay_max", "stall_timeout", "fetch", "numa", "nodes", "placement",
    "bind", "memory_policy", "near", "adaptive", "max_sessions", "max_cpu", "max_db_load",
    "slow_between", "slow_parallelism", "compression_library",
))  # fmt: skip
"""Options that do not change the content of the files of a part."""

_MOST_NAMED = 8


class FoundPart(Struct, frozen=True, kw_only=True):
    place: str
    """As seen from the directory that the parts are in."""
    manifest: Manifest
    record: PlanPart


def parts_in(destination: PlacePath) -> tuple[FoundPart, ...]:
    """Return all parts of a plan in a directory, by number; OutputFailed if some are missing, not
    finished, or of different plans."""
    home = str(destination)
    storage = storage_at(home)
    try:
        places = storage.places_below(home, 1)
    except OSError as error:
        raise OutputFailed(
            f"{home} cannot be read: {error.strerror or error}",
            "give the directory that was given with --to",
        ) from error
    found, broken, begun = [], [], []
    for place in places:
        name = relative(place, home)
        if name == ".":
            continue
        # With --overwrite, an unfinished run of a part is beside the manifest of the run before.
        who = storage.who_was_here(place, counted=False)
        if MANIFEST not in storage.names(place) or (who is not None and who.run_id):
            broken.append(name)
            if who is not None and who.run_id and PART_DIRECTORY.fullmatch(name):
                begun.append(name)
            continue
        manifest = read_manifest(path_of(place))
        subset = manifest.subset
        if subset is not None and subset.part is not None:
            found.append(FoundPart(place=name, manifest=manifest, record=subset.part))
    if not found and begun:
        raise OutputFailed(
            f"no part of the plan in {home} is finished; begun: {listed(begun, _MOST_NAMED)}",
            _resume(home, begun),
        )
    if not found:
        raise OutputFailed(
            f"{home} has no finished part of a plan",
            "run the parts first: unloader run plan.json --part 1/N, and so on to N/N",
        )
    found.sort(key=lambda each: (each.record.number, each.place))
    first = found[0]
    for each in found[1:]:
        if why := _difference(first, each):
            raise OutputFailed(
                f"{first.place} and {each.place} do not belong together: {why}",
                "remove the part that does not belong to this plan, and run the missing part",
            )
    of, of_units = first.record.of, first.record.of_units
    # Where there are more parts than units, the last ones have none and write nothing.
    wanted = range(1, min(of, of_units) + 1)
    missing = sorted(set(wanted) - {each.record.number for each in found})
    names = [part_directory(Part(number=number, of=of)) for number in missing]
    parts = f"{len(missing)} of {counted(of, 'part')} {are(len(missing))}"
    if begun := [name for name in names if name in broken]:
        raise OutputFailed(
            f"{parts} not finished: {listed(names, _MOST_NAMED)}", _resume(home, begun)
        )
    if missing:
        raise OutputFailed(
            f"{parts} missing in {home}: {listed(names, _MOST_NAMED)}",
            f"run them, such as: unloader run plan.json --part {missing[0]}/{of}; then merge again",
        )
    _check_units(found)
    return tuple(found)


def _facts(part: FoundPart) -> dict[str, object]:
    """Return what all parts of one run have in common, by its name in an error."""
    manifest, moment = part.manifest, part.manifest.snapshot
    return {
        "plan": part.record.plan_digest,
        "number of parts": part.record.of,
        "snapshot": "none" if moment is None else f"{moment.kind} {moment.value}",
        "table": (manifest.source.kind, manifest.table, manifest.query),
        "route": manifest.route.name if manifest.route else "",
        "list of columns, types or masks": manifest.columns,
        **{
            f"--{name.replace('_', '-')}": getattr(manifest.options, name)
            for name in OptionsRecord.__struct_fields__
            if name not in _AS_THE_MACHINE_IS
        },
    }


def _difference(one: FoundPart, other: FoundPart) -> str:
    here, there = _facts(one), _facts(other)
    for what, mine in here.items():
        if mine != there[what]:
            values = f": {mine} and {there[what]}" if isinstance(mine, str | int) else ""
            return f"they have a different {what}{values}"
    same = one.record.number == other.record.number
    return f"both are part {one.record.number} of {one.record.of}" if same else ""


def _resume(home: str, begun: Sequence[str]) -> str:
    place = shlex.quote(below(home, begun[0]))
    return f"resume the interrupted parts, such as: unloader resume {place}"


def _check_units(found: Sequence[FoundPart]) -> None:
    of_unit: dict[str, str] = {}
    of_file: dict[str, str] = {}
    for part in found:
        for unit in part.manifest.units:
            if other := of_unit.get(unit.unit):
                raise OutputFailed(
                    f"work unit {unit.unit} is in {other} and in {part.place}",
                    "these parts do not come from one plan: run them again from the same plan file",
                )
            of_unit[unit.unit] = part.place
        for name in part.manifest.files:
            if other := of_file.get(name):
                raise OutputFailed(
                    f"{other} and {part.place} both have a file {name}",
                    "use a --file-name with {unit} in it, which differs in each part",
                )
            of_file[name] = part.place
    of_units = found[0].record.of_units
    if len(of_unit) != of_units:
        raise OutputFailed(
            f"the parts have {len(of_unit)} work units, but the plan has {of_units}",
            "run all parts again from the same plan file",
        )
