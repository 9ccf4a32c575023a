"""Many files read again, side by side, and compared with what their writers reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from unloader.errors import VerifyMismatch, translate
from unloader.events import Observer, Verified
from unloader.manifest.file_check import check_file
from unloader.verification.parallel import Advance, in_parallel
from writers.errors import FormatError, WriteError
from writers.files.readable import Readable
from writers.model import OutputSpec, WrittenFile

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One file to be read again."""

    path: Readable
    written: WrittenFile
    header: bool = True
    """Whether it begins with one, where the format has one."""


def differences(
    files: Sequence[CheckedFile],
    spec: OutputSpec,
    parallelism: int,
    observe: Observer,
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """Return what is wrong with files, each difference with the file's name, in their order.

    Args:
        files: All of one run, or some.
        spec: How they were written.
        parallelism: So many are read at a time.
        observe: Called with the progress, in this thread.
        check: Called several times a second; what it raises ends all.

    Raises:
        FormatError: The library of the files' checksum is missing: nothing is known of them.
    """
    size = sum(file.written.bytes for file in files)

    def watch(done: int, read: int) -> None:
        check()
        observe(Verified(done=done, of=len(files), what="files", bytes=read, of_bytes=size))

    jobs = [partial(_difference, file, spec) for file in files]
    found = in_parallel(jobs, parallelism, watch)
    return [text for text in found if text]


def some_of(found: Sequence[str]) -> str:
    """Return the first differences in one text, and how many more there are."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _difference(file: CheckedFile, spec: OutputSpec, advance: Advance) -> str:
    try:
        check_file(file.path, file.written, spec, header=file.header, advance=advance)
    except FormatError:
        raise
    except (VerifyMismatch, WriteError) as error:
        known = translate(error)
        return known.message if known else str(error)
    return ""
