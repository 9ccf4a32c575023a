"""The measuring processes: they write files, and try codecs on a sample of rows.

A file goes through `writers.files.sink`, as the files of a run do: the same buffers, checksum,
write-ahead and sync. It has no name where the file system can do that, so that nothing is left of
it, however this process ends.

A sample is the first rows of several work units, at the snapshot of the run. Rows with a value too
large for a batch are skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, cast

# ruff: noqa: E402
from unloader.worker.memory import tune

# Before the modules below: some import Arrow, which reads its allocator from the environment.
tune()


from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import failure_of
from unloader.model import AttemptFailure
from unloader.redaction import guard_streams
from unloader.secrets.keys import masking_keys
from unloader.sources.base import SHARES, Reader, is_large_row, read_again, unit_batches, unit_text
from unloader.sources.registry import source_of
from unloader.tuning.codec_choice import MeasuredSample, Sample, SampleTask
from unloader.tuning.measuring_tasks import WriteTask, Written
from unloader.worker.masked_failures import failure_without_values
from writers.codecs.measuring import encode_sample, measure_disk, measure_parquet, measure_text
from writers.files.regular import write_error
from writers.files.sink import Sink
from writers.large_rows import LargeRow
from writers.lob_files import LobFiles
from writers.model import Compression, TextFormat

if TYPE_CHECKING:
    from partition_planner.model import WorkUnit

Task = WriteTask | SampleTask
Answer = Written | MeasuredSample | AttemptFailure

PREFIX = ".unloader-preflight-"
"""First letters of a file's name, on file systems that need names."""

_DATA_BYTES = 4 * 1024 * 1024
_BATCHES = 4
"""Of each unit of a sample, at least, where it has the rows."""


def work(task: Task, report: Callable[[object], None]) -> Answer:
    """Do a task of the parent; every error is returned as data."""
    guard_streams()
    try:
        if isinstance(task, WriteTask):
            return _write(task)
        return _measured(task, _read(task))
    except Exception as error:
        if isinstance(task, SampleTask) and task.transform and task.transform.masked_columns:
            return failure_without_values(error, task.extract.projection.columns)
        return failure_of(error)


def _write(task: WriteTask) -> Written:
    # A file system that compresses gains nothing from these bytes, as from compressed output.
    data = memoryview(os.urandom(min(task.bytes, _DATA_BYTES)))
    with _file_in(task.directory) as path:
        began = time.monotonic()
        sink = Sink(
            path,
            compression=Compression(),
            buffer_bytes=task.writing.overlap_buffer,
            buffers=task.writing.overlap_buffers,
            checksum=task.writing.checksum,
            direct_io=task.writing.direct_io,
        )
        try:
            while sink.bytes_accepted < task.bytes and time.monotonic() < began + task.seconds:
                sink.write(data[: task.bytes - sink.bytes_accepted])
            size, _ = sink.close()
        except BaseException:
            sink.abort()
            raise
    return Written(bytes=size, began=began, ended=time.monotonic())


@contextmanager
def _file_in(directory: str) -> Iterator[str]:
    """Yield the path of a new file that is gone at the end."""
    descriptor = -1
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):
            descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    if descriptor >= 0:
        try:
            # The way to open a file without a name once more: proc(5).
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    try:
        descriptor, path = mkstemp(prefix=PREFIX, dir=directory)
    except OSError as error:
        raise write_error("create a file in", Path(directory), error) from error
    os.close(descriptor)
    try:
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)


class _Rows(Struct):
    """The fetched rows, and the time for them."""

    items: list[Any] = field(default_factory=list)
    """Record batches, or chunks of text on the encoded route."""
    bytes: int = 0
    whole: bool = True
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def _read(task: SampleTask) -> _Rows:
    rows = _Rows()
    source = source_of(task.extract.source.kind)
    # Loading the driver, which a worker does before its first unit, does not count as fetching.
    source.load()
    deadline = time.perf_counter() + task.budget.fetch_seconds
    reader: Reader | None = None
    try:
        for number, unit in enumerate(task.units):
            left = len(task.units) - number
            now = time.perf_counter()
            if rows.items and now >= deadline:
                rows.whole = False
                break
            if reader is None:
                reader = source.open_reader(task.extract.source, task.extract.snapshot)
            share = (task.budget.bytes - rows.bytes) // left
            until = now + (deadline - now) / left
            found = read_again(partial(_read_unit, task, unit, reader, share, until))
            rows.items += found.items
            rows.bytes += found.bytes
            rows.seconds += found.seconds
            rows.cpu_seconds += found.cpu_seconds
            if not found.whole:
                # It was left in the middle of a statement.
                rows.whole = False
                reader.close()
                reader = None
    finally:
        if reader is not None:
            reader.close()
    return rows


