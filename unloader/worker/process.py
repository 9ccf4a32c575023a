"""The worker's side of an executor: takes tasks, answers with plain data.

Runs in a separate process, bound to its seat before this module is imported. It keeps its
connection from unit to unit and prints nothing.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import suppress

# ruff: noqa: E402
from unloader.worker.memory import tune

# Before the modules below: some import Arrow, which reads its allocator from the environment.
tune()

from msgspec.structs import replace

from numa.processes import member
from unloader.errors import SourceError, ValueRefused, failure_of
from unloader.events import UnitAdvanced
from unloader.model import (
    AttemptFailure,
    Bundle,
    Preload,
    Release,
    Snapshot,
    SourceSpec,
    UnitResult,
    UnitTask,
)
from unloader.redaction import guard_streams
from unloader.sources.base import Reader
from unloader.sources.registry import source_of
from unloader.worker.masked_failures import failure_without_values, masks_any
from unloader.worker.memory import peak_rss_bytes
from unloader.worker.pump import GATE
from unloader.worker.unit import Report, copy_unit
from writers.files.disk_space import is_full
from writers.registry import load

member.listen(GATE.take)

_reader: Reader | None = None
"""What this process keeps from unit to unit."""
_key: tuple[SourceSpec, Snapshot | None] | None = None
_accounted_cpu = 0.0
"""CPU seconds of this process that results have so far."""


def release() -> None:
    global _reader
    ending, _reader = _reader, None
    if ending is not None:
        atexit.unregister(release)
        ending.close()


def _reader_for(source: SourceSpec, snapshot: Snapshot | None) -> Reader:
    global _reader, _key
    if _reader is None or _key != (source, snapshot):
        release()
        _reader, _key = source_of(source.kind).open_reader(source, snapshot), (source, snapshot)
        # So the database sees its session closed, not a broken connection. A fork server does not
        # have sessions.
        atexit.register(release)
    return _reader


def work(
    task: Bundle | Preload | Release, report: Callable[[object], None]
) -> dict[int, UnitResult] | AttemptFailure | None:
    """Do the parent's order: unload units, get ready for the first one, or end the session.

    The results of a bundle are by number. Missing units were not done, since one has failed. The
    result of a single unit that has failed is its failure.
    """
    guard_streams()  # A driver may warn.
    if isinstance(task, dict):
        done: dict[int, UnitResult] = {}
        for number, each in task.items():

            def pass_on(event: UnitAdvanced, number: int = number) -> None:
                report((number, event))

            result = run_unit(each, pass_on)
            if not isinstance(result, AttemptFailure):
                done[number] = result
            elif len(task) == 1:
                return result
            else:
                break  # The later units are not done.
        return done
    if isinstance(task, Release):
        release()
    else:
        # What cannot be loaded is an error of the unit that needs it.
        with suppress(Exception):
            source = source_of(task.source_kind)
            source.load()
            if task.source is not None:
                source.share(task.source)
        with suppress(Exception):
            for name in task.formats:
                load(name)
            if "s3" in task.stores:
                from writers.objects.s3_requests import load as load_s3

                load_s3()
    return None


def run_unit(task: UnitTask, report: Report) -> UnitResult | AttemptFailure:
    """Unload one unit into staged files, and leave nothing there if it fails; errors are data."""
    global _accounted_cpu
    started = time.perf_counter()
    try:
        reader = _reader_for(task.extract.source, task.extract.snapshot)
        result = copy_unit(task, reader, report)
        before, _accounted_cpu = _accounted_cpu, time.process_time()
        return replace(
            result,
            seconds=round(time.perf_counter() - started, 6),
            cpu_seconds=round(_accounted_cpu - before, 6),
            peak_rss_bytes=peak_rss_bytes(),
        )
    except Exception as error:
        release()
        failure = _failure(task, error)
        if not any(output.spec.min_free_bytes for output in task.outputs):
            return failure
        # The run waits for room on a full disk. Most writes wait themselves. This is for errors
        # that the system reports when it syncs or makes a file.
        return replace(failure, retryable=failure.retryable or is_full(error))


def _failure(task: UnitTask, error: Exception) -> AttemptFailure:
    if masks_any(output.transform for output in task.outputs):
        found = failure_without_values(error, task.extract.projection.columns)
    else:
        found = failure_of(error)
    given = (("--where", task.extract.where), ("--query", task.extract.query))
    options = " and ".join(option for option, sql in given if sql is not None)
    if options and found.hint == SourceError.usual_hint:
        # The user's options are a likelier cause than the database.
        return replace(found, hint=f"check that {options} works for every row, and {found.hint}")
    if options and found.hint == ValueRefused.usual_hint:
        return replace(found, hint=f"correct the value, or the view or {options} that converts it")
    return found
