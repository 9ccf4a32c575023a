"""Reads files again, several at a time, and compares them with their records.

Their writers reported sizes, checksums and rows. Some runs also recorded checksums of the values
that were fetched, for each part: a work unit, or the table where all units share a file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import Interrupted, UsageError, VerifyMismatch, translate
from unloader.events import Notice, Observer, Verified
from unloader.manifest.model import Manifest
from unloader.model import FinishedUnit
from unloader.nouns import counted
from unloader.sources import readings
from unloader.storage.storage_protocol import RunStorage
from writers.errors import FormatError, StoreFailed, Superseded, WriteError
from writers.files.checksums import checksum_name
from writers.files.read_back import Readable, listed, read_back
from writers.model import (
    PLAIN,
    Compression,
    ContentSums,
    OutputSpec,
    ParquetFormat,
    TextFormat,
    WrittenFile,
)

T = TypeVar("T")

Advance = Callable[[int], None]
"""Takes the amount of work done since the last call; a job calls it several times a second."""

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 0.5

_MOST_THREADS = 8
"""Checksums and reads leave the interpreter. A disk has no use for more threads."""


class _Ended(Exception):
    """Ends a job whose result is not needed any more."""


def in_parallel(
    jobs: Sequence[Callable[[Advance], T]],
    parallelism: int,
    watch: Callable[[int, int], None] = lambda jobs, amount: None,
    cancel: Callable[[], None] = lambda: None,
) -> list[T]:
    """Return the results of jobs in their order; each job runs in a thread.

    `watch` is called several times a second in the calling thread, with the jobs that are done and
    the amount of all work so far; its error, or the first error of a job, ends all. Then `cancel`
    ends the calls in which jobs wait. No thread is left, unless an interrupt came in a long call.
    """
    lock, over, amount = threading.Lock(), False, 0

    def advance(more: int) -> None:
        nonlocal amount
        if over:
            raise _Ended
        with lock:
            amount += more

    workers = max(1, min(parallelism, len(jobs)))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="verify")
    found: dict[int, T] = {}
    waiting = iter(enumerate(jobs))
    running: dict[Future[T], int] = {}
    try:
        while len(found) < len(jobs):
            # A few are ready for a thread that becomes free; to wait for all would take long.
            for number, job in islice(waiting, 2 * workers - len(running)):
                running[pool.submit(job, advance)] = number
            done, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for each in done:
                found[running.pop(each)] = each.result()
            watch(len(found), amount)
        pool.shutdown()
        return [found[number] for number in range(len(jobs))]
    except BaseException as error:
        over = True
        cancel()
        # A thread may be in a long call of a library. The user who interrupts does not wait for it.
        interrupted = isinstance(error, (KeyboardInterrupt, Interrupted))
        pool.shutdown(wait=not interrupted, cancel_futures=True)
        wait([each for each in running if not each.cancelled()], timeout=_PATIENCE_SECONDS)
        raise


class Fetched(Struct, frozen=True, kw_only=True):
    """Checksums of the values that were fetched, or that a source computed."""

    schema: str
    """Of the columns that were written, as an Arrow IPC message."""
    columns: tuple[str, ...]
    parts: Mapping[str, ContentSums]
    """By what a part is called in messages."""
    left_out: Mapping[int, str]
    """Columns whose values cannot be compared, by index, each with why."""

    def not_compared(self) -> tuple[str, ...]:
        """Return the names of the columns that are left out, each with why."""
        return tuple(f"{self.columns[at]}: {why}" for at, why in self.left_out.items())


def fetched_of(
    schema: str,
    columns: tuple[str, ...],
    parts: Mapping[str, ContentSums],
    format: TextFormat | ParquetFormat,
) -> Fetched:
    """Return the reference for files in a format; the arguments are the fields of `Fetched`."""
    from writers.content.reading import not_compared

    left_out = not_compared(schema, format)
    return Fetched(schema=schema, columns=columns, parts=parts, left_out=left_out)


def differing(
    one: ContentSums,
    other: ContentSums,
    columns: Sequence[str],
    where: tuple[str, str],
    left_out: Mapping[int, str],
) -> Iterator[str]:
    """Yield how two checksums of the same rows differ, column by column."""
    here, there = where
    if one.rows != other.rows:
        yield f"{counted(one.rows, 'row')} {here}, {other.rows} {there}"
        return
    for at, name in enumerate(columns):
        nulls, sums = (one.nulls[at], other.nulls[at]), (one.sums[at], other.sums[at])
        if at not in left_out and nulls[0] != nulls[1]:
            yield f"column {name} has {nulls[0]} NULLs {here}, {nulls[1]} {there}"
        elif at not in left_out and sums[0] != sums[1]:
            yield f"column {name} has the checksum {sums[0]} {here}, {sums[1]} {there}"


_DAMAGED = "unload the table again, and check the storage"


def check_file(
    path: Readable,
    file: WrittenFile,
    spec: OutputSpec | None = None,
    *,
    header: bool = True,
    advance: Advance = lambda size: None,
) -> None:
    """Read a file again and compare it with its record; without a spec no records are counted."""
    if isinstance(path, Path):
        with suppress(OSError):
            # To read all of a file that grows without end would take as long.
            size = path.lstat().st_size
            if size > file.bytes:
                raise VerifyMismatch(f"{path} has size {size} instead of {file.bytes}", _DAMAGED)
    shape = TextFormat() if spec is None else spec.format
    if isinstance(shape, TextFormat) and not header:
        shape = replace(shape, header=False)
    found = read_back(
        path,
        shape,
        Compression() if spec is None else spec.compression,
        rows=spec is not None,
        checksum=checksum_name(file.checksum),
        advance=advance,
        encryption=PLAIN if spec is None else spec.encryption,
    )
    rows = file.rows if found.rows is None else found.rows
    differences = [
        f"{what} {now} instead of {was}"
        for what, was, now in (
            ("size", file.bytes, found.bytes),
            ("checksum", file.checksum, found.checksum),
            ("rows", file.rows, rows),
        )
        if was != now
    ]
    if differences:
        raise VerifyMismatch(f"{path} has {', '.join(differences)}", _DAMAGED)


def check_values(
    index: WrittenFile, opened: Callable[[str], Readable], advance: Advance = lambda size: None
) -> None:
    """Read the files again that an undamaged index lists; `opened` opens files by their paths."""
    folder, algorithm = index.path.rpartition("/")[0], checksum_name(index.checksum)
    for each in listed(opened(index.path)):
        checksum = f"{algorithm}:{each.digest}"
        path = f"{folder}/{each.name}"
        written = WrittenFile(path=path, rows=0, bytes=each.bytes, checksum=checksum)
        check_file(opened(path), written, advance=advance)


def damaged_units(
    storage: RunStorage, finished: Mapping[str, FinishedUnit], tick: Callable[[], None]
) -> dict[str, str]:
    """Return the units whose staged files differ in size or checksum, with the damage."""

    def damage(unit: FinishedUnit, advance: Advance) -> str:
        for file in unit.files:
            try:
                if file.upload is not None:
                    storage.compare_upload(file.directory, file.upload)
                else:
                    path = storage.staged_file(file.directory, file.path)
                    check_file(path, file, advance=advance)
                    if "/" in file.path:
                        check_values(file, partial(storage.staged_file, file.directory), advance)
            except StoreFailed as error:
                # A store that does not answer now reports nothing about its files.
                if not isinstance(error, Superseded):
                    raise
                return error.message
            except (VerifyMismatch, WriteError) as error:
                return str(getattr(error, "message", error))
        return ""

    jobs = [partial(damage, unit) for unit in finished.values()]
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    texts = in_parallel(jobs, threads, lambda done, amount: tick())
    return {name: wrong for name, wrong in zip(finished, texts, strict=True) if wrong}


class CheckedFile(Struct, frozen=True, kw_only=True):
    path: Readable
    written: WrittenFile
    header: bool = True
    """Whether it begins with one, where the format has one."""
    part: str = ""
    """The part of the fetched rows that it holds, or a piece of."""
    opened: Callable[[str], Readable] | None = None
    """Opens another file of the same place by its path; for an index of large objects."""


def read_files(
    files: Sequence[CheckedFile],
    spec: OutputSpec,
    parallelism: int,
    fetched: Fetched | None,
    observe: Observer,
    check: Callable[[], None] = lambda: None,
) -> tuple[list[str], ContentSums | None]:
    """Read files again, and compare them with their records.

    With `fetched` their values are compared, too. `check` is called several times a second.
    Returns the differences in the order of the files. Then come the checksums of all files
    together; None where one could not be read, or values are not compared. A `FormatError` says
    that the library of their checksum is missing: nothing is known of them.
    """
    if fetched is not None and fetched.left_out:
        known = "; ".join(fetched.not_compared())
        observe(Notice(text=f"columns whose values the files do not show in full: {known}"))
    size = sum(file.written.bytes + file.written.value_bytes for file in files)

    def watch(done: int, read: int) -> None:
        check()
        observe(Verified(done=done, of=len(files), what="files", bytes=read, of_bytes=size))

    def read(file: CheckedFile, advance: Advance) -> str | ContentSums | None:
        try:
            packed = file.written.column != ""
            shape = None if packed else spec
            check_file(file.path, file.written, shape, header=file.header, advance=advance)
            if file.opened is not None and "/" in file.written.path:
                check_values(file.written, file.opened, advance)
            if fetched is None or packed:
                return None
            from writers.content.reading import file_sums

            ends = partial(advance, 0)
            return file_sums(file.path, spec, fetched.schema, header=file.header, check=ends)
        except FormatError:
            raise
        except (VerifyMismatch, WriteError) as error:
            known = translate(error)
            return known.message if known else str(error)

    found = in_parallel([partial(read, file) for file in files], parallelism, watch)
    texts = [each for each in found if isinstance(each, str)]
    if fetched is not None:
        of_parts: dict[str, list[int]] = {}
        for at, file in enumerate(files):
            if not file.written.column:
                of_parts.setdefault(file.part, []).append(at)
        for part, sums_of_part in fetched.parts.items():
            mine = of_parts.get(part, [])
            sums = [each for at in mine if isinstance(each := found[at], ContentSums)]
            if len(sums) < len(mine):
                continue  # The difference of a file of it is reported already.
            if not sums:
                rows = sums_of_part.rows
                texts += [f"{part} has {counted(rows, 'row')} and no file"] if rows else []
                continue
            names = ", ".join(str(files[at].path) for at in mine)
            places, total = (f"in {names}", f"fetched for {part}"), ContentSums.total(sums)
            texts += differing(total, sums_of_part, fetched.columns, places, fetched.left_out)
    sums = [each for each in found if isinstance(each, ContentSums)]
    of_rows = sum(not file.written.column for file in files)
    return texts, ContentSums.total(sums) if sums and len(sums) == of_rows else None


def some_of(found: Sequence[str], shown: int = 3) -> str:
    """Return the first differences in one text, and how many more there are."""
    more = f" and {len(found) - shown} more" if len(found) > shown else ""
    return "; ".join(found[:shown]) + more


TABLE = "the table"
"""The part where one file holds all units."""


NEW_RUN = "unload again with --verify full, which records checksums of the values for --level full"


def has_sums(manifest: Manifest) -> bool:
    """Return whether a run recorded checksums of all its values."""
    return all(unit.content for unit in manifest.units)


def fetched_by(manifest: Manifest) -> Fetched:
    """Return the reference for the values in a finished run's files."""
    parts = {unit.unit: unit.content for unit in manifest.units if unit.content}
    if len(parts) < len(manifest.units):
        asked = manifest.options
        own_values = asked.transform or asked.filter or asked.lob_files
        raise UsageError(
            f"run {manifest.run_id} recorded no checksums of values: it was verified by --verify "
            f"{manifest.verified.level}",
            NEW_RUN
            if own_values
            else "unload again with --verify full. If the source can compute checksums, compare "
            "files and database: unloader verify DEST SOURCE --level source",
        )
    if manifest.options.file_per == "table":
        parts = {TABLE: ContentSums.total(tuple(parts.values()))}
    # The Arrow schema of the written data, as far as its texts depend on it.
    schema = readings.schema_message(
        [
            (
                column.name,
                readings.Reading(
                    expression="",
                    output_type=column.output_type,
                    arrow_type=readings.recorded_type(column.output_type),
                    metadata=(("text_class", column.text_class),) if column.text_class else (),
                ),
            )
            for column in manifest.columns
        ]
    )
    names = tuple(column.name for column in manifest.columns)
    return fetched_of(schema, names, parts, manifest.options.dialect)
