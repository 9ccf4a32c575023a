"""What a manifest says of a run beside the ceilings of its machine."""

from __future__ import annotations

import os

from numa.topology import detect
from unloader.manifest.model import TotalsRecord
from unloader.redaction import redact
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.kinds import destination_kind
from unloader.tuning.ceiling_records import Ceilings, Efficiency, Mount
from unloader.tuning.efficiency import (
    RunRates,
    efficiency,
    existing_directory,
    mount_of,
    this_machine,
)
from writers.model import TextFormat


def compared(
    run: ResolvedRun, found: Ceilings, totals: TotalsRecord, *, resumed: bool
) -> Efficiency:
    """Return how near a run came to ceilings.

    Args:
        run: What was done.
        found: The ceilings of the file that the run's request names.
        totals: What came of it.
        resumed: Another process did a part of it, of which the rates say nothing.
    """
    extract, options = run.extract, run.output.options
    raw = None if resumed else totals.uncompressed_bytes
    rates = RunRates(
        machine=this_machine(detect()),
        workers=len(run.seating.seats),
        mounts=_mounts(options.destinations),
        direct_io=options.direct_io,
        kind=extract.source.kind,
        location=redact(extract.source.location),
        subject=extract.query if extract.query is not None else extract.table.label,
        where=extract.where,
        partitions=extract.partitions,
        columns=len(run.written.columns),
        format="csv" if isinstance(run.output.format, TextFormat) else "parquet",
        rows_per_second=totals.rows_per_second,
        bytes_per_second=totals.bytes_per_second,
        uncompressed_bytes_per_second=(
            round(raw / totals.seconds) if raw and totals.seconds else None
        ),
    )
    return efficiency(found, os.path.basename(run.request.ceilings or ""), rates)


def _mounts(destinations: tuple[str, ...]) -> tuple[Mount | None, ...]:
    if destination_kind(destinations) != "directories":
        return ()
    places = (existing_directory(each) for each in destinations)
    return tuple(None if place is None else mount_of(place) for place in places)
