"""How long the run takes on a machine of so many cores, and what limits it there."""

from __future__ import annotations

from unloader.nouns import counted
from unloader.sizing.model import OnCores
from unloader.sizing.sheet import Sheet
from unloader.sizing.work import Level, Work


def time_on_cores(work: Work, sheet: Sheet, assumptions: list[str]) -> OnCores:
    """Return the time on the cores that the question names.

    The level is the fastest that had no more cores. Between two levels the higher one is a limit.
    """
    question = work.question
    cores = question.cores
    assert cores is not None
    within = [each for each in work.levels if each.cores <= cores]
    level = max(within, key=lambda each: each.rate) if within else work.levels[0]
    rate = _scaled(work, level, cores, sheet, assumptions)
    if question.cpu_ratio != 1:
        rate = sheet.times("on the other CPU", rate, question.cpu_ratio, unit="bytes/s")
    others = {}
    if level.cpu_seconds_per_byte:
        others["CPU limit"] = _cpu_rate(work, level.cpu_seconds_per_byte, cores, sheet)
    others |= _other_limits(work, sheet)
    usable = {"cores": rate, **others}
    usable = {name: _usable(work, name, each, sheet) for name, each in usable.items()}
    limit = min(usable, key=lambda name: usable[name])
    seconds = sheet.over("time", work.data, usable[limit], unit="s", note=f"limited by {limit}")
    window = question.window_seconds
    most = max(each.cores for each in work.levels)
    full = min([rate, *others.values()])
    without = work.data / full
    return OnCores(
        cores=cores,
        workers=max(1, round(cores * level.workers / level.cores)),
        seconds=seconds,
        hours=sheet.over("hours", seconds, 3600, unit="h"),
        limited_by=limit,
        seconds_without_discount=sheet.over("time without the discount", work.data, full, unit="s"),
        fits=None if window is None else seconds <= window,
        fits_without_discount=None if window is None else without <= window,
        measured_cores=most if cores > most else None,
    )


def _usable(work: Work, name: str, rate: float, sheet: Sheet) -> float:
    """Return what is reckoned with of a limit; that of the CPU has a margin of its own."""
    if name == "CPU limit":
        return rate
    what = f"{name}, after the discount"
    return sheet.without(what, rate, work.question.discount, unit="bytes/s")


def _scaled(
    work: Work, level: Level, cores: int, sheet: Sheet, assumptions: list[str]
) -> float:  # fmt: skip
    measured = sheet.given(
        f"measured, for {cores} cores",
        level.rate,
        "bytes/s",
        f"{counted(level.workers, 'worker')} on {level.cores:g} "
        f"{'core' if level.cores == 1 else 'cores'}",
    )
    if level.cores == cores:
        return measured
    one = sheet.over("of one core", measured, level.cores, unit="bytes/s")
    rate = sheet.times(f"of {cores} cores", one, cores, unit="bytes/s")
    higher = [each for each in work.levels if each.cores > cores]
    if not higher:
        assumptions.append(
            f"more than {level.cores:g} cores were not measured: each additional core is assumed "
            "to give as much"
        )
    elif level.cores < cores and min(higher, key=lambda each: each.cores).rate < rate:
        above = min(higher, key=lambda each: each.cores)
        rate = sheet.given(
            "but not more than", above.rate, "bytes/s", f"measured on {above.cores:g} cores"
        )
    return rate


def _cpu_rate(work: Work, cost: float, cores: int, sheet: Sheet) -> float:
    """Return the rate at which the cores are as busy as they may be."""
    question = work.question
    there = sheet.over("CPU seconds of a MB", cost * 1e6, question.cpu_ratio, unit="CPU s")
    free = sheet.times("CPU seconds in a second", cores, question.cpu_limit, unit="CPU s")
    return sheet.over("CPU limit", free * 1e6, there, unit="bytes/s")


def _other_limits(work: Work, sheet: Sheet) -> dict[str, float]:
    question = work.question
    found = {}
    if work.source_rate is not None:
        found["source"] = sheet.given(
            "source", work.source_rate, "bytes/s", "the highest measured rate"
        )
    if question.disks is not None and work.disk_rate is not None:
        found["disks"] = sheet.times("disks", question.disks, work.disk_rate, unit="bytes/s")
    if question.network_rate is not None:
        found["network"] = sheet.given("network", question.network_rate, "bytes/s", "one link")
    return found
