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

from msgspec import Struct

from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.tuning.points import Point

_DIGITS = 6
_EXACT = 10**15
"""Whole numbers below it are shown and kept digit by digit."""


class Question(Struct, frozen=True, kw_only=True):
    """A table, a night and a machine."""

    rows: float | None = None
    """None takes the rows of the measurements."""
    row_bytes: float | None = None
    """Of the text of one row; None as above."""
    window_seconds: float | None = None
    cores: int | None = None
    """Of the machine that is asked about."""
    disks: int | None = None
    """That the output is spread over."""
    cpu_ratio: float = 1.0
    """Benchmark score of one core there, divided by the score of a measuring core."""
    discount: float = 0.2
    """Share that is taken off every measured rate."""
    cpu_limit: float = 0.75
    """Share of the cores' time that may be used."""
    disk_rate: float | None = None
    """Bytes a second of one disk; None takes the measured rate."""
    network_rate: float | None = None
    """Bytes a second of one network link."""
    measured_cores: int | None = None
    """Cores of the machine that measured, where its figures do not say."""


class CodecSpace(Struct, frozen=True, kw_only=True):
    """What a format and a codec make of rows."""

    format: str = "csv"
    codec: str = "none"
    row_bytes: float | None = None
    """Before compression; None takes the width of the question."""
    ratio: float = 1.0
    bytes_per_cpu_second: float | None = None
    """None where nothing is compressed, or that was not measured."""


class Basis(Struct, frozen=True, kw_only=True):
    """The measurements of one file or several."""

    origins: tuple[str, ...] = ()
    measured: tuple[Point, ...] = ()
    """Bytes are of text before compression, and cores are of the workers."""
    predicted: bool = False
    """The points were made of ceilings: no run has been measured."""
    rows: float | None = None
    row_bytes: float | None = None
    disk_rate: float | None = None
    source_rows_per_second: float | None = None
    """The most that the source gave; None where more workers still got more."""
    network_row_bytes: float | None = None
    """Received for one row."""
    spaces: tuple[CodecSpace, ...] = ()
    notes: tuple[str, ...] = ()


class Step(Struct, frozen=True, kw_only=True):
    """One line of the arithmetic; the value is the result of the formula, to six digits."""

    what: str
    formula: str
    """Numbers, `x`, `/`, `+`, `-` and brackets; empty for a given value."""
    value: float
    unit: str
    note: str = ""


class Space(Struct, frozen=True, kw_only=True):
    """The space of the output in one format and codec."""

    format: str
    codec: str
    bytes: float
    bytes_per_second: float | None
    """Into the window, or into the time that the run takes."""
    disks: int | None
    extra_cores: float | None
    """For compressing, at the limit of the CPU; None where that was not measured."""


class Needed(Struct, frozen=True, kw_only=True):
    """The machine that the window needs; None where that is unknown."""

    workers: int | None = None
    cores: int | None = None
    disks: int | None = None
    network_bytes_per_second: float | None = None
    network_links: int | None = None


class OnCores(Struct, frozen=True, kw_only=True):
    """How long the run takes on the machine that is asked about."""

    cores: int
    workers: int
    seconds: float
    limited_by: str
    seconds_without_discount: float
    fits: bool | None
    """None without a window."""
    fits_without_discount: bool | None
    measured_cores: float | None
    """Set where more cores are asked about than any level had: the most that were measured."""


class Unknown(Struct, frozen=True, kw_only=True):
    """A figure without a value, and why."""

    what: str
    reason: str


class Sizing(Struct, frozen=True, kw_only=True):
    """The answer, and how it came about."""

    answer: str
    question: Question
    origins: tuple[str, ...]
    steps: tuple[Step, ...]
    needed: Needed | None
    on_cores: OnCores | None
    space: tuple[Space, ...]
    assumptions: tuple[str, ...]
    unknown: tuple[Unknown, ...]


class _Level(Struct, frozen=True, kw_only=True):
    """The median rate of a number of workers."""

    workers: int
    cores: float
    rate: float
    """Bytes of text a second."""
    cpu_seconds_per_byte: float | None

    @property
    def note(self) -> str:
        cores = "core" if self.cores == 1 else "cores"
        return f"{counted(self.workers, 'worker')} on {self.cores:g} {cores}"


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


