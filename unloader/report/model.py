"""The report of a run as plain data: what its page shows, and what the page carries as JSON.

It is made of a manifest alone. Lists are cut where a table has many thousands of work units, so
that the page opens in any browser; beside each such list stands how many there were.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from unloader.manifest.asked import SourceRecord
from unloader.manifest.model import TotalsRecord, VerifiedRecord
from unloader.model import Cause, Snapshot, Stages
from unloader.tuning.ceiling_records import Efficiency

FORMAT_VERSION: Literal[1] = 1


class SettingLine(Struct, frozen=True, kw_only=True):
    """One option that was set somewhere."""

    name: str
    value: str
    origin: str = field(name="from")


class Bar(Struct, frozen=True, kw_only=True):
    """One attempt at a work unit on the timeline, or several units that one worker did in a row."""

    worker: int
    unit: str
    """The first one, where there are several."""
    last_unit: str
    units: int
    partition: str
    """Empty without one, and where there are several."""
    started_s: float
    seconds: float
    """To the end of the last one."""
    rows: int
    attempt: int
    """The highest of the units."""
    outcome: Literal["done", "done in a retry", "failed"]
    message: str = ""
    """Why it failed."""


class UnitLine(Struct, frozen=True, kw_only=True):
    """One work unit."""

    unit: str
    partition: str
    worker: int | None
    node: int
    rows: int
    bytes: int
    attempts: int
    started_s: float | None
    seconds: float
    stages: Stages


class WorkerLine(Struct, frozen=True, kw_only=True):
    """One worker."""

    worker: int
    node: int
    units: int
    rows: int
    bytes: int
    busy_s: float
    """Seconds of its units."""
    ended_s: float | None
    """When its last unit ended; None where that is not known."""
    failed_attempts: int
    stages: Stages


class NodeLine(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    node: int
    workers: int
    rows: int
    bytes: int
    rows_per_second: int | None
    bytes_per_second: int | None


class SampleLine(Struct, frozen=True, kw_only=True):
    """How fast the run was since the sample before."""

    at_s: float
    rows: int
    rows_per_second: float
    bytes_per_second: float
    busy_workers: int
    cpu_by_node: dict[str, float]
    """Empty where it is not known."""


class StepLine(Struct, frozen=True, kw_only=True):
    """A change of the number of workers, of a run whose number was steered."""

    at_s: float
    before: int | None
    """Workers until then; None at the first step."""
    workers: int
    """From then on."""
    of: int
    """Workers that have a seat."""
    rows_per_second: float | None
    """As last measured with the number before; None where it was not."""
    cause: Cause
    reason: str


class Spread(Struct, frozen=True, kw_only=True):
    """How evenly the work was spread over units and workers."""

    units: int
    units_kept: int
    """Of an earlier process of the run; they are on no timeline."""
    median_s: float | None
    longest_s: float | None
    longest_unit: str
    first_worker_idle_s: float | None
    """When the first worker had nothing more to do."""
    last_worker_idle_s: float | None
    """When the last one had."""
    busy_share: float | None
    """Of the workers' time until then that they spent in units."""


class RouteLine(Struct, frozen=True, kw_only=True):
    """One of several outputs."""

    name: str
    rows: int
    left_out: int | None
    """By its filter; None where it has none."""
    bytes: int
    files: int
    verified: str
    destination: str


class RunReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run shows."""

    report: Literal["run"] = "run"
    format_version: Literal[1] = FORMAT_VERSION
    run_id: str
    status: str
    unloader_version: str
    source: SourceRecord
    table: str
    """Empty for a query."""
    query: str
    destination: str
    route: str
    """Which of several outputs the figures are of; empty where there is one."""
    routes: tuple[RouteLine, ...]
    """All that are known to be complete; empty where there is one output."""
    snapshot: Snapshot | None
    totals: TotalsRecord
    verified: VerifiedRecord
    parallelism: int
    spread: Spread
    stages: Stages
    """Sums over all units."""
    workers: tuple[WorkerLine, ...]
    nodes: tuple[NodeLine, ...]
    bars: tuple[Bar, ...]
    units_per_bar: int
    """Most units that one bar stands for."""
    slowest: tuple[UnitLine, ...]
    """The units that took longest, slowest first."""
    failed: tuple[Bar, ...]
    """The first failed attempts."""
    failed_attempts: int
    samples: tuple[SampleLine, ...]
    steps: tuple[StepLine, ...]
    """Empty where the number of workers was not steered."""
    efficiency: Efficiency | None
    """None where the run was compared with no ceilings."""
    settings: tuple[SettingLine, ...]
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]
