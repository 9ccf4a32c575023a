"""What else is in the lock of a table of many: its journal, and the record of its publication.

A night makes a directory for each of thousands of tables, most of them small. Each file that is
made there and removed again costs more than the rows of such a table. So there is one where others
have three. Its lines:

    {"run_id": ...}            whose the `_run` is
    {"lines_of": ...}          the same run again: what follows is its own
    {"event": ...}             the journal
    {"version": ...}           the record of the publication, if it has begun

The second line is there as a power cut may leave the new first line of another run in front of what
should be gone. A process that goes on with the run moves the journal into a file of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.json import encode

from unloader.storage.directories.leftovers import LOCK, read_holder
from writers.files.regular import open_regular, read_regular

RECORD_BEGINS = b'{"version":'
"""No line of a journal begins so."""


def begin(lock: int, run_id: str) -> None:
    """Make a lock ready for further lines, behind the one that tells whose it is.

    Raises:
        OSError: The file system refused.
    """
    os.pwrite(lock, _second_line(run_id), os.fstat(lock).st_size)


def journal(room: Path) -> bytes:
    """Return the lines of the journal that are in the lock of a `_run`.

    Raises:
        OSError: It cannot be read.
    """
    lines = _lines(room)
    last = _last(lines)
    return lines[: len(lines) - len(last)] if last.startswith(RECORD_BEGINS) else lines


def record(room: Path) -> bytes:
    """Return the line of the publication; empty where the lock does not end with one.

    Raises:
        OSError: It cannot be read.
    """
    last = _last(_lines(room))
    return last if last.startswith(RECORD_BEGINS) else b""


def add_record(lock: int, line: bytes) -> None:
    """Put the publication on record; the caller syncs it.

    Args:
        lock: The open lock of the run itself.
        line: The record.

    Raises:
        OSError: The file system refused; none of it is there then.
    """
    end = os.fstat(lock).st_size
    try:
        written = 0
        while written < len(line):  # What is refused of the rest says why.
            written += os.pwrite(lock, line[written:], end + written)
    except OSError:
        os.ftruncate(lock, end)
        raise


def take_record_out(room: Path) -> None:
    """Cut the publication off a lock that ends with one.

    It is not synced: one that a power cut brings back is brought to its end, as all of it is there.

    Raises:
        OSError: The file system refused.
    """
    line = record(room)
    if not line:
        return
    descriptor = open_regular(room / LOCK, os.O_RDWR)
    try:
        written = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        os.ftruncate(descriptor, written.rindex(line))
    finally:
        os.close(descriptor)


def _lines(room: Path) -> bytes:
    """Return the lines behind the second; one without an end, of a kill in mid-write, is none."""
    try:
        _, _, rest = read_regular(room / LOCK).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return b""
    second, end, lines = rest.partition(b"\n")
    if not second or second + end != _second_line(read_holder(room).run_id):
        return b""
    return lines[: lines.rfind(b"\n") + 1]


def _second_line(run_id: str) -> bytes:
    return encode({"lines_of": run_id}) + b"\n"


def _last(lines: bytes) -> bytes:
    return lines[lines[:-1].rfind(b"\n") + 1 :]
