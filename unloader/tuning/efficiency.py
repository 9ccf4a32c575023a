"""Compares the rates of a run with ceilings of the same machine, places and source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from numa.model import Topology
from unloader.nouns import counted
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import host_name
from unloader.tuning.ceiling_records import (
    Ceilings,
    DiskCeiling,
    Efficiency,
    EfficiencyPart,
    EncoderCeiling,
    Machine,
    Mount,
    SourceCeiling,
    SourceLevel,
)


class RunRates(Struct, frozen=True, kw_only=True):
    """What a run did, and where."""

    machine: Machine
    workers: int
    mounts: tuple[Mount | None, ...]
    """Of its directories; empty where its output went elsewhere."""
    direct_io: bool
    kind: str
    location: str
    subject: str
    where: str | None
    partitions: tuple[str, ...]
    columns: int
    format: str
    rows_per_second: float | None
    """None where that is not known."""
    bytes_per_second: float | None
    """Of the files."""
    uncompressed_bytes_per_second: float | None


def efficiency(found: Ceilings, path: str, run: RunRates) -> Efficiency:
    """Return the share of each ceiling that a run has reached.

    Args:
        found: The ceilings.
        path: Their file.
        run: The run that is compared with them.
    """
    ours = run.machine
    if (found.machine.name, found.machine.cpus) != (ours.name, ours.cpus):
        was = found.machine
        reason = (
            f"the ceilings are of {was.name} with {was.cpus} CPUs, but this machine is "
            f"{ours.name} with {ours.cpus}"
        )
        return Efficiency(ceilings=path, taken_at=found.taken_at, parts=(), not_compared=(reason,))
    parts: list[EfficiencyPart] = []
    reasons: list[str] = []
    for what in (_disk_parts(found, run), _source_parts(found, run), _encoder_parts(found, run)):
        for each in what:
            if isinstance(each, str):
                reasons.append(each)
            else:
                parts.append(each)
    return Efficiency(
        ceilings=path, taken_at=found.taken_at, parts=tuple(parts), not_compared=tuple(reasons)
    )


def _disk_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    if not found.disks:
        yield "disk: it was not measured"
    elif not run.mounts:
        yield "disk: the output was not written to a disk"
    elif run.bytes_per_second is None:
        yield "disk: the rate of the run is unknown"
    elif found.writing.direct_io != run.direct_io:
        yield "disk: it was measured with another --direct-io"
    else:
        ceiling = _same_disks(found, run)
        if ceiling is None:
            yield "disk: the ceilings are of another disk than the output"
            return
        files = counted(ceiling.writers, "file", "files together")
        yield EfficiencyPart(
            what="disk",
            unit="bytes/s",
            rate=run.bytes_per_second,
            ceiling=ceiling.bytes_per_second,
            share=round(run.bytes_per_second / ceiling.bytes_per_second, 4),
            basis=f"{files} in {' and '.join(ceiling.measured_in)}",
        )


def _same_disks(found: Ceilings, run: RunRates) -> DiskCeiling | None:
    """Return the highest ceiling of exactly the file systems that the run wrote to."""
    ours = {_key(each) for each in run.mounts}
    if None in ours:
        return None
    known = (*found.disks, *((found.together,) if found.together else ()))
    fitting = [each for each in known if {_key(mount) for mount in each.mounts} == ours]
    return max(fitting, key=lambda each: each.bytes_per_second, default=None)


def _key(mount: Mount | None) -> tuple[str, str, str] | None:
    return None if mount is None else (mount.point, mount.source, mount.type)


def _source_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    source = found.source
    if source is None:
        yield "source: it was not measured"
    elif not _is_the_source(source, run):
        yield "source: the ceilings are of another source, table, query or selection"
    elif run.rows_per_second is None:
        yield "source: the rate of the run is unknown"
    else:
        level = level_for(source, run.workers)
        workers = (
            counted(level.parallelism, "worker that fetches", "workers that fetch")
            + f" and {'writes' if level.parallelism == 1 else 'write'} nothing"
        )
        yield EfficiencyPart(
            what="source",
            unit="rows/s",
            rate=run.rows_per_second,
            ceiling=level.rows_per_second,
            share=round(run.rows_per_second / level.rows_per_second, 4),
            basis=workers,
        )


def _is_the_source(source: SourceCeiling, run: RunRates) -> bool:
    return all(
        getattr(source, name) == getattr(run, name)
        for name in ("kind", "location", "subject", "where", "partitions", "columns")
    )


def level_for(source: SourceCeiling, workers: int) -> SourceLevel:
    """Return the level of that parallelism, or else the level with the highest rate."""
    same = [each for each in source.levels if each.parallelism == workers]
    return same[0] if same else max(source.levels, key=lambda each: each.rows_per_second)


def _encoder_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    encoder = found.encoder
    if encoder is None or encoder.bytes_per_cpu_second is None:
        yield "encoder: it was not measured"
    elif encoder.format != run.format:
        yield f"encoder: the ceilings are of {encoder.format}"
    elif found.source is not None and not _is_the_source(found.source, run):
        yield "encoder: the ceilings are of other rows"
    elif run.uncompressed_bytes_per_second is None:
        yield "encoder: the size before compression is unknown"
    else:
        yield _encoder_part(encoder, encoder.bytes_per_cpu_second, found, run)


def _encoder_part(
    encoder: EncoderCeiling, rate: float, found: Ceilings, run: RunRates
) -> EfficiencyPart:
    assert run.uncompressed_bytes_per_second is not None
    cores = max(1, min(run.workers, found.machine.cores))
    ceiling = rate * cores
    return EfficiencyPart(
        what="encoder",
        unit="bytes/s",
        rate=run.uncompressed_bytes_per_second,
        ceiling=ceiling,
        share=round(run.uncompressed_bytes_per_second / ceiling, 4),
        basis=f"{counted(cores, 'core that encodes', 'cores that encode')} only {encoder.format}",
    )


_MOUNTS = Path("/proc/self/mountinfo")
_CPUS = Path("/proc/cpuinfo")
_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


def this_machine(topology: Topology) -> Machine:
    """Return the record of this machine."""
    # A node that does not tell its cores has one for each of its CPUs.
    cores = sum(len(node.cores or node.cpus) for node in topology.nodes)
    usable = topology.usable_cpus
    return Machine(
        name=host_name(),
        cpus=usable,
        cores=max(1, min(usable, cores)),
        model=_cpu_model(),
    )


def _cpu_model() -> str | None:
    try:
        found = _MODEL.search(_CPUS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None


def existing_directory(place: str) -> str | None:
    """Return a directory, or the nearest existing one above it; None if it is not a directory."""
    disk = storage_at(place).disk(place)
    return None if disk is None else disk.directory


def mount_of(directory: str) -> Mount | None:
    """Return the file system of a directory (proc(5), mountinfo); None if that is not known.

    The last entry of the longest mount point that holds it counts: mounts may lie on mounts.
    """
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = os.path.realpath(directory)
    except OSError:
        return None
    best: Mount | None = None
    for line in lines:
        front, _, behind = line.partition(" - ")
        fields, last = front.split(" "), behind.split(" ")
        if len(fields) < 5 or len(last) < 2:
            continue
        point = _unescaped(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point=point, source=_unescaped(last[1]), type=last[0])
    return best


def _unescaped(text: str) -> str:
    plain = _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
    # JSON can contain only UTF-8.
    return plain.encode("utf-8", "replace").decode("utf-8")
