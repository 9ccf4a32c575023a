"""The report of a sweep as plain data: what its page shows, and what the page carries as JSON.

It is made of the document that `unloader sweep --json` writes. A figure that nobody measured is
None, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from unloader import json_fields
from unloader.report.model import Bar

FORMAT_VERSION: Literal[1] = 1

State = Literal["sustained", "valid", "not sustained", "not valid", "outlier", "failed"]
"""Of a level, by the rules; `valid` is where nobody knows whether it can be sustained."""


class LevelLine(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism, or of one point where settings vary, too."""

    parallelism: int
    series: str
    """The other settings; empty where parallelism alone varies."""
    seconds: float | None
    rate: float | None
    """In the unit of the sweep, per second."""
    lowest_rate: float | None
    highest_rate: float | None
    repeats: int
    cpu: float | None
    state: State
    reasons: str
    """Why it is not valid, cannot be sustained or is an outlier."""


class CurvePoint(Struct, frozen=True, kw_only=True):
    """The fitted curve, or a prediction, at one parallelism."""

    parallelism: float
    seconds: float | None
    low: float | None
    high: float | None
    """The interval of the seconds."""
    rate: float | None
    lowest_rate: float | None
    highest_rate: float | None
    reason: str = ""
    """Why there is no prediction."""


class KneeLine(Struct, frozen=True, kw_only=True):
    """Where another worker brings less than half of what the first one brought."""

    parallelism: float | None
    low: float | None
    high: float | None
    method: str
    note: str


class ChoiceLine(Struct, frozen=True, kw_only=True):
    """A level to use."""

    what: Literal["recommended", "sustained", "production"]
    parallelism: int
    seconds: float | None
    text: str


class CeilingLine(Struct, frozen=True, kw_only=True):
    """What a part of the way can do at most, in the unit of the sweep."""

    what: str
    rate: float


class SweepSetting(Struct, frozen=True, kw_only=True):
    """How points were measured, or what of."""

    name: str
    value: str


class PointLine(Struct, frozen=True, kw_only=True):
    """What one point cost: medians of its measurements."""

    label: str
    parallelism: int
    state: str
    problem: str
    runs: int
    seconds: float | None
    rows_per_second: float | None
    bytes_per_second: float | None
    spread: float | None
    fetch: float | None
    """This and the next five: CPU seconds for a million rows."""
    encode: float | None
    compress: float | None
    write: float | None
    rest: float | None
    total: float | None
    workers: float | None
    """This and the next four: shares of all CPUs."""
    parent: float | None
    database: float | None
    others: float | None
    idle: float | None
    queued_s: float | None


class LoadLine(Struct, frozen=True, kw_only=True):
    """How busy a node was."""

    at_s: float
    node: str
    share: float


class WholeTable(Struct, frozen=True, kw_only=True):
    """What all of the table would take with the recommended options."""

    rows: float | None
    seconds: float | None
    low: float | None
    high: float | None


class SweepPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a sweep shows."""

    report: Literal["sweep"] = "sweep"
    format_version: Literal[1] = FORMAT_VERSION
    source: str
    subject: str
    destination: str
    caches: str
    unit: Literal["bytes", "rows", "runs"]
    """What rates count: runs an hour where neither bytes nor rows are known."""
    levels: tuple[LevelLine, ...]
    levels_left_out: int
    model: str
    """The law that was fitted; empty without one."""
    described: bool
    """Whether it describes the levels."""
    curve: tuple[CurvePoint, ...]
    predictions: tuple[CurvePoint, ...]
    knee: KneeLine | None
    choices: tuple[ChoiceLine, ...]
    doubts: tuple[str, ...]
    """Why the choices may be wrong."""
    recommended_options: str
    """As options of a command line; empty without any."""
    whole_table: WholeTable | None
    ceilings: tuple[CeilingLine, ...]
    settings: tuple[SweepSetting, ...]
    limit_below_knee: str
    limit_above_knee: str
    points: tuple[PointLine, ...]
    shown_point: str
    """The point whose timeline and load are shown: the recommended one, or the fastest."""
    bars: tuple[Bar, ...]
    units_per_bar: int
    loads: tuple[LoadLine, ...]
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document that the page carries."""
        return json_fields.fields_to_json(self)
