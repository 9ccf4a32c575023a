"""The records of a sizing: the question, the measurements, and each step of the arithmetic."""

from __future__ import annotations

from msgspec import Struct


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


class Measured(Struct, frozen=True, kw_only=True):
    """One run, or one point of a sweep."""

    workers: int
    seconds: float
    rows: float | None = None
    bytes: float | None = None
    """Of text before compression."""
    cores: float | None = None
    """Cores of the workers; None if unknown."""
    cpu_seconds: float | None = None


class CodecSpace(Struct, frozen=True, kw_only=True):
    """What a format and a codec make of rows."""

    format: str
    codec: str
    row_bytes: float | None
    """Before compression; None takes the width of the question."""
    ratio: float
    bytes_per_cpu_second: float | None
    """None where nothing is compressed, or that was not measured."""


class Basis(Struct, frozen=True, kw_only=True):
    """The measurements of one file or several."""

    origins: tuple[str, ...]
    measured: tuple[Measured, ...] = ()
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
    network_gigabits_per_second: float | None = None
    network_links: int | None = None


class OnCores(Struct, frozen=True, kw_only=True):
    """How long the run takes on the machine that is asked about."""

    cores: int
    workers: int
    seconds: float
    hours: float
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


class Level(Struct, frozen=True, kw_only=True):
    """The rate of a number of workers."""

    workers: int
    cores: float
    rate: float
    """Bytes of text a second."""
    cpu_seconds_per_byte: float | None


class Work(Struct, frozen=True, kw_only=True):
    """A question that can be reckoned with."""

    question: Question
    rows: float
    data: float
    """Bytes of text."""
    needed_rate: float | None
    """Bytes a second; None without a window."""
    levels: tuple[Level, ...]
    """Lowest parallelism first."""
    source_rate: float | None
    """The most that the source gave, in bytes of text a second."""
    disk_rate: float | None
    """Of one disk."""

    def usable(self, level: Level) -> float:
        """Return the rate of a level that the arithmetic uses."""
        return level.rate * self.question.cpu_ratio * (1 - self.question.discount)
