"""A reader that stops in the middle of a unit when its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from unloader.sources.base import Reader, Text, TextReader
from unloader.worker.progress import RowEstimate

if TYPE_CHECKING:
    from partition_planner.model import Piece
    from unloader.model import Extract
    from writers.model import TextFormat

T = TypeVar("T")


class TimedReader:
    """Passes on what a reader gives; a `unloader.sources.base.TextReader` if that one is.

    A unit that is cut off looks like one that ended, so what was read of it counts. The first item
    of all is waited for, however long it takes: without one there is no figure.
    """

    def __init__(
        self, reader: Reader, until: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a reader, and the time after which nothing more is asked of it.

        Args:
            reader: An open one, which the caller closes.
            until: By the clock.
            clock: Tells the time.
        """
        self._reader = reader
        self._until = until
        self._clock = clock
        self._estimate = RowEstimate()
        self._has_begun = self._is_cut = False
        self.encoded_rows = 0
        """Of the last text: as the source counts them, or estimated where it was cut off."""

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._has_begun and self._clock() >= self._until

    def batches(self, extract: Extract, piece: Piece, *, batch_bytes: int) -> Iterator[Any]:
        """Yield batches as `Reader.batches` does, until the time is over."""
        return self._timed(lambda: self._reader.batches(extract, piece, batch_bytes=batch_bytes))

    def encoded(
        self, extract: Extract, piece: Piece, text: TextFormat
    ) -> Iterator[tuple[Text, ...]]:
        """Yield text as `TextReader.encoded` does, until the time is over."""
        reader = cast(TextReader, self._reader)
        estimated = 0
        for each in self._timed(lambda: reader.encoded(extract, piece, text)):
            estimated += self._estimate(each)
            yield each
        # A statement that was cut off has no count.
        self.encoded_rows = estimated if self._is_cut else reader.encoded_rows

    def close(self) -> None:
        """Leave the reader open: it is the caller's."""

    def _timed(self, items: Callable[[], Iterator[T]]) -> Iterator[T]:
        self._is_cut = self.is_over
        if self._is_cut:
            return
        iterator = items()
        for item in iterator:
            self._has_begun = True
            yield item
            del item
            self._is_cut = self.is_over
            if self._is_cut:
                break
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
