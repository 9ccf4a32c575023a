"""Tasks of the workers in the engine's tests: the id of a unit decides how its attempts end.

The part before the dash decides: ok finishes, many does after 100 reports, chatter does after some
reports with pauses, hang never ends without any, die kills its process, raise raises, final fails
beyond retry; flaky and mortal fail or die at the first attempt and finish after it; last finishes,
and its process ends a second later; grow finishes, and its process keeps 64 MiB more. A task
without an attempt is a warm-up.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stages import stages

from unloader.engine.schedule import Attempt
from unloader.events import UnitAdvanced
from unloader.model import AttemptFailure, UnitResult

GROWTH_BYTES = 64 << 20
KEPT: list[bytes] = []


def work(task: object, report: Callable[[object], None]) -> UnitResult | AttemptFailure | None:
    """Do one attempt."""
    if not isinstance(task, Attempt):
        return None
    unit, first = task.unit.id, task.attempt == 1
    kind = unit.partition("-")[0]
    report(UnitAdvanced(worker=0, unit=unit, rows=1, bytes=2))
    if kind == "hang":
        # Anyone who looks for this process finds it.
        Path(os.environ["ENGINE_TASKS"], f"{os.getpid()}").touch()
        time.sleep(3600)
    if kind == "many":
        for number in range(100):
            report(UnitAdvanced(worker=0, unit=unit, rows=number, bytes=2))
    if kind == "chatter":
        for _ in range(8):
            time.sleep(0.1)
            report(UnitAdvanced(worker=0, unit=unit, rows=1, bytes=2))
    if kind == "die" or (kind == "mortal" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "last":
        threading.Timer(1.0, os._exit, (1,)).start()
    if kind == "grow":
        KEPT.append(b"x" * GROWTH_BYTES)
    if kind == "raise":
        raise ZeroDivisionError("by intent")
    if kind == "final" or (kind == "flaky" and first):
        return AttemptFailure(
            error="OutputFailed" if kind == "final" else "TransientSourceError",
            message=f"{unit} failed",
            hint="none",
            retryable=kind != "final",
        )
    return UnitResult(
        unit=unit,
        attempt=task.attempt,
        rows=1,
        files=(),
        stages=stages(),
        seconds=0.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
    )
