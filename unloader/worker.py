"""The worker's side: one work unit at a time from the source into staged files.

Runs in a process of its own, bound to its seat before this module is imported. It keeps its
connection from unit to unit, prints nothing and answers with plain data.
"""

from __future__ import annotations

import atexit
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unloader.errors import translate
from unloader.model import (
    Failure,
    Preload,
    Snapshot,
    SourceSpec,
    Stages,
    UnitProgress,
    UnitResult,
    UnitTask,
)
from unloader.pipeline import Pump
from unloader.sources.base import ReadAgain, Reader, TextReader
from unloader.sources.registry import source_of
from writers.base import EncodedWriter, Writer
from writers.model import TextFormat, WrittenFile

if TYPE_CHECKING:
    from writers.large_rows import LargeValue

Report = Callable[[UnitProgress], None]

REPORT_SECONDS = 0.2

SHARES = 16
"""A batch is this part of the fetch memory. Few batches are in flight at a time, but encoding one
takes several times its own size; measured, larger batches gain no CPU and cost 10 to 50 MB."""

# Measured on the reference table: 30 MB less a worker than Arrow's own allocator at the same CPU.
# Arrow reads this when it is first imported, which is after this module.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

_STATUS = Path("/proc/self/status")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(slots=True)
class _Process:
    """What this process keeps from unit to unit: its reader, and the CPU it has reported."""

    reader: Reader | None = None
    key: tuple[SourceSpec, Snapshot | None] | None = None
    accounted_cpu: float = 0.0

    def reader_for(self, source: SourceSpec, snapshot: Snapshot | None) -> Reader:
        if self.reader is None or self.key != (source, snapshot):
            self.drop()
            self.reader = source_of(source.kind).open_reader(source, snapshot)
            self.key = (source, snapshot)
        return self.reader

    def cpu_since_last(self) -> float:
        """Return this process's CPU seconds since the last call, the first time since its start."""
        now = time.process_time()
        used, self.accounted_cpu = now - self.accounted_cpu, now
        return used

    def drop(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None


_process = _Process()

# Told to leave, a worker says goodbye to its database instead of hanging up.
atexit.register(_process.drop)


def work(task: UnitTask | Preload, report: Report) -> UnitResult | Failure | None:
    """Do what the parent sent: unload a unit, or get ready for the first one."""
    if isinstance(task, UnitTask):
        return run_unit(task, report)
    # What cannot be loaded is an error where it is needed, with the unit's name to it.
    with suppress(Exception):
        source_of(task.source_kind).load()
    return None


def run_unit(task: UnitTask, report: Report) -> UnitResult | Failure:
    """Unload one unit into staged files; every error comes back as a Failure.

    After a failure nothing of the attempt is left in the staging directory, and the connection is
    dropped: whatever state it was in, the next attempt begins with a new one.
    """
    try:
        return _unload(task, report)
    except Exception as error:
        _process.drop()
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """Return an exception as data, under the class of `unloader.errors` it belongs to."""
    known = translate(error)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if known is None:
        return Failure(
            kind="UnloaderError",
            message=f"internal error in a worker: {type(error).__name__}: {error}",
            hint="run again with --debug and report it",
            retryable=False,
            traceback=text,
        )
    return Failure(
        kind=type(known).__name__,
        message=known.message,
        hint=known.hint,
        retryable=known.retryable,
        traceback=text,
    )


@dataclass(slots=True)
class _Progress:
    """Counts what went through and reports it now and then."""

    unit: str
    report: Report
    rows: int = 0
    _reported: float = field(default_factory=time.monotonic)

    def add(self, rows: int, written: int) -> None:
        self.rows += rows
        now = time.monotonic()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self.report(UnitProgress(unit=self.unit, rows=self.rows, bytes=written))


@dataclass(slots=True)
class _RowEstimate:
    """About how many records a piece of text holds, for the display; results are counted.

    Ends of line are counted in the first piece only: counting them all costs as much CPU as
    handing the text on.
    """

    bytes_per_row: float = 0.0

    def __call__(self, piece: tuple[bytes, ...]) -> int:
        size = sum(len(chunk) for chunk in piece)
        if not self.bytes_per_row:
            lines = sum(chunk.count(b"\n") for chunk in piece)
            self.bytes_per_row = size / max(1, lines)
        return round(size / self.bytes_per_row)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A value that takes long: each piece of it is progress."""

    value: LargeValue
    advance: Callable[[], None]

    @property
    def binary(self) -> bool:
        return self.value.binary

    def pieces(self) -> Iterator[Any]:
        for piece in self.value.pieces():
            self.advance()
            yield piece


def _unload(task: UnitTask, report: Report) -> UnitResult:
    started = time.perf_counter()
    extract = task.extract
    reader = _process.reader_for(extract.source, extract.snapshot)
    progress = _Progress(task.unit.id, report)
    if extract.projection.route == "encoded":
        rows, files, stages = _copy_encoded(task, cast(TextReader, reader), progress)
    else:
        try:
            rows, files, stages = _copy_batches(task, reader, progress)
        except ReadAgain:
            progress = _Progress(task.unit.id, report)
            rows, files, stages = _copy_batches(task, reader, progress)
    return UnitResult(
        unit=task.unit.id,
        attempt=task.attempt,
        rows=rows,
        files=files,
        stages=stages,
        seconds=time.perf_counter() - started,
        cpu_seconds=_process.cpu_since_last(),
        peak_rss_bytes=peak_rss_bytes(),
    )


def peak_rss_bytes() -> int:
    """Return the most memory this process has had resident so far.

    From VmHWM in /proc/self/status where there is one: `ru_maxrss` begins with what the parent had
    when it started us.
    """
    try:
        found = _PEAK.search(_STATUS.read_text(encoding="ascii"))
    except OSError:
        found = None
    if found:
        return int(found.group(1)) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _copy_batches(
    task: UnitTask, reader: Reader, progress: _Progress
) -> tuple[int, tuple[WrittenFile, ...], Stages]:
    from writers.large_rows import LargeRow
    from writers.registry import open_writer
    from writers.schema import read_schema

    schema = read_schema(task.extract.projection.schema)
    writers: list[Writer] = []

    def fetch() -> Iterator[Any]:
        share = max(1, task.fetch_bytes // SHARES)
        return reader.batches(task.extract, task.unit, fetch_bytes=share)

    def advance(rows: int = 0) -> None:
        progress.add(rows, sum(writer.bytes_written for writer in writers))

    def consume(batch: Any) -> None:
        if isinstance(batch, LargeRow):
            watched = tuple((index, _Watched(value, advance)) for index, value in batch.values)
            for writer in writers:
                writer.write_large(replace(batch, values=watched))
            advance(1)
            return
        for writer in writers:
            writer.write(batch)
        advance(batch.num_rows)

    pump = Pump(fetch)
    try:
        for output in task.outputs:
            writers.append(
                open_writer(output.spec, schema, output.stem, with_start=output.with_start)
            )
        pump.run(consume)
        files = tuple(file for writer in list(writers) for file in writer.close())
    except BaseException:
        _abort(writers)
        raise
    return progress.rows, files, _stages(pump.fetch_seconds, writers)


def _copy_encoded(
    task: UnitTask, reader: TextReader, progress: _Progress
) -> tuple[int, tuple[WrittenFile, ...], Stages]:
    from writers.registry import open_encoded_writer

    (output,) = task.outputs
    rows_in = _RowEstimate()
    text = cast(TextFormat, output.spec.format)
    writer: EncodedWriter = open_encoded_writer(output.spec, output.stem, output.header)

    def consume(piece: tuple[bytes, ...]) -> None:
        for chunk in piece:
            writer.write(chunk)
        progress.add(rows_in(piece), writer.bytes_written)

    pump = Pump(lambda: reader.encoded(task.extract, task.unit, text))
    try:
        pump.run(consume)
        rows = reader.encoded_rows
        files = writer.close(rows)
    except BaseException:
        _abort([writer])
        raise
    return rows, files, _stages(pump.fetch_seconds, [writer])


def _abort(writers: list[Any]) -> None:
    for writer in writers:
        writer.abort()


def _stages(fetch_seconds: float, writers: list[Any]) -> Stages:
    return Stages(
        fetch_s=fetch_seconds,
        encode_s=sum(writer.stages.encode_s for writer in writers),
        write_s=sum(writer.stages.write_s for writer in writers),
    )
