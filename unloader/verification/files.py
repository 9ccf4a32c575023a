"""Many files read again, side by side, and compared with what is known of them.

That is what their writers reported, and, where it was computed, the checksums of the values that
were fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from unloader.errors import VerifyMismatch, translate
from unloader.events import Observer, Verified
from unloader.manifest.file_check import check_file
from unloader.nouns import counted
from unloader.verification.content import Fetched, differing
from unloader.verification.parallel import Advance, in_parallel
from writers.content.sums import total
from writers.errors import FormatError, WriteError
from writers.files.readable import Readable
from writers.model import ContentSums, OutputSpec, WrittenFile

_SHOWN = 3


class CheckedFile(Struct, frozen=True, kw_only=True):
    """One file to be read again."""

    path: Readable
    written: WrittenFile
    header: bool = True
    """Whether it begins with one, where the format has one."""
    part: str = ""
    """The part of the fetched rows that it holds, or a piece of."""


class Reading(Struct, frozen=True, kw_only=True):
    """How files are read again."""

    spec: OutputSpec
    """How they were written."""
    parallelism: int
    """So many are read at a time."""
    fetched: Fetched | None = None
    """What their values are compared with; None compares sizes, checksums and records."""


class FilesRead(Struct, frozen=True, kw_only=True):
    """What came of reading files again."""

    differences: tuple[str, ...]
    """Each with the file's name, in the order of the files."""
    content: ContentSums | None
    """Of all files together; None where one could not be read, or values are not compared."""


def read_files(
    files: Sequence[CheckedFile],
    reading: Reading,
    observe: Observer,
    check: Callable[[], None] = lambda: None,
) -> FilesRead:
    """Read files again, and compare them with what is known of them.

    Args:
        files: All of one run, or some.
        reading: How they are read.
        observe: Called with the progress, in this thread.
        check: Called several times a second; what it raises ends all.

    Raises:
        FormatError: The library of the files' checksum is missing: nothing is known of them.
    """
    size = sum(file.written.bytes for file in files)

    def watch(done: int, read: int) -> None:
        check()
        observe(Verified(done=done, of=len(files), what="files", bytes=read, of_bytes=size))

    jobs = [partial(_read, file, reading) for file in files]
    found = in_parallel(jobs, reading.parallelism, watch)
    texts = [each for each in found if isinstance(each, str)]
    if reading.fetched is not None:
        texts += _content_differences(files, found, reading.fetched)
    sums = [each for each in found if isinstance(each, ContentSums)]
    return FilesRead(
        differences=tuple(texts),
        content=total(sums) if sums and len(sums) == len(files) else None,
    )


def some_of(found: Sequence[str]) -> str:
    """Return the first differences in one text, and how many more there are."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _read(file: CheckedFile, reading: Reading, advance: Advance) -> str | ContentSums | None:
    """Return the difference of a file, or the checksums of its columns if they are compared."""
    try:
        check_file(file.path, file.written, reading.spec, header=file.header, advance=advance)
        if reading.fetched is None:
            return None
        from writers.content.reading import file_sums

        return file_sums(
            file.path,
            reading.spec,
            reading.fetched.schema,
            header=file.header,
            check=partial(advance, 0),
        )
    except FormatError:
        raise
    except (VerifyMismatch, WriteError) as error:
        known = translate(error)
        return known.message if known else str(error)


def _content_differences(
    files: Sequence[CheckedFile], found: Sequence[str | ContentSums | None], fetched: Fetched
) -> Iterator[str]:
    of_parts: dict[str, list[tuple[CheckedFile, str | ContentSums | None]]] = {}
    for file, each in zip(files, found, strict=True):
        of_parts.setdefault(file.part, []).append((file, each))
    for part, known in fetched.parts.items():
        mine = of_parts.get(part, [])
        sums = [each for _, each in mine if isinstance(each, ContentSums)]
        if len(sums) < len(mine):
            continue  # What is wrong with a file of it has been said.
        names = ", ".join(str(file.path) for file, _ in mine)
        places = (f"in {names}", f"fetched for {part}")
        if sums:
            yield from differing(total(sums), known, fetched.columns, places, fetched.left_out)
        elif known.rows:
            yield f"{part} has {counted(known.rows, 'row')} and no file"
