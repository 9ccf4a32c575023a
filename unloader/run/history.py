"""The times of a run: the start of each attempt, the failed attempts, and samples of the progress.

It ends in the manifest, so that a report can be made of it later. All times are seconds since the
run began to plan, as the totals of the manifest are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from unloader.manifest.model import FailedAttemptRecord, SampleRecord
from unloader.placement.evidence import CpuTime, node_times
from unloader.redaction import redact

FIRST_INTERVAL_SECONDS = 0.25
MOST_SAMPLES = 120
"""Then every second one is dropped and the interval is doubled: they always cover the whole run."""
MOST_FAILURES = 1000
"""A source that is away for hours makes more of them; the others are counted alone."""


class _Sample(Struct, frozen=True, kw_only=True):
    at_s: float
    rows: int
    bytes: int
    busy_workers: int
    nodes: Mapping[int, CpuTime]


class History(Struct, kw_only=True):
    """Of one run; all is called in the thread of its engine."""

    began: float
    """When the run began to plan, by the clock."""
    cpus: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each NUMA node; empty looks at none."""
    clock: Callable[[], float] = time.perf_counter
    times: Callable[[Mapping[int, tuple[int, ...]]], Mapping[int, CpuTime]] = node_times
    failures: list[FailedAttemptRecord] = field(default_factory=list)
    failures_left_out: int = 0
    _running: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    """By worker: when its attempt began, and the rows and bytes that it has so far."""
    _rows: int = 0
    _bytes: int = 0
    _samples: list[_Sample] = field(default_factory=list)
    _interval: float = FIRST_INTERVAL_SECONDS
    _next: float = 0.0

    def seconds(self) -> float:
        """Return how long the run has been active."""
        return self.clock() - self.began

    def started(self, worker: int) -> None:
        self._running[worker] = (self.seconds(), 0, 0)

    def advanced(self, worker: int, rows: int, size: int) -> None:
        if worker in self._running:
            self._running[worker] = (self._running[worker][0], rows, size)

    def finished(self, worker: int, rows: int, size: int, seconds: float) -> float | None:
        """Note the end of an attempt; return when it began.

        The worker's own seconds say when: its process may have had to be started first, and it may
        have begun before this process came to note that it had been given the attempt. So no
        attempt begins before the end of the one before it. Where it came with the results of later
        attempts, their seconds are in it, too.
        """
        self._rows += rows
        self._bytes += size
        given = self._running.pop(worker, None)
        return None if given is None else round(max(0.0, self.seconds() - seconds), 4)

    def failed(self, worker: int, unit: str, attempt: int, message: str) -> None:
        given, now = self._running.pop(worker, None), self.seconds()
        if len(self.failures) >= MOST_FAILURES:
            self.failures_left_out += 1
            return
        began = now if given is None else given[0]
        self.failures.append(
            FailedAttemptRecord(
                unit=unit,
                attempt=attempt,
                worker=worker,
                started_s=round(began, 4),
                seconds=round(now - began, 4),
                message=redact(message),
            )
        )

    def look(self, *, at_once: bool = False) -> None:
        now = self.seconds()
        if now < self._next and not at_once:
            return
        running = list(self._running.values())
        self._samples.append(
            _Sample(
                at_s=now,
                rows=self._rows + sum(rows for _, rows, _ in running),
                bytes=self._bytes + sum(size for _, _, size in running),
                busy_workers=len(running),
                nodes=self.times(self.cpus) if self.cpus else {},
            )
        )
        if len(self._samples) > MOST_SAMPLES:
            del self._samples[1::2]
            self._interval *= 2
        self._next = now + self._interval

    def samples(self) -> tuple[SampleRecord, ...]:
        """Return the samples of the run; each holds the load since the previous sample."""
        found = []
        for before, now in zip([None, *self._samples], self._samples, strict=False):
            shares = {
                str(node): counted.share_since(before.nodes[node])
                for node, counted in now.nodes.items()
                if before is not None and node in before.nodes
            }
            loads = {node: round(each, 3) for node, each in shares.items() if each is not None}
            found.append(
                SampleRecord(
                    at_s=round(now.at_s, 3),
                    rows=now.rows,
                    bytes=now.bytes,
                    busy_workers=now.busy_workers,
                    cpu_by_node=loads or None,
                )
            )
        return tuple(found)
