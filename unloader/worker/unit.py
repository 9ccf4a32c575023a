"""One work unit from the source into staged files: fetched in one thread, encoded in another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from numa.processes import member
from unloader.errors import OutputFailed, VerifyMismatch
from unloader.events import UnitAdvanced
from unloader.model import OutputResult, OutputTask, StageLoad, Stages, UnitResult, UnitTask, Waits
from unloader.secrets.keys import with_parquet_key
from unloader.sources.base import (
    SHARES,
    ReadAgain,
    Reader,
    Text,
    is_large_row,
    read_again,
    unit_batches,
    unit_text,
)
from unloader.worker.memory import keep_pieces
from unloader.worker.outputs import Dropped, Outputs, UnitOutput
from unloader.worker.pump import GATE, Pump
from writers.content.sums import ColumnSums
from writers.cpu_delay import cpu_delay
from writers.files.disk_space import notified_of_waits
from writers.large_rows import LargeRow, PassedValue
from writers.model import ContentSums, StageSeconds, TextFormat
from writers.registry import open_encoded_writer, open_writer
from writers.schema import read_schema

if TYPE_CHECKING:
    from writers.registry import Writer
    from writers.text.text_writer import EncodedTextWriter

T = TypeVar("T")
Report = Callable[[UnitAdvanced], None]

REPORT_SECONDS = 0.2

_COUNTED_BYTES = 64 * 1024
"""Of the first text, to find out how long a row is (guess)."""


def copy_unit(task: UnitTask, reader: Reader, report: Report) -> UnitResult:
    """Copy the rows of a unit into staged files; an error leaves none of them."""
    progress = Progress(task.unit.id, report)
    with notified_of_waits(progress.waits_for_room):
        if task.extract.projection.route == "encoded":
            return _copy_encoded(task, reader, progress)
        result = read_again(lambda: _copy_batches(task, reader, progress))
        rows, refused = reader.witnessed()
        return replace(result, witnessed_rows=rows, refused=refused)


def _copy_batches(task: UnitTask, reader: Reader, progress: Progress) -> UnitResult:
    projection = task.extract.projection
    schema = read_schema(projection.schema)
    # With a transform or packed files the columns have other values.
    summed = task.checksums and any(not (each.transform or each.lobs) for each in task.outputs)
    # The checksums of the fetched rows; each half is added to by one thread alone.
    of_batches = ColumnSums(schema) if summed else None
    of_rows = ColumnSums(schema) if summed else None
    outputs = Outputs((), drops=False)
    if any(each.lobs for each in task.outputs):
        keep_pieces()

    def fetch() -> Iterator[Any]:
        share = max(1, task.fetch_bytes // SHARES)
        for batch in unit_batches(reader, task.extract, task.unit, batch_bytes=share):
            if of_batches is not None and not isinstance(batch, LargeRow):
                of_batches.add(batch.columns, batch.num_rows)
            yield batch
            del batch

    def advance(rows: int = 0) -> None:
        progress.add(rows, outputs.bytes_written)

    def watching(pieces: Iterator[Any]) -> Iterator[Any]:
        """Count each piece of a value, which may take long, as progress."""
        for piece in pieces:
            advance()
            yield piece

    def consume(batch: Any) -> None:
        if isinstance(batch, LargeRow):
            if of_rows is not None:
                # Its values are hashed as writers read them.
                batch = of_rows.hashed(batch)
            watched = tuple((index, PassedValue(value, watching)) for index, value in batch.values)
            row = replace(batch, values=watched)
            outputs.each(lambda output: output.write_large(row))
            advance(1)
            return
        outputs.each(lambda output: output.write(batch))
        advance(batch.num_rows)

    def size(batch: Any) -> int:
        return batch.held_bytes if isinstance(batch, LargeRow) else int(batch.nbytes)

    before = _clocks()
    pump = _pump(task, fetch, size, progress)
    try:
        outputs = Outputs(
            [
                UnitOutput(
                    each, projection, schema, partial(_open_file, each), checksums=task.checksums
                )
                for each in task.outputs
            ],
            drops=task.drops_outputs,
        )
        outputs.each(UnitOutput.open)
        pump.run(consume)
        progress.ends()
        closing = perf_counter(), thread_time()
        outputs.each(lambda output: output.close(progress.rows))
    except BaseException as error:
        sent = bool(progress.rows) or bool(outputs.bytes_written)
        outputs.abort()
        # Data that has left through a stream cannot be written again.
        streams = any(each.spec.stream and each.drops == "nothing" for each in task.outputs)
        if sent and streams and isinstance(error, ReadAgain):
            raise OutputFailed(
                f"unit {task.unit.id} must be read again in another way, but some of its rows have "
                "already been sent",
                "give a directory with --to, where unloader can read the unit again",
            ) from error
        raise
    sums: ContentSums | None = None
    if of_batches is not None and of_rows is not None:
        sums = ContentSums.total((of_batches.result(), of_rows.result()))
    stages = _stages(pump, [each.stages for each in outputs.all], before, closing)
    found = tuple(
        OutputResult(
            number=each.number,
            rows=each.rows,
            filtered=each.filtered,
            files=each.files,
            # Threads are shared, so only these are of one output.
            stages=_summed(pump, [each.stages]),
            content=each.content(sums),
            failure=each.failure,
        )
        for each in outputs.all
    )
    if len(projection.outputs) > 1:
        files = tuple(file for each in found for file in each.files)
        return _result(task, rows=progress.rows, files=files, stages=stages, outputs=found)
    (only,) = found
    return _result(
        task,
        rows=only.rows,
        files=only.files,
        stages=stages,
        content=only.content,
        filtered=only.filtered,
    )


def _open_file(output: OutputTask, schema: Any) -> Writer | Dropped:
    if output.drops == "rows":
        return Dropped(output.stem)
    spec = output.spec
    if output.encryption is not None:
        spec = with_parquet_key(spec, output.encryption)
    return open_writer(spec, schema, output.stem, writes_header=output.writes_header)


def _copy_encoded(task: UnitTask, reader: Reader, progress: Progress) -> UnitResult:
    (output,) = task.outputs
    rows_in = RowEstimate()
    counted: list[int] = []
    text = cast(TextFormat, output.spec.format)
    writer: EncodedTextWriter | Dropped = Dropped(output.stem)
    if output.drops != "rows":
        writer = open_encoded_writer(output.spec, output.stem, output.header)

    def consume(piece: tuple[Text, ...]) -> None:
        for chunk in piece:
            writer.write(chunk)
        progress.add(rows_in(piece), writer.bytes_written)

    before = _clocks()
    pump = _pump(
        task,
        lambda: unit_text(reader, task.extract, task.unit, text, counted.append),
        text_bytes,
        progress,
    )
    try:
        pump.run(consume)
        progress.ends()
        rows = sum(counted)
        if writer.records not in (None, rows):
            raise VerifyMismatch(
                f"unit {task.unit.id}: the database reports that it sent {rows} rows, but "
                f"{writer.records} arrived",
                "run again; if it happens again, report it with the plan",
            )
        closing = perf_counter(), thread_time()
        files = writer.close(rows)
    except BaseException:
        writer.abort()
        raise
    stages = _stages(pump, [writer.stages], before, closing)
    return _result(task, rows=rows, files=files, stages=stages)


def _pump(
    task: UnitTask, items: Callable[[], Iterator[T]], size: Callable[[T], int], progress: Progress
) -> Pump[T]:
    pump = Pump(
        items,
        size=size,
        most_bytes=task.fetch_bytes,
        waits=progress.waits,
        gate=partial(GATE.pass_by, task.run_unit, task.attempt, progress.held_up),
    )
    # A unit may be read again.
    progress.rows, progress.written = 0, 0
    progress.starved = lambda: pump.starved_seconds
    return pump


def _result(task: UnitTask, **found: Any) -> UnitResult:
    return UnitResult(
        unit=task.unit.id,
        attempt=task.attempt,
        seconds=0.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
        **found,
    )


def _clocks() -> tuple[float, float, float]:
    """Return CPU seconds of this thread and of its process, and the delay of the thread."""
    return thread_time(), process_time(), cpu_delay()


def _stages(
    pump: Pump[Any],
    stages: list[StageSeconds],
    before: tuple[float, float, float],
    closing: tuple[float, float],
) -> Stages:
    """Return what each stage took; `closing` is the time of the wall and of this thread then."""
    thread, process, delay = (now - then for now, then in zip(_clocks(), before, strict=True))
    return replace(
        _summed(pump, stages),
        load=StageLoad(
            fetch_cpu_s=pump.fetch_cpu_seconds,
            encode_cpu_s=thread - sum(each.own_cpu_s for each in stages),
            write_cpu_s=sum(each.write_cpu_s for each in stages),
            process_cpu_s=process,
            starved_s=pump.starved_seconds,
            fetch_blocked_s=pump.blocked_seconds,
            encode_blocked_s=sum(each.encode_blocked_s for each in stages),
            compress_blocked_s=sum(each.compress_blocked_s for each in stages),
            longest_blocked_s=max(
                pump.longest_blocked_seconds, *(each.longest_blocked_s for each in stages)
            ),
            # Minus this thread's work: it encodes the last rows there.
            closing_s=max(0.0, perf_counter() - closing[0] - (thread_time() - closing[1])),
            fetch_delay_s=pump.fetch_delay_seconds,
            encode_delay_s=delay,
            compress_delay_s=sum(each.compress_delay_s for each in stages),
            write_delay_s=sum(each.write_delay_s for each in stages),
        ),
    )


def _summed(pump: Pump[Any], stages: list[StageSeconds]) -> Stages:
    sizes = [each.uncompressed_bytes for each in stages]
    return Stages(
        fetch_s=round(pump.fetch_seconds, 6),
        encode_s=round(sum(each.encode_s for each in stages), 6),
        write_s=round(sum(each.write_s for each in stages), 6),
        compress_s=round(sum(each.compress_s for each in stages), 6),
        compress_cpu_s=round(sum(each.compress_cpu_s for each in stages), 6),
        uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)),
    )


class Progress(Struct):
    """Counts what went through and reports it now and then."""

    unit: str
    report: Report
    rows: int = 0
    written: int = 0
    """Bytes, at the last look."""
    starved: Callable[[], float] = lambda: 0.0
    """Seconds that the work has waited for the source so far."""
    _starved_before: float = 0.0
    _reported: float = field(default_factory=time.monotonic)
    _repeated: float = 0.0
    _is_held_up: bool = False
    """Then everything else that is waited for waits for that, too."""

    def add(self, rows: int, written: int) -> None:
        self.rows += rows
        self.written = written
        before = self._reported
        if self._is_due():
            starved = self.starved()
            share = (starved - self._starved_before) / (self._reported - before)
            self._starved_before = starved
            self.waits("source" if share > 0.5 else "nothing")

    def held_up(self, waits: bool) -> None:
        """Report that the fetch waits for an order to continue, or continues."""
        self._is_held_up = waits
        self.waits("nothing")

    def waits(self, what: Waits) -> None:
        """Report the reason for a wait; it counts as progress, so only a change is reported."""
        self._send(waits_for="limit" if self._is_held_up else what)

    def waits_for_room(self, place: str) -> None:
        """Report again and again that a disk has no room; may be called by another thread."""
        now = time.monotonic()
        if now - self._repeated >= REPORT_SECONDS:
            self._repeated = now
            self._send(waiting_for=f"space on the disk of {place}", waits_for="destination")

    def _send(self, **waits: Any) -> None:
        event = UnitAdvanced(
            worker=member.number, unit=self.unit, rows=self.rows, bytes=self.written, **waits
        )
        self.report(event)

    def ends(self) -> None:
        """Report that the writers have all rows; they may need time to end."""
        if self._is_due():
            self.waits("destination")

    def _is_due(self) -> bool:
        now = time.monotonic()
        due = now - self._reported >= REPORT_SECONDS
        if due:
            self._reported = now
        return due


class RowEstimate(Struct):
    """About how many records a piece of text holds, for the display; results are counted.

    Ends of line are counted at the beginning only: counting them all costs as much CPU as handing
    the text on.
    """

    bytes_per_row: float = 0.0

    def __call__(self, piece: tuple[Text, ...]) -> int:
        usual = [chunk for chunk in piece if not is_large_row(chunk)]
        size = text_bytes(tuple(usual))
        if usual and not self.bytes_per_row:
            first = bytes(memoryview(usual[0])[:_COUNTED_BYTES])
            self.bytes_per_row = len(first) / max(1, first.count(b"\n"))
        wide = len(piece) - len(usual)
        return wide + (round(size / self.bytes_per_row) if usual else 0)


def text_bytes(piece: tuple[Text, ...]) -> int:
    return sum(len(chunk) for chunk in piece)
