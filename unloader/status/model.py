"""The record of the progress of a run, `_run/status.json`, and a request to change the run.

docs/watching.md explains the keys. A later version may add keys, and readers ignore unknown keys.
The meaning of a key changes only together with the version.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from unloader.model import TableCounts

Waits = Literal["nothing", "source", "destination", "retry", "limit"]


class UnitCounts(Struct, frozen=True, kw_only=True):
    total: int = 0
    done: int = 0
    """Staged; they have final names once the run is published."""
    running: int = 0
    waiting: int = 0
    failed: int = 0


class WorkerStatus(Struct, frozen=True, kw_only=True):
    worker: int
    node: int
    """Where nothing is bound, the node that it was counted for."""
    cpus: tuple[int, ...]
    """The CPUs that it is bound to; empty if it is not bound."""
    unit: str | None = None
    partition: str | None = None
    attempt: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waits_for: Waits = "nothing"
    """`retry` if it is idle because all units that are left wait for their next attempt."""
    waits_detail: str = ""
    retry_in_seconds: float | None = None


class ParallelismStatus(Struct, frozen=True, kw_only=True):
    """How many workers work, where that is not simply all of them."""

    mode: Literal["fixed", "adaptive"]
    workers: int
    of: int
    paused: int = 0
    limit: str = ""
    since: float = 0.0
    """Seconds since the first unit was handed out when the number last changed."""
    reason: str = ""
    taken: str = ""
    """The last request of `unloader set` that the run has answered."""
    refused: str = ""


class LiveStatus(Struct, frozen=True, kw_only=True, tag_field="format_version", tag=1):
    run_id: str
    sequence: int
    """Grows with each record of a process; an active run writes one about every second."""
    updated: str
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    table: str = ""
    phase: str = ""
    phase_since: str = ""
    units: UnitCounts = UnitCounts()
    tables: TableCounts | None = None
    rows: int = 0
    bytes: int = 0
    """Both of finished units and running attempts; see `of_finished_units`."""
    rows_expected: int | None = None
    """The source's estimate; None for a table without one, such as a view."""
    bytes_expected: int | None = None
    rows_per_second: float = 0.0
    mean_rows_per_second: float = 0.0
    speeds: tuple[float, ...] = ()
    """Rows per second from the begin of this process until now: means over equal times."""
    bytes_per_second: float | None = None
    fraction: float | None = 0.0
    """Of the expected rows; None without an estimate for every unit."""
    seconds: float = 0.0
    seconds_left: float | None = None
    workers: tuple[WorkerStatus, ...] = ()
    parallelism: ParallelismStatus | None = None
    retries: int = 0
    last_error: str = ""
    last_notice: str = ""
    stopping: bool = False
    resumable: bool | None = None
    """A later process can read at the same snapshot; None = not known."""
    snapshot_kept_until: str = ""
    ended: str = ""
    """Kind of the error that ended the run; empty during the run, and after a kill."""

    def of_finished_units(self) -> LiveStatus:
        """Return the record without the rows of running attempts: a run that ended lost these."""
        rows = self.rows - sum(each.rows for each in self.workers)
        size = self.bytes - sum(each.bytes for each in self.workers)
        fraction = self.fraction
        if rows < self.rows and self.rows_expected:
            fraction = round(min(rows / self.rows_expected, 0.999), 4)
        return replace(self, rows=rows, bytes=size, fraction=fraction)


class Wish(Struct, frozen=True, kw_only=True, tag_field="format_version", tag=1):
    """Other settings; None leaves one as it is."""

    id: str
    """Identifies the wish, so that the run can name the one it has taken."""
    by: str = ""
    parallelism: int | Literal["adaptive", "auto"] | None = None
    max_sessions: int | None = None
    """0 sets no limit, here and in the next field."""
    max_cpu: float | None = None
    slow_between: str | None = None
    slow_parallelism: int | None = None

    @property
    def is_empty(self) -> bool:
        names = (each for each in self.__struct_fields__ if each not in ("id", "by"))
        return all(getattr(self, name) is None for name in names)


MOST = 60
"""As many as a line of a terminal can show beside their name."""


class Speeds(Struct):
    """Rows per second since a run began, one mean after the other."""

    _samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds of any clock that only goes forward, and the rows until then."""
    _step: float = 0.0
    """Seconds between two samples that are kept; 0 keeps all."""

    def add(self, now: float, rows: int) -> None:
        if self._samples and now - self._samples[-1][0] < self._step:
            return
        self._samples.append((now, rows))
        if len(self._samples) > MOST + 1:
            # The first and the last one stay, as their number is even then.
            # A little less than twice the former step, as looks come at whole seconds.
            self._step = 1.9 * (now - self._samples[0][0]) / MOST
            self._samples = [*self._samples[:-1:2], self._samples[-1]]

    def values(self) -> tuple[float, ...]:
        """Return the means, the oldest first; a failed attempt takes rows back, which is 0."""
        return tuple(
            round(max(0.0, (now_rows - rows) / max(now - then, 1e-3)), 1)
            for (then, rows), (now, now_rows) in pairwise(self._samples)
        )


_STATUS = Decoder(LiveStatus)


def parse_status(data: bytes) -> LiveStatus | None:
    """Return the record in these bytes; None for other bytes or another version."""
    with suppress(ValueError, RecursionError):
        return _STATUS.decode(data)
    return None
