"""From measurements to the machine that a run needs: pure, without a clock or a file.

The currency is bytes of text before compression: rows of another width take another time. Every
measured rate is multiplied by the ratio of the CPUs and loses the discount. `docs/sizing.md` has
the formulas.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from msgspec import Struct

from unloader.errors import UsageError
from unloader.nouns import bytes_per_second, counted, rows_per_second
from unloader.tuning.points import Point


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
    spaces: tuple[CodecSpace, ...] = ()
    notes: tuple[str, ...] = ()


class Space(Struct, frozen=True, kw_only=True):
    """The space of the output in one format and codec."""

    format: str
    codec: str
    bytes: float
    disks: int | None
    """To write it in the window, or in the time that the run takes."""
    extra_cores: float | None
    """For compressing, at the limit of the CPU; None where that was not measured."""


class Needed(Struct, frozen=True, kw_only=True):
    """The machine that the window needs; None where that is unknown."""

    workers: int | None
    cores: int | None


class OnCores(Struct, frozen=True, kw_only=True):
    """How long the run takes on the machine that is asked about."""

    workers: int
    rows_per_second: float
    seconds: float
    limited_by: str
    limits: dict[str, float]
    """Bytes of text a second that each part allows, after the discount."""
    fits: bool | None
    """None without a window."""
    measured_cores: float | None
    """Set where more cores are asked about than any level had: the most that were measured."""


class Sizing(Struct, frozen=True, kw_only=True):
    """The answer, and its basis."""

    answer: str
    origins: tuple[str, ...]
    needed: Needed
    on_cores: OnCores | None
    space: tuple[Space, ...]
    assumptions: tuple[str, ...]


class _Level(Struct, frozen=True, kw_only=True):
    """The median rate of a number of workers."""

    workers: int
    cores: float
    rate: float
    """Bytes of text a second."""
    cpu_seconds_per_byte: float | None


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _whole(value: float) -> int:
    # A whole number that differs only by rounding is not one more.
    return max(1, math.ceil(value - 1e-9 * abs(value)))


class Reckoning:
    """The calculation for one question."""

    def __init__(self, question: Question, basis: Basis) -> None:
        """Check the question; a figure that is neither given nor known is a `UsageError`."""
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
        self.question, self.basis = question, basis
        self.kept = 1 - question.discount
        self.rows, self.width, self.data = rows, width, rows * width
        self.assumptions = list(basis.notes)
        if basis.predicted:
            self.assumptions.append(
                "no run was measured: rates are the lowest of the rates of source, encoder and "
                "cores"
            )
        self.levels = self.measured_levels()
        """Lowest parallelism first."""
        of_source = basis.source_rows_per_second
        self.source_rate = None if of_source is None else of_source * width

    def run(self) -> Sizing:
        question, window = self.question, self.question.window_seconds
        there = self.time_on(question.cores) if question.cores is not None else None
        workers, cores = (None, None) if window is None else self.machine_for(window)
        seconds = window
        if seconds is None:
            assert there is not None
            seconds = there.seconds
        needed = Needed(workers=workers, cores=cores)
        space = tuple(self.space(seconds))
        return Sizing(
            answer=" ".join(self.answer(needed, there)),
            origins=self.basis.origins,
            needed=needed,
            on_cores=there,
            space=space,
            assumptions=tuple(dict.fromkeys(self.assumptions)),
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

    def machine_for(self, window: float) -> tuple[int, int]:
        """Return workers and cores, by the smallest level that is enough or the best."""
        question, needed_rate = self.question, self.data / window
        usable = question.cpu_ratio * self.kept
        enough = [each for each in self.levels if each.rate * usable >= needed_rate]
        level = enough[0] if enough else max(self.levels, key=lambda each: each.rate)
        workers = _whole(needed_rate / (level.rate / level.workers * usable))
        if workers > level.workers:
            self.assumptions.append(
                f"more than {counted(level.workers, 'worker')} were not measured: each additional "
                "worker is assumed to give as much"
            )
        cores = _whole(workers * level.cores / level.workers)
        if level.cpu_seconds_per_byte is not None:
            used = self.data * level.cpu_seconds_per_byte / question.cpu_ratio
            cores = max(cores, _whole(used / (window * question.cpu_limit)))
        return workers, cores

    def time_on(self, cores: int) -> OnCores:
        """Return the time by the fastest level without more cores; the next level is a limit."""
        question, window, ratio = (
            self.question,
            self.question.window_seconds,
            self.question.cpu_ratio,
        )
        within = [each for each in self.levels if each.cores <= cores]
        level = max(within, key=lambda each: each.rate) if within else self.levels[0]
        rate = level.rate * cores / level.cores
        if level.cores < cores:
            higher = [each for each in self.levels if each.cores > cores]
            if higher:
                rate = min(rate, min(higher, key=lambda each: each.cores).rate)
            else:
                self.assumptions.append(
                    f"more than {level.cores:g} cores were not measured: each additional core is "
                    "assumed to give as much"
                )
        limits = {"cores": rate * ratio * self.kept}
        if level.cpu_seconds_per_byte:
            # The rate at which the cores are as busy as they may be. It includes its margin.
            limits["CPU limit"] = cores * question.cpu_limit * ratio / level.cpu_seconds_per_byte
        if self.source_rate is not None:
            limits["source"] = self.source_rate * self.kept
        disk_rate = self.disk_rate()
        if question.disks is not None and disk_rate is not None:
            limits["disks"] = question.disks * disk_rate * self.kept
        limit = min(limits, key=lambda name: limits[name])
        seconds = _digits(self.data / limits[limit])
        most = max(each.cores for each in self.levels)
        return OnCores(
            workers=max(1, round(cores * level.workers / level.cores)),
            rows_per_second=_digits(limits[limit] / self.width),
            seconds=seconds,
            limited_by=limit,
            limits={name: _digits(each) for name, each in limits.items()},
            fits=None if window is None else seconds <= window,
            measured_cores=most if cores > most else None,
        )

    def disk_rate(self) -> float | None:
        given = self.question.disk_rate
        return given if given is not None else self.basis.disk_rate

    def space(self, seconds: float) -> Iterator[Space]:
        """Yield the space of the output in each known format and codec, plain text first."""
        question, disk_rate = self.question, self.disk_rate()
        known = {(each.format, each.codec): each for each in (CodecSpace(), *self.basis.spaces)}
        if len(known) == 1:
            self.assumptions.append(
                "other codecs are unknown: give ceilings of these rows with --from"
            )
        if disk_rate is None:
            self.assumptions.append(
                "the speed of a disk is unknown: give --disk-rate, or ceilings with --from"
            )
        for codec in known.values():
            size = self.rows * (self.width if codec.row_bytes is None else codec.row_bytes)
            small, speed = size / codec.ratio, codec.bytes_per_cpu_second
            extra = 0.0 if codec.codec == "none" else None
            if speed is not None:
                usable = speed * question.cpu_ratio * question.cpu_limit
                extra = _digits(size / usable / seconds)
            disks = None if disk_rate is None else _whole(small / seconds / disk_rate / self.kept)
            yield Space(
                format=codec.format,
                codec=codec.codec,
                bytes=_digits(small),
                disks=disks,
                extra_cores=extra,
            )

    def answer(self, needed: Needed, there: OnCores | None) -> Iterator[str]:
        """Yield the answer in sentences: whether it fits, its time, and its machine."""
        question, window = self.question, self.question.window_seconds
        off = f"with a discount of {question.discount * 100:g} % on the measured rates"
        if there is not None:
            took = (
                f"{self.rows:,.0f} rows, {self.data:,.0f} bytes take {_duration(there.seconds)} on "
                f"{counted(question.cores, 'core')} {off}"
            )
            if window is None:
                yield f"{took}."
            else:
                word = "Yes" if there.measured_cores is None else "Perhaps"
                word = word if there.fits else "No"
                yield f"{word}: {took}; the window is {_duration(window)}."
            if there.measured_cores is not None:
                yield (
                    "This assumes that each additional core gives as much as each of the "
                    f"{there.measured_cores:g} measured cores. To find out, measure with more "
                    "workers."
                )
            speed = rows_per_second(there.rows_per_second)
            yield f"The speed is {speed}, limited by: {there.limited_by}."
        if window is not None and needed.workers is not None:
            most = max(each.workers for each in self.levels)
            if_linear = ", if each additional worker gives as much" if needed.workers > most else ""
            yield (
                f"The window of {_duration(window)} needs {counted(needed.workers, 'worker')} on "
                f"{counted(needed.cores, 'core')} {off}{if_linear}."
            )
            if self.source_rate is not None and self.source_rate * self.kept < self.data / window:
                yield (
                    f"The source gave at most {bytes_per_second(self.source_rate)} with any number "
                    "of workers, so more cores do not help."
                )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count)
