"""The page of `unloader preflight`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.columns import facts, terminal_width
from unloader.nouns import counted

if TYPE_CHECKING:
    from unloader.tuning.ceiling_records import (
        Ceilings,
        CodecCeiling,
        ConnectionCeiling,
        DiskCeiling,
        EncoderCeiling,
        SourceLevel,
    )


def page(found: Ceilings) -> str:
    """Return all measurements, part by part, and the missing ones with the reason."""
    return "\n\n".join(part for part in _parts(found) if part)


def _parts(found: Ceilings) -> Iterator[str]:
    machine = found.machine
    yield facts(
        (
            ("machine", f"{machine.name}, {machine.cores} cores, {machine.cpus} CPUs usable"),
            ("processor", machine.model or render.UNKNOWN),
            ("workers of a run", render.count(found.parallelism)),
            ("writing", _writing(found)),
        ),
        terminal_width(),
    )
    disks = (*found.disks, *((found.together,) if found.together else ()))
    if disks:
        yield render.table(
            ("disk", ">files at once", ">written", ">MB/s", ">lowest", ">highest", "file system"),
            map(_disk, disks),
        )
    if found.source is not None:
        yield render.table(
            (
                ">workers",
                ">rows/s",
                ">MB/s",
                ">rows/s per worker",
                ">network MB/s",
                ">CPU s per million rows",
            ),
            map(_level, found.source.levels),
        )
    if found.encoder is not None:
        yield _encoder(found.encoder)
    if found.connection is not None:
        yield _connection(found.connection)
    if found.not_measured:
        yield render.table(
            ("not measured", "reason"), ((each.what, each.reason) for each in found.not_measured)
        )


def _writing(found: Ceilings) -> str:
    how = found.writing
    past = ", without the page cache" if how.direct_io else ""
    return (
        f"{how.overlap_buffers} buffers of {render.size(how.overlap_buffer)}, {how.checksum}, "
        f"each file synced{past}"
    )


def _disk(disk: DiskCeiling) -> tuple[str, ...]:
    mounts = dict.fromkeys(f"{each.type} on {each.point}" for each in disk.mounts if each)
    return (
        " + ".join(disk.directories),
        str(disk.writers),
        render.size(disk.bytes),
        _megabytes(disk.bytes_per_second),
        _megabytes(disk.lowest),
        _megabytes(disk.highest),
        ", ".join(mounts) or render.UNKNOWN,
    )


def _level(level: SourceLevel) -> tuple[str, ...]:
    million = level.cpu_seconds / level.rows * 1e6
    return (
        str(level.parallelism),
        f"{level.rows_per_second:,.0f}",
        _megabytes(level.bytes_per_second),
        f"{level.rows_per_second / level.parallelism:,.0f}",
        _megabytes(level.network_bytes_per_second),
        f"{million:.2f}",
    )


def _encoder(found: EncoderCeiling) -> str:
    rate = found.bytes_per_cpu_second
    shown = f"{render.megabytes_per_second(rate)} per core" if rate else render.UNKNOWN
    sample = f"{counted(found.sample_rows, 'row')} of {found.row_bytes:.1f} bytes on average"
    lines = render.facts(
        ((f"{found.format} encoder", shown), ("sample", f"{sample}, before compression"))
    )
    table = render.table(("codec", ">ratio", ">MB/s per core"), map(_codec, found.codecs))
    return f"{lines}\n\n{table}"


def _codec(codec: CodecCeiling) -> tuple[str, ...]:
    level = "" if codec.level is None else f":{codec.level}"
    return (f"{codec.codec}{level}", f"{codec.ratio:.3f}", _megabytes(codec.bytes_per_cpu_second))


def _connection(found: ConnectionCeiling) -> str:
    return render.facts(
        (
            (
                "round trip",
                f"{_milliseconds(found.round_trip_seconds)} (median of {found.statements} "
                "small statements)",
            ),
            ("network round trip", _milliseconds(found.network_round_trip_seconds)),
            ("one connection", render.megabytes_per_second(found.bytes_per_second)),
            ("all connections", render.megabytes_per_second(found.all_bytes_per_second)),
        )
    )


def _milliseconds(seconds: float | None) -> str:
    return render.UNKNOWN if seconds is None else f"{seconds * 1000:.3f} ms"


def _megabytes(rate: float | None) -> str:
    return render.UNKNOWN if rate is None else f"{rate / 1e6:,.1f}"
