"""Which parts of a plan lie in a directory, and whether they are all of one plan at one moment.

What a part has read stands in its manifest. Nothing is taken from the names of directories, but for
telling the user which ones are meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from partition_planner.model import PlanPart
from unloader.errors import OutputFailed
from unloader.manifest.asked import OptionsRecord
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.model import Part
from unloader.nouns import are, counted
from unloader.request.parts import part_directory
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath, path_of, relative

_AS_THE_MACHINE_IS = frozenset((
    "to", "overwrite", "overlap_buffer", "overlap_buffers", "direct_io", "min_free",
    "pause_timeout", "fetch_memory", "worker_memory", "parallelism", "verify", "retries",
    "retry_delay", "retry_delay_max", "stall_timeout", "fetch", "numa", "nodes", "placement",
    "bind", "memory_policy", "near", "adaptive", "max_sessions", "max_cpu", "max_db_load",
    "slow_between", "slow_parallelism", "compression_library",
))  # fmt: skip
"""Options that say how a part was read, and nothing of what its files hold."""

_MOST_NAMED = 8
"""So many parts are named in a message."""


class FoundPart(Struct, frozen=True, kw_only=True):
    """One published part."""

    place: str
    """As seen from the directory that the parts are in."""
    manifest: Manifest
    record: PlanPart

    @property
    def number(self) -> int:
        """Which part it is, from 1."""
        return self.record.number


def parts_in(destination: PlacePath) -> tuple[FoundPart, ...]:
    """Return all parts of the plan whose parts lie in a directory, by number.

    Raises:
        OutputFailed: There is none, some are missing or not finished, or they are of different
            plans, moments or forms.
    """
    home = str(destination)
    storage = storage_at(home)
    try:
        places = storage.places_below(home, 1)
    except OSError as error:
        raise OutputFailed(
            f"{home} cannot be read: {error.strerror or error}",
            "give the directory that was given with --to",
        ) from error
    found, broken = [], []
    for place in places:
        name = relative(place, home)
        if name == ".":
            continue
        # With --overwrite, an unfinished run of a part is beside the manifest of the run before.
        who = storage.who_was_here(place, counted=False)
        if MANIFEST not in storage.names(place) or (who is not None and who.run_id):
            broken.append(name)
            continue
        manifest = read_manifest(path_of(place))
        subset = manifest.subset
        if subset is not None and subset.part is not None:
            found.append(FoundPart(place=name, manifest=manifest, record=subset.part))
    if not found:
        raise OutputFailed(
            f"{home} has no finished part of a plan",
            "run the parts first: unloader run plan.json --part 1/N, and so on to N/N",
        )
    found.sort(key=lambda each: (each.number, each.place))
    _check_one_plan(found)
    _check_all_there(home, found, broken)
    _check_units(found)
    return tuple(found)


def _check_one_plan(found: Sequence[FoundPart]) -> None:
    """Check that all parts are of one plan, moment and form."""
    first = found[0]
    for each in found[1:]:
        why = _difference(first, each)
        if why:
            raise OutputFailed(
                f"{first.place} and {each.place} do not belong together: {why}",
                "remove the part that does not belong to this plan, and run the missing part",
            )


def _difference(one: FoundPart, other: FoundPart) -> str:
    """Say what two parts differ in that those of one run have in common; empty if nothing."""
    here, there = one.manifest, other.manifest
    if one.record.plan_digest != other.record.plan_digest:
        return "they are parts of different plans"
    if one.record.of != other.record.of:
        return f"one is part of {one.record.of}, the other is part of {other.record.of}"
    if one.number == other.number:
        return f"both are part {one.number} of {one.record.of}"
    if _moment(here) != _moment(there):
        return f"one was read at {_moment(here)}, the other at {_moment(there)}"
    if (here.source.kind, here.table, here.query) != (there.source.kind, there.table, there.query):
        return "they contain different tables"
    if _route(here) != _route(there):
        return f"they contain the routes {_route(here)!r} and {_route(there)!r}"
    if [each.name for each in here.columns] != [each.name for each in there.columns]:
        return "their columns differ"
    if here.columns != there.columns:
        return "their columns have different types, or are masked in different ways"
    for name in OptionsRecord.__struct_fields__:
        if name not in _AS_THE_MACHINE_IS and getattr(here.options, name) != getattr(
            there.options, name
        ):
            return f"they were written with different values of --{name.replace('_', '-')}"
    return ""


def _route(manifest: Manifest) -> str:
    return "" if manifest.route is None else manifest.route.name


def _moment(manifest: Manifest) -> str:
    snapshot = manifest.snapshot
    return "no snapshot" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip()


def _check_all_there(home: str, found: Sequence[FoundPart], broken: Sequence[str]) -> None:
    of, of_units = found[0].record.of, found[0].record.of_units
    # Where there are more parts than units, the last ones have none and write nothing.
    wanted = range(1, min(of, of_units) + 1)
    missing = sorted(set(wanted) - {each.number for each in found})
    if not missing:
        return
    names = {number: part_directory(Part(number=number, of=of)) for number in missing}
    if begun := [name for name in names.values() if name in broken]:
        raise OutputFailed(
            f"{len(missing)} of {counted(of, 'part')} {are(len(missing))} not finished: "
            f"{_listed(list(names.values()))}",
            f"resume the interrupted parts, such as: unloader resume {home}/{begun[0]}",
        )
    raise OutputFailed(
        f"{len(missing)} of {counted(of, 'part')} {are(len(missing))} missing in {home}: "
        f"{_listed(list(names.values()))}",
        f"run them, such as: unloader run plan.json --part {missing[0]}/{of}; then merge again",
    )


def _check_units(found: Sequence[FoundPart]) -> None:
    """Check that each work unit of the plan was read once, and that no two files have one name."""
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


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
