"""What a sweep is held against, and how it was made: ceilings and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from unloader.report.sweep_model import CeilingLine, SweepSetting
from unloader.report.sweeps.values import as_map, as_maps, as_number, as_text

Unit = Literal["bytes", "rows", "runs"]
"""What rates count."""

_SETTINGS = {
    "repeats": "measurements of a point",
    "most_repeats": "at most, where they differ too much",
    "widest_spread": "allowed difference between them, as a share",
    "warm_up": "warm-ups",
    "sample": "share of the table",
    "seconds": "longest measurement, in seconds",
    "seed": "seed of the order",
}


def ceilings_of(
    found: Mapping[str, Any], unit: Unit, row_bytes: float | None
) -> Iterator[CeilingLine]:
    """Yield the ceilings in the unit of a sweep.

    Args:
        found: The file that `preflight` wrote.
        unit: Of the sweep's rates.
        row_bytes: Of one row in the files, where that is known.
    """
    together = as_map(found.get("together"))
    disks = [together] if together else as_maps(found.get("disks"))
    each_rate = (as_number(each.get("bytes_per_second")) for each in disks)
    rates = [rate for rate in each_rate if rate is not None]
    if rates and unit == "bytes":
        yield CeilingLine(what="disk, sequential writes", rate=max(rates))
    levels = as_maps(as_map(found.get("source")).get("levels"))
    best = max(
        (rate for each in levels if (rate := as_number(each.get("rows_per_second"))) is not None),
        default=None,
    )
    if best is not None and unit == "rows":
        yield CeilingLine(what="source, rows thrown away", rate=best)
    elif best is not None and unit == "bytes" and row_bytes is not None:
        yield CeilingLine(what="source, rows thrown away", rate=round(best * row_bytes, 1))


def settings_of(document: Mapping[str, Any]) -> Iterator[SweepSetting]:
    """Yield how the points were measured; nothing for points of a file."""
    options = as_map(document.get("options"))
    if not options:
        return
    for key, name in _SETTINGS.items():
        if options.get(key) is not None:
            yield SweepSetting(name=name, value=as_text(options[key]))
    for key, name in (("cores", "cores of the machine"), ("whole_rows", "rows of the table")):
        if as_number(document.get(key)) is not None:
            yield SweepSetting(name=name, value=as_text(document[key]))
