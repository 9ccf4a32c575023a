"""The worker's side: one work unit at a time from the source into staged files.

Runs in a process of its own, bound to its seat before this module is imported. It keeps its
connection from unit to unit, prints nothing and answers with plain data.
"""

from __future__ import annotations

import atexit
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from unloader.errors import OutputFailed, VerifyMismatch, translate
from unloader.model import (
    Failure,
    OutputTask,
    Preload,
    Snapshot,
    SourceSpec,
    Stages,
    UnitProgress,
    UnitResult,
    UnitTask,
)
from unloader.redaction import guard_streams
from unloader.sources.base import SHARES, ReadAgain, Reader, Text, TextReader
from unloader.sources.reading import unit_batches, unit_text
from unloader.sources.registry import source_of
from unloader.worker.process import freeze_modules, peak_rss_bytes, tune
from unloader.worker.pump import Pump
from writers.base import EncodedWriter, Writer
from writers.model import TextFormat, WrittenFile

if TYPE_CHECKING:
    from writers.large_rows import LargeValue

Report = Callable[[UnitProgress], None]

REPORT_SECONDS = 0.2

tune()


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
    guard_streams()  # A driver may warn.
    if isinstance(task, UnitTask):
        return run_unit(task, report)
    # What cannot be loaded is an error where it is needed, with the unit's name to it.
    with suppress(Exception):
        source_of(task.source_kind).load()
    freeze_modules()
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
        if self._is_due():
            self.report(UnitProgress(unit=self.unit, rows=self.rows, bytes=written))

    def wait(self, reader_of: str) -> None:
        if self._is_due():
            self.report(UnitProgress(unit=self.unit, rows=0, bytes=0, waiting_for=reader_of))

    def begin(self) -> None:
        self.report(UnitProgress(unit=self.unit, rows=0, bytes=0))

    def _is_due(self) -> bool:
        now = time.monotonic()
        due = now - self._reported >= REPORT_SECONDS
        if due:
            self._reported = now
        return due


@dataclass(slots=True)
class _RowEstimate:
    """About how many records a piece of text holds, for the display; results are counted.

    Ends of line are counted in the first piece only: counting them all costs as much CPU as
    handing the text on. A view is a wide row.
    """

    bytes_per_row: float = 0.0

    def __call__(self, piece: tuple[Text, ...]) -> int:
        usual = [chunk for chunk in piece if not isinstance(chunk, memoryview)]
        size = _text_bytes(tuple(usual))
        if usual and not self.bytes_per_row:
            lines = sum(chunk.count(b"\n") for chunk in usual)
            self.bytes_per_row = size / max(1, lines)
        wide = len(piece) - len(usual)
        return wide + (round(size / self.bytes_per_row) if usual else 0)


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
    with ExitStack() as held:
        for output in task.outputs:
            _await_reader(output, _Progress(task.unit.id, report), held)
        rows, files, stages = _copy(task, reader, report)
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


def _await_reader(output: OutputTask, progress: _Progress, held: ExitStack) -> None:
    """Wait until somebody reads the output's pipe, and hold it open for as long as `held` is.

    The parent is told before the first byte is written: from then on no attempt can be repeated.
    """
    pipe, seconds = output.spec.stream, output.reader_seconds
    if pipe is None or seconds is None:
        return
    from unloader.storage.streams.fifo import open_for_reader

    held.callback(os.close, open_for_reader(pipe, seconds, lambda: progress.wait(pipe)))
    progress.begin()


def _copy(
    task: UnitTask, reader: Reader, report: Report
) -> tuple[int, tuple[WrittenFile, ...], Stages]:
    progress = _Progress(task.unit.id, report)
    if task.extract.projection.route == "encoded":
        return _copy_encoded(task, cast(TextReader, reader), progress)
    try:
        return _copy_batches(task, reader, progress)
    except ReadAgain:
        return _copy_batches(task, reader, _Progress(task.unit.id, report))


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
        return unit_batches(reader, task.extract, task.unit, batch_bytes=share)

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

    pump = Pump(fetch, size=_batch_bytes, most_bytes=task.fetch_bytes)
    try:
        for output in task.outputs:
            writers.append(
                open_writer(output.spec, schema, output.stem, writes_header=output.writes_header)
            )
        pump.run(consume)
        files = tuple(file for writer in list(writers) for file in writer.close())
    except BaseException as error:
        sent = bool(progress.rows) or any(writer.bytes_written for writer in writers)
        _abort(writers)
        if sent and isinstance(error, ReadAgain):
            _check_repeatable(task)
        raise
    return progress.rows, files, _stages(pump.fetch_seconds, writers)


def _batch_bytes(batch: Any) -> int:
    from writers.large_rows import LargeRow

    if isinstance(batch, LargeRow):
        return batch.held_bytes
    return int(batch.nbytes)


def _text_bytes(piece: tuple[Text, ...]) -> int:
    return sum(len(chunk) for chunk in piece)


def _check_repeatable(task: UnitTask) -> None:
    """Refuse to write once more what has left through a stream."""
    if any(output.spec.stream for output in task.outputs):
        raise OutputFailed(
            f"unit {task.unit.id} must be read again in another way, and rows of it have left",
            "give a directory with --to, where that is possible",
        )


def _copy_encoded(
    task: UnitTask, reader: TextReader, progress: _Progress
) -> tuple[int, tuple[WrittenFile, ...], Stages]:
    from writers.registry import open_encoded_writer

    (output,) = task.outputs
    rows_in = _RowEstimate()
    counted: list[int] = []
    text = cast(TextFormat, output.spec.format)
    writer: EncodedWriter = open_encoded_writer(output.spec, output.stem, output.header)

    def consume(piece: tuple[Text, ...]) -> None:
        for chunk in piece:
            writer.write(chunk)
        progress.add(rows_in(piece), writer.bytes_written)

    pump = Pump(
        lambda: unit_text(reader, task.extract, task.unit, text, counted.append),
        size=_text_bytes,
        most_bytes=task.fetch_bytes,
    )
    try:
        pump.run(consume)
        rows = sum(counted)
        if writer.records != rows:
            raise VerifyMismatch(
                f"unit {task.unit.id}: the database says that it sent {rows} rows, and "
                f"{writer.records} came",
                "run again; if it comes back, report it with the plan",
            )
        files = writer.close(rows)
    except BaseException:
        _abort([writer])
        raise
    return rows, files, _stages(pump.fetch_seconds, [writer])


def _abort(writers: list[Any]) -> None:
    for writer in writers:
        writer.abort()


def _stages(fetch_seconds: float, writers: list[Any]) -> Stages:
    stages = [writer.stages for writer in writers]
    sizes = [each.uncompressed_bytes for each in stages]
    return Stages(
        fetch_s=fetch_seconds,
        encode_s=sum(each.encode_s for each in stages),
        write_s=sum(each.write_s for each in stages),
        compress_s=sum(each.compress_s for each in stages),
        compress_cpu_s=sum(each.compress_cpu_s for each in stages),
        uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)),
    )
