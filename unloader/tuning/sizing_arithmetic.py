"""From measurements to the machine that a run needs: pure, without a clock or a file.

The currency is bytes of text before compression: rows of another width take another time. Every
measured rate is multiplied by the ratio of the CPUs and loses the discount. A value is rounded to
six digits immediately, and the next step uses the rounded value: a pocket calculator gives
the same results.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import TypedDict

from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.tuning.sizing_records import (
    Basis,
    CodecSpace,
    Level,
    Measured,
    Needed,
    OnCores,
    Question,
    Sizing,
    Space,
    Step,
    Unknown,
    Work,
)

_DIGITS = 6
_EXACT = 10**15
"""Whole numbers below it are shown and kept digit by digit."""


def rounded(value: float) -> float:
    """Return a value with six digits of it; whole numbers are kept."""
    if value == 0 or (float(value).is_integer() and abs(value) < _EXACT):
        return float(value)
    return float(f"{value:.{_DIGITS}g}")


def shown(value: float) -> str:
    """Return a rounded value with its thousands marked, as formulas have it."""
    value = rounded(value)
    if value.is_integer() and abs(value) < _EXACT:
        return f"{value:,.0f}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 12)}f}".rstrip("0").rstrip(".")


class Sheet:
    """Lines in the order in which they were reckoned."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """All lines."""
        return tuple(self._steps)

    def given(self, what: str, value: float, unit: str, note: str = "") -> float:
        """Add a given or measured value; return it rounded."""
        return self._add(what, "", value, unit, note)

    def times(self, what: str, *factors: float, unit: str, note: str = "") -> float:
        """Multiply."""
        return self._add(what, " x ".join(map(shown, factors)), math.prod(factors), unit, note)

    def over(self, what: str, first: float, *divisors: float, unit: str, note: str = "") -> float:
        """Divide by one number after the other."""
        value = first
        for each in divisors:
            value /= each
        return self._add(what, " / ".join(map(shown, (first, *divisors))), value, unit, note)

    def without(self, what: str, value: float, share: float, *, unit: str) -> float:
        """Take a share off."""
        formula = f"{shown(value)} x (1 - {shown(share)})"
        return self._add(what, formula, value * (1 - share), unit, f"{share:.3g} is the discount")

    def whole(self, what: str, value: float, *, unit: str) -> int:
        """Round up, and write that down where it changes anything."""
        # A whole number that differs only by rounding is not one more.
        found = max(1, math.ceil(value - 1e-9 * abs(value)))
        self._add(what, "", found, unit, f"{shown(value)} rounded up")
        return found

    def _add(self, what: str, formula: str, value: float, unit: str, note: str) -> float:
        value = rounded(value)
        self._steps.append(Step(what=what, formula=formula, value=value, unit=unit, note=note))
        return value


def size(question: Question, basis: Basis) -> Sizing:
    """Return the answer to a question, with every step.

    Raises:
        UsageError: Something is neither given nor known, or no figure can be reckoned with.
    """
    sheet, unknown = Sheet(), list[Unknown]()
    assumptions = list(basis.notes)
    if basis.predicted:
        assumptions.append(
            "no run was measured: rates are the lowest of the rates of source, encoder and cores"
        )
    work = _work(question, basis, sheet, assumptions)
    needed = _needed(work, sheet, assumptions) if work.needed_rate is not None else None
    machine = time_on_cores(work, sheet, assumptions) if question.cores is not None else None
    window = question.window_seconds
    seconds = window if window is not None else machine.seconds if machine else None
    space = spaces_of(work, basis, seconds, sheet, unknown)
    if seconds is not None:
        network = network_needed(work, basis, seconds, sheet, assumptions)
        disks = next((each.disks for each in space if each.codec == "none"), None)
        needed = Needed(
            workers=needed.workers if needed else None,
            cores=needed.cores if needed else None,
            disks=disks,
            **network,
        )
    return Sizing(
        answer=answer_of(work, needed, machine),
        question=question,
        origins=basis.origins,
        steps=sheet.steps,
        needed=needed,
        on_cores=machine,
        space=space,
        assumptions=tuple(dict.fromkeys(assumptions)),
        unknown=tuple(unknown),
    )


def _work(question: Question, basis: Basis, sheet: Sheet, assumptions: list[str]) -> Work:
    rows = question.rows if question.rows is not None else basis.rows
    width = question.row_bytes if question.row_bytes is not None else basis.row_bytes
    if rows is None:
        raise UsageError("the number of rows is not given", "give --rows, such as 10G")
    if width is None:
        raise UsageError(
            "the width of a row as text is not given",
            "give --row-bytes, such as 165, or --from a run to CSV",
        )
    if question.window_seconds is None and question.cores is None:
        raise UsageError(
            "neither a time nor a machine is given",
            "give --window, such as 1h, or --cores, or both",
        )
    if not basis.measured:
        raise UsageError(
            "the speed of an unload is not given",
            "give a manifest, points or ceilings with --from, or use --like record",
        )
    rows = sheet.given("rows", rows, "rows")
    width = sheet.given("row width", width, "bytes")
    data = sheet.times("data", rows, width, unit="bytes")
    rate = None
    if question.window_seconds is not None:
        window = sheet.given("window", question.window_seconds, "s")
        rate = sheet.over("needed rate", data, window, unit="bytes/s")
    levels = _levels(basis.measured, question, rows=rows, width=width, assumptions=assumptions)
    return Work(
        question=question,
        rows=rows,
        data=data,
        needed_rate=rate,
        levels=levels,
        source_rate=(
            None if basis.source_rows_per_second is None else basis.source_rows_per_second * width
        ),
        disk_rate=question.disk_rate if question.disk_rate is not None else basis.disk_rate,
    )


def _levels(
    points: tuple[Measured, ...],
    question: Question,
    *,
    rows: float,
    width: float,
    assumptions: list[str],
) -> tuple[Level, ...]:
    """Return each number of workers once, with its median rate; lowest first."""
    grouped = defaultdict(list)
    for each in points:
        grouped[each.workers].append(each)
        if each.bytes is None:
            what = (
                "how many rows or bytes they read"
                if each.rows is None
                else "how wide the rows were"
            )
            assumptions.append(f"the points do not show {what}: assumed to be as in this question")
    found = []
    for workers in sorted(grouped):
        rates, costs = [], []
        for each in grouped[workers]:
            size = each.bytes or (rows if each.rows is None else each.rows) * width
            rates.append(size / each.seconds)
            if each.cpu_seconds is not None:
                costs.append(each.cpu_seconds / size)
        known = [each.cores for each in grouped[workers] if each.cores is not None]
        cores = known[0] if known else min(workers, question.measured_cores or workers)
        if not known and question.measured_cores is None:
            assumptions.append(
                "one core for each worker, because the number of cores of that machine is unknown"
            )
        found.append(
            Level(
                workers=workers,
                cores=cores,
                rate=median(rates),
                cpu_seconds_per_byte=median(costs) if costs else None,
            )
        )
    return tuple(found)


def _needed(work: Work, sheet: Sheet, assumptions: list[str]) -> Needed:
    """Return workers and cores for the window, by the smallest level that is enough or the best."""
    question = work.question
    assert work.needed_rate is not None
    enough = [each for each in work.levels if work.usable(each) >= work.needed_rate]
    level = enough[0] if enough else max(work.levels, key=lambda each: each.rate)
    rate = sheet.given(
        "measured rate",
        level.rate,
        "bytes/s",
        f"{counted(level.workers, 'worker')} on {level.cores:g} "
        f"{'core' if level.cores == 1 else 'cores'}",
    )
    rate = sheet.over("of one worker", rate, level.workers, unit="bytes/s")
    if question.cpu_ratio != 1:
        rate = sheet.times("on the other CPU", rate, question.cpu_ratio, unit="bytes/s")
    rate = sheet.without("after the discount", rate, question.discount, unit="bytes/s")
    exact = sheet.over("workers", work.needed_rate, rate, unit="workers")
    workers = sheet.whole("workers needed", exact, unit="workers")
    if workers > level.workers:
        assumptions.append(
            f"more than {counted(level.workers, 'worker')} were not measured: each additional "
            "worker is assumed to give as much"
        )
    one = sheet.over("cores of one worker", level.cores, level.workers, unit="cores")
    by_workers = sheet.times("cores for them", workers, one, unit="cores")
    cores = sheet.whole("cores needed", by_workers, unit="cores")
    if level.cpu_seconds_per_byte is not None:
        cores = max(cores, _cores_by_cpu(work, level.cpu_seconds_per_byte, sheet))
    return Needed(workers=workers, cores=cores)


def _cores_by_cpu(work: Work, cost: float, sheet: Sheet) -> int:
    question = work.question
    assert question.window_seconds is not None
    millions = sheet.over("data in MB", work.data, 1e6, unit="MB")
    each = sheet.given("CPU seconds of a MB", cost * 1e6, "CPU s", "as measured")
    used = sheet.times("CPU seconds", millions, each, unit="CPU s")
    used = sheet.over("CPU seconds there", used, question.cpu_ratio, unit="CPU s")
    most = sheet.times(
        "CPU seconds of a core", question.window_seconds, question.cpu_limit, unit="CPU s"
    )
    exact = sheet.over("cores by CPU time", used, most, unit="cores")
    return sheet.whole("cores needed by CPU time", exact, unit="cores")


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
    """Return the usable rate of a limit; the limit of the CPU includes its margin."""
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


_PLAIN = CodecSpace(
    format="csv", codec="none", row_bytes=None, ratio=1.0, bytes_per_cpu_second=None
)


class NetworkNeeded(TypedDict):
    """The fields of `Needed` that are about the network."""

    network_bytes_per_second: float
    network_gigabits_per_second: float
    network_links: int | None


def spaces_of(
    work: Work, basis: Basis, seconds: float | None, sheet: Sheet, unknown: list[Unknown]
) -> tuple[Space, ...]:
    """Return the space of the output in each known format and codec, plain text first."""
    known = {(each.format, each.codec): each for each in (_PLAIN, *basis.spaces)}
    if len(known) == 1:
        unknown.append(
            Unknown(what="other codecs", reason="give ceilings of these rows with --from")
        )
    disk_rate = None
    if work.disk_rate is None:
        unknown.append(
            Unknown(what="disks", reason="give --disk-rate, or ceilings with --from")
        )  # fmt: skip
    else:
        given = sheet.given("one disk", work.disk_rate, "bytes/s")
        disk_rate = sheet.without(
            "one disk, after the discount", given, work.question.discount, unit="bytes/s"
        )
    return tuple(_space(work, each, seconds, disk_rate, sheet) for each in known.values())


def _space(
    work: Work, codec: CodecSpace, seconds: float | None, disk_rate: float | None, sheet: Sheet
) -> Space:
    name = f"{codec.format} {codec.codec}"
    size = work.data if codec.row_bytes is None else rounded(work.rows * codec.row_bytes)
    if codec.row_bytes is not None:
        size = sheet.times(f"{name}, before the codec", work.rows, codec.row_bytes, unit="bytes")
    if codec.ratio != 1:
        small = sheet.over(f"{name}, space", size, codec.ratio, unit="bytes")
    else:
        small = size
    rate = disks = extra = None
    if seconds is not None:
        rate = sheet.over(f"{name}, rate", small, seconds, unit="bytes/s")
        if disk_rate is not None:
            exact = sheet.over(f"{name}, disks", rate, disk_rate, unit="disks")
            disks = sheet.whole(f"{name}, disks needed", exact, unit="disks")
        if codec.bytes_per_cpu_second is not None:
            question = work.question
            extra = sheet.over(
                f"{name}, cores to compress",
                size, codec.bytes_per_cpu_second, question.cpu_ratio, seconds, question.cpu_limit,
                unit="cores",
            )  # fmt: skip
        elif codec.codec == "none":
            extra = 0.0
    return Space(
        format=codec.format,
        codec=codec.codec,
        bytes=small,
        bytes_per_second=rate,
        disks=disks,
        extra_cores=extra,
    )


def network_needed(
    work: Work, basis: Basis, seconds: float, sheet: Sheet, assumptions: list[str]
) -> NetworkNeeded:
    """Return the network that the connections to the source need."""
    if basis.network_row_bytes is not None:
        size = sheet.times(
            "over the network", work.rows, basis.network_row_bytes, unit="bytes",
            note="as measured for a row",
        )  # fmt: skip
    else:
        size = sheet.given(
            "over the network", work.data, "bytes", "assumed to be as large as the text"
        )
        assumptions.append(
            "the size of a row on the network was not measured: assumed to be as large as the text"
        )
    rate = sheet.over("network rate", size, seconds, unit="bytes/s")
    gigabits = sheet.over("network rate", rate * 8, 1e9, unit="Gbit/s")
    links = None
    if work.question.network_rate is not None:
        usable = sheet.without(
            "one link, after the discount",
            work.question.network_rate,
            work.question.discount,
            unit="bytes/s",
        )
        exact = sheet.over("links", rate, usable, unit="links")
        links = sheet.whole("links needed", exact, unit="links")
    return NetworkNeeded(
        network_bytes_per_second=rate, network_gigabits_per_second=gigabits, network_links=links
    )


def answer_of(work: Work, needed: Needed | None, machine: OnCores | None) -> str:
    """Return the answer in sentences: whether it fits, its time, and its machine."""
    question = work.question
    window = question.window_seconds
    off = f"with a discount of {question.discount * 100:g} % on the measured rates"
    what = f"{shown(work.rows)} rows, {shown(work.data)} bytes"
    parts: list[str] = []
    if machine is not None:
        parts += _on_cores(what, off, machine, question.window_seconds)
    if needed is not None and needed.workers is not None and needed.cores is not None:
        workers = counted(needed.workers, "worker")
        measured = max(each.workers for each in work.levels)
        likewise = ", if each additional worker gives as much" if needed.workers > measured else ""
        parts.append(
            f"The window of {duration(window)} needs {workers} on {counted(needed.cores, 'core')} "
            f"{off}{likewise}."
        )
    if work.source_rate is not None and work.needed_rate is not None:
        most = work.source_rate * (1 - question.discount)
        if most < work.needed_rate:
            parts.append(
                f"The source gave at most {shown(work.source_rate)} bytes/s with any number of "
                "workers, so more cores do not help."
            )
    return " ".join(parts)


def _on_cores(what: str, off: str, machine: OnCores, window: float | None) -> Iterator[str]:
    """Yield the sentences on the machine that is asked about."""
    took = f"{what} take {duration(machine.seconds)} on {counted(machine.cores, 'core')} {off}"
    if machine.fits is None:
        yield f"{took}."
    elif not machine.fits:
        yield f"No: {took}; the window is {duration(window)}."
        full = duration(machine.seconds_without_discount)
        fits = "which fits" if machine.fits_without_discount else "which does not fit either"
        yield f"Without the discount it is {full}, {fits}."
    elif machine.measured_cores is not None:
        yield f"Perhaps: {took}; the window is {duration(window)}."
    else:
        yield f"Yes: {took}; the window is {duration(window)}."
    if machine.measured_cores is not None:
        yield (
            "This assumes that each additional core gives as much as each of the "
            f"{machine.measured_cores:g} measured cores. To find out, measure with more workers."
        )
    yield f"The limit is then: {machine.limited_by}."


def duration(seconds: float | None) -> str:
    """Return a time as people say it."""
    if seconds is None:
        return "no time"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count)
