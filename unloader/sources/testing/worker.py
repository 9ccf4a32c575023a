"""A reader in a process of its own, as in a run; part of the contract of a source.

Parent and worker must not share a process even in a test: DuckDB opens a file with one set of
options a process, and SQLite loses its locks where two libraries meet.
"""

from __future__ import annotations

import multiprocessing
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, cast

from partition_planner.model import WorkUnit
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import Source, TextReader
from unloader.sources.reading import read_again, unit_batches, unit_text
from writers.model import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

JOIN_SECONDS = 30.0


class WorkerReader:
    """A reader of one source; its process gets extracts and units pickled."""

    def __init__(self, source: Source, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        """Start the process and open the reader in it.

        Raises:
            AssertionError: The reader could not be opened.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, source, spec, snapshot))
        self._process.start()
        theirs.close()
        try:
            self._answer()
        except AssertionError:
            self.close()
            raise

    def batches(
        self, extract: Extract, unit: WorkUnit, *, batch_bytes: int
    ) -> list[pa.RecordBatch]:
        """Return the batches of one unit."""
        return cast("list[pa.RecordBatch]", self._ask("batches", extract, unit, batch_bytes))

    def break_off(self, extract: Extract, unit: WorkUnit, *, batch_bytes: int) -> None:
        """Read one batch of the unit and drop the rest."""
        self._ask("break_off", extract, unit, batch_bytes)

    def encoded(
        self, extract: Extract, unit: WorkUnit, text: TextFormat
    ) -> tuple[list[bytes], int]:
        """Return the pieces of text of one unit, and the rows that the reader counted."""
        return cast("tuple[list[bytes], int]", self._ask("encoded", extract, unit, text))

    def close(self) -> None:
        """Close the reader and end the process."""
        self._pipe.close()
        self._process.join(JOIN_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _ask(self, *request: object) -> object:
        self._pipe.send(request)
        return self._answer()

    def _answer(self) -> object:
        try:
            answer, problem = self._pipe.recv()
        except EOFError:
            raise AssertionError("the worker process ended without an answer") from None
        if problem is not None:
            raise AssertionError(f"a worker failed:\n{problem}")
        return answer


def _serve(pipe: Connection, source: Source, spec: SourceSpec, snapshot: Snapshot | None) -> None:
    """Answer requests until the other end is closed."""
    reader: Any = None
    request: tuple[Any, ...] = ("open",)
    while True:
        answer, problem = None, None
        try:
            if reader is None:
                reader = source.open_reader(spec, snapshot)
            else:
                answer = _handle(reader, *request)
        except Exception:  # whatever it is, the test is told
            problem = traceback.format_exc()
        pipe.send((answer, problem))
        try:
            request = pipe.recv()
        except EOFError:
            break
    if reader is not None:
        reader.close()


def _handle(reader: TextReader, method: str, extract: Extract, unit: WorkUnit, how: Any) -> object:
    if method == "encoded":
        counted: list[int] = []
        text = unit_text(reader, extract, unit, how, counted.append)
        return [bytes(chunk) for chunks in text for chunk in chunks], sum(counted)
    if method == "batches":
        return read_again(lambda: list(unit_batches(reader, extract, unit, batch_bytes=how)))
    read_again(lambda: next(unit_batches(reader, extract, unit, batch_bytes=how), None))
    return None
