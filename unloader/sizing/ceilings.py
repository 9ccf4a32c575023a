"""What ceilings say of a run that nobody has made yet: no stage is faster than it was alone."""

from __future__ import annotations

from unloader.ceilings.model import Ceilings, EncoderCeiling, SourceLevel
from unloader.sizing.model import Basis, CodecSpace, Measured


def basis_of_ceilings(found: Ceilings) -> Basis:
    """Return disks, codecs, and a predicted point for each parallelism of the source.

    A point needs the source and the encoder: the rows of a second are the lowest of what the source
    gave, what so many workers encode, and what the cores have time for.
    """
    encoder, source = found.encoder, found.source
    measured: tuple[Measured, ...] = ()
    network = None
    if source is not None and encoder is not None:
        measured = tuple(_point(each, encoder, found.machine.cores) for each in source.levels)
    if source is not None:
        widths = [
            each.network_bytes_per_second / each.rows_per_second
            for each in source.levels
            if each.network_bytes_per_second
        ]
        network = max(widths, default=None)
    text = encoder is not None and encoder.format == "csv"
    return Basis(
        origins=("ceilings",),
        measured=measured,
        predicted=True,
        row_bytes=encoder.row_bytes if encoder is not None and text else None,
        disk_rate=max((each.bytes_per_second for each in found.disks), default=None),
        source_rows_per_second=_most(source.levels) if source is not None else None,
        network_row_bytes=network,
        spaces=_spaces(encoder) if encoder is not None else (),
    )


def _most(levels: tuple[SourceLevel, ...]) -> float | None:
    """Return the most that a source gives; None where the last level still rose with its workers.

    It has levelled off where further workers bring less than half of what they should.
    """
    *others, last = sorted(levels, key=lambda each: each.parallelism)
    if not others:
        return None
    before = others[-1]
    expected = before.rows_per_second * last.parallelism / before.parallelism
    gained, wanted = (
        last.rows_per_second - before.rows_per_second,
        expected - before.rows_per_second,
    )
    if gained >= wanted / 2:
        return None
    return max(each.rows_per_second for each in levels)


def _point(level: SourceLevel, encoder: EncoderCeiling, cores: int) -> Measured:
    workers = level.parallelism
    encode = encoder.encode_cpu_seconds / encoder.sample_rows
    cost = level.cpu_seconds / level.rows + encode
    rates = [level.rows_per_second]
    if encode:
        rates.append(workers / encode)
    if cost:
        rates.append(min(workers, cores) / cost)
    rate = min(rates)
    return Measured(
        workers=workers,
        seconds=1.0,
        rows=rate,
        bytes=rate * encoder.row_bytes if encoder.format == "csv" else None,
        cores=min(workers, cores),
        cpu_seconds=rate * cost,
    )


def _spaces(encoder: EncoderCeiling) -> tuple[CodecSpace, ...]:
    return tuple(
        CodecSpace(
            format=encoder.format,
            codec=each.codec if each.level is None else f"{each.codec}:{each.level}",
            # Text is as wide as the question says; what Parquet makes of other rows is not known.
            row_bytes=None if encoder.format == "csv" else encoder.row_bytes,
            ratio=each.ratio,
            bytes_per_cpu_second=each.bytes_per_cpu_second,
        )
        for each in encoder.codecs
    )
