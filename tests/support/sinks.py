"""Sinks with small buffers, text for them, and the reading of their output."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from writers.files.sink import Sink
from writers.model import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 180.0


def open_sink(
    path: Path, codec: str = "none", level: int | None = None, size: int = 4096, buffers: int = 4
) -> Sink:
    """Return a sink with small buffers."""
    return Sink(
        path,
        compression=Compression(codec=codec, level=level),  # type: ignore[arg-type]
        buffer_bytes=size,
        buffers=buffers,
    )


def text(size: int, seed: int = 1) -> bytes:
    """Return text of that size, compressible as text is."""
    words = random.Random(seed).choices([b"alpha,", b"beta,", b"\n", b"12.50,", b"gamma"], k=size)
    return b"".join(words)[:size]


def in_time(act: Callable[[], None]) -> None:
    """Run `act` in a thread and fail when it hangs."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the producer hangs"
    if failures:
        raise failures[0]


@contextlib.contextmanager
def ends_of_threads() -> Iterator[list[type[BaseException] | None]]:
    """Collect the kinds of exceptions that end threads."""
    kinds: list[type[BaseException] | None] = []
    before, threading.excepthook = threading.excepthook, lambda args: kinds.append(args.exc_type)
    try:
        yield kinds
    finally:
        threading.excepthook = before


def unzstd(path: Path) -> bytes:
    """Decompress with the reader of zstandard, which checks the content's checksum."""
    with zstandard.open(path, "rb") as file:
        return bytes(file.read())