class Reckoning:
    """A sheet with the lines in the order in which they were reckoned."""

    def __init__(self, question: Question, basis: Basis) -> None:
        """Begin the sheet; a figure that is neither given nor known is a `UsageError`."""
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
                "give a manifest, points or ceilings with --from",
            )
        self.question = question
        self.basis = basis
        self.steps: list[Step] = []
        self.assumptions = list(basis.notes)
        self.unknown: list[Unknown] = []
        if basis.predicted:
            self.assumptions.append(
                "no run was measured: rates are the lowest of the rates of source, encoder and "
                "cores"
            )
        self.rows = self.given("rows", rows, "rows")
        self.width = self.given("row width", width, "bytes")
        self.data = self.times("data", self.rows, self.width, unit="bytes")
        self.needed_rate: float | None = None
        if question.window_seconds is not None:
            window = self.given("window", question.window_seconds, "s")
            self.needed_rate = self.over("needed rate", self.data, window, unit="bytes/s")
        self.levels = self.measured_levels()
        """Lowest parallelism first."""
        of_source = basis.source_rows_per_second
        self.source_rate = None if of_source is None else of_source * self.width
        self.disk_rate = question.disk_rate if question.disk_rate is not None else basis.disk_rate

    def given(self, what: str, value: float, unit: str, note: str = "", formula: str = "") -> float:
        """Add a line; return its value rounded."""
        value = rounded(value)
        self.steps.append(Step(what=what, formula=formula, value=value, unit=unit, note=note))
        return value

    def times(self, what: str, *factors: float, unit: str, note: str = "") -> float:
        return self.given(what, math.prod(factors), unit, note, " x ".join(map(shown, factors)))

    def over(self, what: str, first: float, *divisors: float, unit: str, note: str = "") -> float:
        value = first
        for each in divisors:
            value /= each
        return self.given(what, value, unit, note, " / ".join(map(shown, (first, *divisors))))

    def without(self, what: str, value: float) -> float:
        """Take the discount off a rate."""
        share = self.question.discount
        formula = f"{shown(value)} x (1 - {shown(share)})"
        return self.given(
            what, value * (1 - share), "bytes/s", f"{share:.3g} is the discount", formula
        )

    def whole(self, what: str, value: float, unit: str) -> int:
        """Round up, and write that down."""
        # A whole number that differs only by rounding is not one more.
        found = max(1, math.ceil(value - 1e-9 * abs(value)))
        self.given(what, found, unit, f"{shown(value)} rounded up")
        return found

    def run(self) -> Sizing:
        question = self.question
        needed = self.machine_for_window() if self.needed_rate is not None else None
        there = self.time_on(question.cores) if question.cores is not None else None
        seconds = question.window_seconds
        if seconds is None and there is not None:
            seconds = there.seconds
        space = self.space(seconds)
        if seconds is not None:
            rate, links = self.network(seconds)
            needed = Needed(
                workers=needed.workers if needed else None,
                cores=needed.cores if needed else None,
                disks=next((each.disks for each in space if each.codec == "none"), None),
                network_bytes_per_second=rate,
                network_links=links,
            )
        return Sizing(
            answer=" ".join(self.answer(needed, there)),
            question=question,
            origins=self.basis.origins,
            steps=tuple(self.steps),
            needed=needed,
            on_cores=there,
            space=space,
            assumptions=tuple(dict.fromkeys(self.assumptions)),
            unknown=tuple(self.unknown),
        )

    def measured_levels(self) -> list[_Level]:
        grouped, found = defaultdict[int, list[Point]](list), []
        for each in self.basis.measured:
            grouped[each.parallelism].append(each)
            if each.bytes is None:
                what = "how wide the rows were"
                if each.rows is None:
                    what = "how many rows or bytes they read"
                self.assumptions.append(
                    f"the points do not show {what}: assumed to be as in this question"
                )
        for workers, points in sorted(grouped.items()):
            sizes = [each.bytes or (each.rows or self.rows) * self.width for each in points]
            sized = list(zip(points, sizes, strict=True))
            costs = [e.cpu_seconds / size for e, size in sized if e.cpu_seconds is not None]
            cores = next((each.cores for each in points if each.cores is not None), None)
            if cores is None:
                cores = min(workers, self.question.measured_cores or workers)
                if self.question.measured_cores is None:
                    self.assumptions.append(
                        "one core for each worker, because the number of cores of that machine is "
                        "unknown"
                    )
            found.append(
                _Level(
                    workers=workers,
                    cores=cores,
                    rate=median(size / each.seconds for each, size in sized),
                    cpu_seconds_per_byte=median(costs) if costs else None,
                )
            )
        return found

    def machine_for_window(self) -> Needed:
        """Return workers and cores, by the smallest level that is enough or the best."""
        question, window = self.question, self.question.window_seconds
        assert self.needed_rate is not None
        assert window is not None
        usable = question.cpu_ratio * (1 - question.discount)
        enough = [each for each in self.levels if each.rate * usable >= self.needed_rate]
        level = enough[0] if enough else max(self.levels, key=lambda each: each.rate)
        rate = self.given("measured rate", level.rate, "bytes/s", level.note)
        rate = self.over("of one worker", rate, level.workers, unit="bytes/s")
        if question.cpu_ratio != 1:
            rate = self.times("on the other CPU", rate, question.cpu_ratio, unit="bytes/s")
        rate = self.without("after the discount", rate)
        exact = self.over("workers", self.needed_rate, rate, unit="workers")
        workers = self.whole("workers needed", exact, "workers")
        if workers > level.workers:
            self.assumptions.append(
                f"more than {counted(level.workers, 'worker')} were not measured: each additional "
                "worker is assumed to give as much"
            )
        one = self.over("cores of one worker", level.cores, level.workers, unit="cores")
        exact = self.times("cores for them", workers, one, unit="cores")
        cores = self.whole("cores needed", exact, "cores")
        cost = level.cpu_seconds_per_byte
        if cost is not None:
            millions = self.over("data in MB", self.data, 1e6, unit="MB")
            each = self.given("CPU seconds of a MB", cost * 1e6, "CPU s", "as measured")
            used = self.times("CPU seconds", millions, each, unit="CPU s")
            used = self.over("CPU seconds there", used, question.cpu_ratio, unit="CPU s")
            most = self.times("CPU seconds of a core", window, question.cpu_limit, unit="CPU s")
            exact = self.over("cores by CPU time", used, most, unit="cores")
            cores = max(cores, self.whole("cores needed by CPU time", exact, "cores"))
        return Needed(workers=workers, cores=cores)

    def time_on(self, cores: int) -> OnCores:
        """Return the time by the fastest level without more cores; the next level is a limit."""
        question, window = self.question, self.question.window_seconds
        within = [each for each in self.levels if each.cores <= cores]
        level = max(within, key=lambda each: each.rate) if within else self.levels[0]
        rate = self.scaled(level, cores)
        if question.cpu_ratio != 1:
            rate = self.times("on the other CPU", rate, question.cpu_ratio, unit="bytes/s")
        limits = {"cores": rate}
        if level.cpu_seconds_per_byte:
            # The rate at which the cores are as busy as they may be.
            cost = level.cpu_seconds_per_byte * 1e6
            there = self.over("CPU seconds of a MB", cost, question.cpu_ratio, unit="CPU s")
            free = self.times("CPU seconds in a second", cores, question.cpu_limit, unit="CPU s")
            limits["CPU limit"] = self.over("CPU limit", free * 1e6, there, unit="bytes/s")
        if self.source_rate is not None:
            limits["source"] = self.given(
                "source", self.source_rate, "bytes/s", "the highest measured rate"
            )
        if question.disks is not None and self.disk_rate is not None:
            limits["disks"] = self.times("disks", question.disks, self.disk_rate, unit="bytes/s")
        if question.network_rate is not None:
            limits["network"] = self.given("network", question.network_rate, "bytes/s", "one link")
        # The limit of the CPU includes its margin.
        usable = {
            name: each if name == "CPU limit" else self.without(f"{name}, after the discount", each)
            for name, each in limits.items()
        }
        limit = min(usable, key=lambda name: usable[name])
        seconds = self.over("time", self.data, usable[limit], unit="s", note=f"limited by {limit}")
        most = max(each.cores for each in self.levels)
        full = min(limits.values())
        return OnCores(
            cores=cores,
            workers=max(1, round(cores * level.workers / level.cores)),
            seconds=seconds,
            limited_by=limit,
            seconds_without_discount=self.over(
                "time without the discount", self.data, full, unit="s"
            ),
            fits=None if window is None else seconds <= window,
            fits_without_discount=None if window is None else self.data / full <= window,
            measured_cores=most if cores > most else None,
        )

    def scaled(self, level: _Level, cores: int) -> float:
        rate = self.given(f"measured, for {cores} cores", level.rate, "bytes/s", level.note)
        if level.cores == cores:
            return rate
        one = self.over("of one core", rate, level.cores, unit="bytes/s")
        rate = self.times(f"of {cores} cores", one, cores, unit="bytes/s")
        higher = [each for each in self.levels if each.cores > cores]
        if not higher:
            self.assumptions.append(
                f"more than {level.cores:g} cores were not measured: each additional core is "
                "assumed to give as much"
            )
            return rate
        above = min(higher, key=lambda each: each.cores)
        if level.cores < cores and above.rate < rate:
            note = f"measured on {above.cores:g} cores"
            rate = self.given("but not more than", above.rate, "bytes/s", note)
        return rate

    def space(self, seconds: float | None) -> tuple[Space, ...]:
        """Return the space of the output in each known format and codec, plain text first."""
        question = self.question
        known = {(each.format, each.codec): each for each in (CodecSpace(), *self.basis.spaces)}
        if len(known) == 1:
            reason = "give ceilings of these rows with --from"
            self.unknown.append(Unknown(what="other codecs", reason=reason))
        disk_rate = None
        if self.disk_rate is None:
            reason = "give --disk-rate, or ceilings with --from"
            self.unknown.append(Unknown(what="disks", reason=reason))
        else:
            disk_rate = self.given("one disk", self.disk_rate, "bytes/s")
            disk_rate = self.without("one disk, after the discount", disk_rate)
        found = []
        for codec in known.values():
            name, width = f"{codec.format} {codec.codec}", codec.row_bytes
            small = size = self.data
            if width is not None:
                what = f"{name}, before the codec"
                small = size = self.times(what, self.rows, width, unit="bytes")
            if codec.ratio != 1:
                small = self.over(f"{name}, space", size, codec.ratio, unit="bytes")
            rate = disks = extra = None
            if seconds is not None:
                rate = self.over(f"{name}, rate", small, seconds, unit="bytes/s")
                if disk_rate is not None:
                    exact = self.over(f"{name}, disks", rate, disk_rate, unit="disks")
                    disks = self.whole(f"{name}, disks needed", exact, "disks")
                speed = codec.bytes_per_cpu_second
                if speed is not None:
                    divisors = (speed, question.cpu_ratio, seconds, question.cpu_limit)
                    extra = self.over(f"{name}, cores to compress", size, *divisors, unit="cores")
                elif codec.codec == "none":
                    extra = 0.0
            found.append(
                Space(
                    format=codec.format,
                    codec=codec.codec,
                    bytes=small,
                    bytes_per_second=rate,
                    disks=disks,
                    extra_cores=extra,
                )
            )
        return tuple(found)

    def network(self, seconds: float) -> tuple[float, int | None]:
        """Return the bytes a second of the connections to the source, and the links."""
        what, width = "over the network", self.basis.network_row_bytes
        if width is not None:
            size = self.times(what, self.rows, width, unit="bytes", note="as measured for a row")
        else:
            size = self.given(what, self.data, "bytes", "assumed to be as large as the text")
            self.assumptions.append(
                "the size of a row on the network was not measured: assumed to be as large as the "
                "text"
            )
        rate = self.over("network rate", size, seconds, unit="bytes/s")
        link = self.question.network_rate
        if link is None:
            return rate, None
        usable = self.without("one link, after the discount", link)
        exact = self.over("links", rate, usable, unit="links")
        return rate, self.whole("links needed", exact, "links")

    def answer(self, needed: Needed | None, there: OnCores | None) -> Iterator[str]:
        """Yield the answer in sentences: whether it fits, its time, and its machine."""
        window = self.question.window_seconds
        off = f"with a discount of {self.question.discount * 100:g} % on the measured rates"
        if there is not None:
            took = (
                f"{shown(self.rows)} rows, {shown(self.data)} bytes take "
                f"{_duration(there.seconds)} on {counted(there.cores, 'core')} {off}"
            )
            if window is None:
                yield f"{took}."
            else:
                word = "Yes" if there.measured_cores is None else "Perhaps"
                word = word if there.fits else "No"
                yield f"{word}: {took}; the window is {_duration(window)}."
            if there.fits is False:
                full = _duration(there.seconds_without_discount)
                fits = "which fits" if there.fits_without_discount else "which does not fit either"
                yield f"Without the discount it is {full}, {fits}."
            if there.measured_cores is not None:
                yield (
                    "This assumes that each additional core gives as much as each of the "
                    f"{there.measured_cores:g} measured cores. To find out, measure with more "
                    "workers."
                )
            yield f"The limit is then: {there.limited_by}."
        if window is not None and needed is not None and needed.workers is not None:
            most = max(each.workers for each in self.levels)
            likewise = ", if each additional worker gives as much" if needed.workers > most else ""
            yield (
                f"The window of {_duration(window)} needs {counted(needed.workers, 'worker')} on "
                f"{counted(needed.cores, 'core')} {off}{likewise}."
            )
        if self.source_rate is not None and self.needed_rate is not None:
            usable = self.source_rate * (1 - self.question.discount)
            if usable < self.needed_rate:
                yield (
                    f"The source gave at most {shown(self.source_rate)} bytes/s with any number of "
                    "workers, so more cores do not help."
                )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count)