def _read_unit(
    task: SampleTask, unit: WorkUnit, reader: Reader, share: int, deadline: float
) -> _Rows:
    if task.extract.projection.route == "encoded":
        text = cast(TextFormat, task.spec.format)
        items: Iterator[Any] = unit_text(reader, task.extract, unit, text)
    else:
        # Several batches, so that the first one's wait can be told apart from the others'.
        batch = max(1, min(task.fetch_bytes // SHARES, share // _BATCHES))
        items = unit_batches(reader, task.extract, unit, batch_bytes=batch)
    found = _Rows(whole=False)
    walls, cpus = list[float](), list[float]()
    with closing(cast("Generator[Any, None, None]", items)):
        while found.bytes < share:
            began, cpu = time.perf_counter(), time.process_time()
            item = next(items, None)
            took, used = time.perf_counter() - began, time.process_time() - cpu
            if item is None:
                found.whole = True
                break
            # A wide row says nothing about the others.
            is_text = isinstance(item, tuple)
            if not (any(map(is_large_row, item)) if is_text else isinstance(item, LargeRow)):
                found.items.append(item)
                found.bytes += sum(map(len, item)) if is_text else int(item.nbytes)
                walls.append(took)
                cpus.append(used)
            if time.perf_counter() >= deadline:
                break
    if len(walls) > 1:
        # The first rows wait for the statement to begin, which a whole unit does once, too; but
        # some drivers do there what takes them CPU for many rows.
        walls[0] = min(walls[0], cpus[0] + sum(walls[1:]) / len(walls[1:]))
    found.seconds, found.cpu_seconds = sum(walls), sum(cpus)
    return found


def _measured(task: SampleTask, rows: _Rows) -> MeasuredSample:
    route = task.extract.projection.route
    if not rows.bytes:
        return MeasuredSample(sample=Sample(whole=rows.whole, route=route))
    rates: list[float | None] = []
    if task.budget.disk_seconds:
        # Not by `_write`: one file with its checksum is slower than the files of all workers.
        rates = [measure_disk(directory, task.budget.disk_seconds) for directory in task.disks]
    known = [rate for rate in rates if rate is not None]
    sample = Sample(
        whole=rows.whole,
        route=route,
        fetch_seconds=round(rows.seconds, 6),
        fetch_cpu_seconds=round(rows.cpu_seconds, 6),
    )
    if route == "encoded":
        text = b"".join(chunk for item in rows.items for chunk in item)
        sample = replace(sample, rows=text.count(b"\n"), bytes=len(text))
    else:
        batches = [batch for batch in rows.items if batch.num_rows]
        if task.transform is not None and batches:
            # What a sample leaves on a disk is masked, too.
            from unloader.transforms.transformer import Transformer

            keys = masking_keys(task.transform.keys)
            with closing(Transformer(task.transform, batches[0].schema, keys)) as transformer:
                batches = list(transformer.apply(batches))
        if task.lobs and batches:
            dropping = replace(task.spec, stream=os.devnull)
            lobs = LobFiles(dropping, batches[0].schema, "", task.lobs)
            try:
                batches = [lobs.packed(batch) for batch in batches]
            finally:
                lobs.abort()
        if isinstance(task.spec.format, TextFormat):
            encode_sample(batches[:1], task.spec)  # It loads what encoding needs.
            seconds, text = encode_sample(batches, task.spec)
            size = len(text)
        else:
            figures, seconds, size = measure_parquet(
                batches, task.spec, task.candidates, task.budget.codec_seconds
            )
        count = sum(batch.num_rows for batch in batches)
        sample = replace(sample, rows=count, bytes=size, encode_cpu_seconds=round(seconds, 6))
    if isinstance(task.spec.format, TextFormat):
        step = max(1, task.spec.buffer_bytes)
        view = memoryview(text)
        frames = [view[at : at + step] for at in range(0, len(text), step)]
        figures = measure_text(frames, task.candidates, task.budget.codec_seconds)
    disk = sum(known) if known and len(known) == len(rates) else None
    return MeasuredSample(sample=sample, figures=figures, disk_bytes_per_second=disk)
