"""Reads a sample of the rows of the user and measures codecs on it; runs in a separate process.

It opens the source as a worker does, at the snapshot of the run, and takes the first rows of
several work units. Rows with a value too large for a batch are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.failures import failure_of
from unloader.model import AttemptFailure
from unloader.sources.base import (
    SHARES,
    Reader,
    TextReader,
    is_large_row,
    read_again,
    unit_batches,
    unit_text,
)
from unloader.sources.registry import source_of
from unloader.transforms.masking_keys import masking_keys
from unloader.tuning.codec_choice import Sample, SampleTask
from unloader.worker.masked_failures import failure_without_values
from unloader.worker.memory import tune
from writers.codecs.measuring import encode_sample, measure_disk, measure_parquet, measure_text
from writers.large_rows import LargeRow
from writers.model import TextFormat

if TYPE_CHECKING:
    from partition_planner.model import WorkUnit


_BATCHES = 4
"""Of each unit, at least, where it has the rows."""

tune()


def work(task: SampleTask, report: Callable[[object], None]) -> Sample | AttemptFailure:
    """Take and measure one sample; every error comes back as a AttemptFailure."""
    try:
        return _measured(task, _read(task))
    except Exception as error:
        if task.transform is not None and task.transform.masked_columns:
            return failure_without_values(error, task.extract.projection.columns)
        return failure_of(error)


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
    deadline = perf_counter() + task.budget.fetch_seconds
    reader: Reader | None = None
    try:
        for number, unit in enumerate(task.units):
            left = len(task.units) - number
            now = perf_counter()
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
        items: Iterator[Any] = unit_text(cast(TextReader, reader), task.extract, unit, text)
    else:
        # Several batches, so that the first one's wait can be told apart from the others'.
        batch = max(1, min(task.fetch_bytes // SHARES, share // _BATCHES))
        items = unit_batches(reader, task.extract, unit, batch_bytes=batch)
    found = _Rows(whole=False)
    walls, cpus = list[float](), list[float]()
    with closing(cast("Generator[Any, None, None]", items)):
        while found.bytes < share:
            began, cpu = perf_counter(), process_time()
            item = next(items, None)
            took, used = perf_counter() - began, process_time() - cpu
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
            if perf_counter() >= deadline:
                break
    if len(walls) > 1:
        # The first rows wait for the statement to begin, which a whole unit does once, too; but
        # some drivers do there what takes them CPU for many rows.
        walls[0] = min(walls[0], cpus[0] + sum(walls[1:]) / len(walls[1:]))
    found.seconds, found.cpu_seconds = sum(walls), sum(cpus)
    return found


def _measured(task: SampleTask, rows: _Rows) -> Sample:
    if not rows.bytes:
        return Sample(whole=rows.whole)
    rates: list[float | None] = []
    if task.budget.disk_seconds:
        rates = [measure_disk(directory, task.budget.disk_seconds) for directory in task.disks]
    known = [rate for rate in rates if rate is not None]
    fetched = Sample(
        whole=rows.whole,
        fetch_seconds=rows.seconds,
        fetch_cpu_seconds=rows.cpu_seconds,
        disk_bytes_per_second=sum(known) if known and len(known) == len(rates) else None,
    )
    if task.extract.projection.route == "encoded":
        text = b"".join(chunk for item in rows.items for chunk in item)
        return _with_text(task, replace(fetched, rows=text.count(b"\n")), text)
    batches = [batch for batch in rows.items if batch.num_rows]
    if task.transform is not None and batches:
        # What a sample leaves on a disk is masked, too. Imported here: pyarrow must not be imported
        # before the worker's memory is tuned.
        from unloader.transforms.transformer import Transformer

        keys = masking_keys(task.transform.keys)
        with closing(Transformer(task.transform, batches[0].schema, keys)) as transformer:
            batches = list(transformer.apply(batches))
    fetched = replace(fetched, rows=sum(batch.num_rows for batch in batches))
    if isinstance(task.spec.format, TextFormat):
        encode_sample(batches[:1], task.spec)  # It loads what encoding needs.
        seconds, text = encode_sample(batches, task.spec)
        return _with_text(task, replace(fetched, encode_cpu_seconds=seconds), text)
    figures, seconds, size = measure_parquet(
        batches, task.spec, task.candidates, task.budget.codec_seconds
    )
    return replace(fetched, bytes=size, encode_cpu_seconds=seconds, figures=figures)


def _with_text(task: SampleTask, fetched: Sample, text: bytes) -> Sample:
    step = max(1, task.spec.buffer_bytes)
    view = memoryview(text)
    frames = [view[at : at + step] for at in range(0, len(text), step)]
    figures = measure_text(frames, task.candidates, task.budget.codec_seconds)
    return replace(fetched, bytes=len(text), figures=figures)
