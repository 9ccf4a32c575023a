"""Writers of delimited text: one that encodes batches, one that takes ready bytes.

The native encoder is used where it can be, else the plain one, which has the same bytes. The
records of ready text are counted from the written bytes, independently of the source.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter

import pyarrow as pa
from msgspec.structs import replace

from writers.built_library import Unusable
from writers.errors import FormatError, ValueNotRepresentable
from writers.files.publish import text_extension
from writers.files.sink import Sink, StagedFiles
from writers.held_values import held_row
from writers.large_rows import LargeRow, check_large_row
from writers.model import EncoderChoice, OutputSpec, StageSeconds, TextFormat, WrittenFile
from writers.native.encoder import NativeEncoder, check_choice, library, why_not
from writers.schema import check_schema
from writers.text.delimited import PlainEncoder
from writers.text.dialects import OutputEncoding
from writers.text.enclosing import FormulaGuard, endings
from writers.text.fixed_width import record_bytes

_PIECES_PER_FILE = 8
"""A file of limited size is written in at least this many pieces, so it ends near its limit."""

_WIDE_BYTES = 8 * 1024 * 1024
"""Rows from this size on are encoded piece by piece. Whole, one takes several times its size."""


def file_start(schema: pa.Schema, text_format: TextFormat) -> bytes:
    """Return what every file begins with: the preamble of the encoding and the header line."""
    if text_format.guard_formulas:
        schema = FormulaGuard(schema).schema
    return _start(open_encoder(schema, text_format, "plain"), text_format)


def start_of_names(names: Sequence[str], text_format: TextFormat) -> bytes:
    """Return the same for text that arrives ready, from the column names alone."""
    return file_start(pa.schema([(name, pa.string()) for name in names]), text_format)


class _TextFiles:
    def __init__(self, spec: OutputSpec, text_format: TextFormat, stem: str) -> None:
        if spec.encryption.keyed:
            raise FormatError("text cannot be encrypted with a Parquet key.", "give recipients.")
        extension = text_extension(text_format, spec.compression, spec.encryption)
        self._files = StagedFiles(spec, stem, extension, spec.compression)
        self._encode_seconds = 0.0

    def abort(self) -> None:
        self._files.abort()

    @property
    def bytes_written(self) -> int:
        return self._files.bytes_written

    @property
    def stages(self) -> StageSeconds:
        return self._files.stages(self._encode_seconds)

    def _close(self, rows: int) -> tuple[WrittenFile, ...]:
        """Finish the file being written, if any, which holds `rows` rows."""
        try:
            if self._files.is_open:
                self._files.finish(rows)
        except BaseException:
            self._files.abort()
            raise
        return self._files.files


class TextWriter(_TextFiles):
    """Encodes batches of one work unit as delimited text; `close` or `abort` ends it, once.

    Where a new file starts depends on the rows and the spec only, never on the clock, so the same
    batches give the same files on every run. Files that are joined have neither preamble nor header
    (`writes_header`).
    """

    def __init__(
        self, spec: OutputSpec, schema: pa.Schema, stem: str, *, writes_header: bool = True
    ) -> None:
        if not isinstance(spec.format, TextFormat):
            raise FormatError(f"a text writer cannot write {type(spec.format).__name__}.")
        self._guard = FormulaGuard(schema) if spec.format.guard_formulas else None
        self._encoder = open_encoder(
            self._guard.schema if self._guard else schema, spec.format, spec.encoder
        )
        self._schema = schema
        self._format = spec.format
        self._start = _start(self._encoder, spec.format) if writes_header else b""
        self._first_cell: FirstCell | None = None
        """Set while the first row of a file without header is to come."""
        self._size_limit = spec.file_size_bytes
        self._piece_bytes = spec.buffer_bytes
        if self._size_limit:
            limit = max(1, self._size_limit // _PIECES_PER_FILE)
            self._piece_bytes = min(self._piece_bytes, limit)
        self._least_row_bytes = record_bytes(spec.format) if spec.format.fixed else 1
        self._compressed = spec.compression.codec != "none"
        self._text_bytes = self._text_rows = self._file_rows = self._next_look = 0
        super().__init__(spec, spec.format, stem)
        self._begin_file()

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode one batch of the schema; ValueNotRepresentable names column and row."""
        check_schema(batch, self._schema)
        if self._guard is not None:
            batch = self._guard.batch(batch)
        for piece in self._pieces(batch):
            if not self._files.is_open:
                self._begin_file()
            size = self._encode(piece)
            self._text_bytes += size
            self._text_rows += piece.num_rows
            self._end_rows(piece.num_rows)

    def write_large(self, row: LargeRow) -> None:
        """Encode one row in bounded memory, to the bytes of a batch of the same row.

        Reading its pieces counts as encoding.
        """
        check_large_row(row, self._schema)
        if self._guard is not None:
            row = self._guard.row(row)
        if not self._files.is_open:
            self._begin_file()
        self._encode_large(row)
        # It says nothing about the width of the rows to come, so it is not counted in for them.
        self._end_rows(1)

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish and sync the files, which keep their staging names; or leave none."""
        return self._close(self._file_rows)

    def _encode(self, piece: pa.RecordBatch) -> int:
        if piece.num_rows == 1 and piece.nbytes >= _WIDE_BYTES and (wide := held_row(piece)):
            return self._encode_large(wide)
        if self._first_cell is not None:
            first, self._first_cell = self._first_cell, None
            text = bytes(self._encoder.encode(piece.slice(0, 1)))
            self._files.sink().write(first.passed(text))
            rest = piece.slice(1)
            return len(text) + (self._encode(rest) if rest.num_rows else 0)
        size, seconds = encode_into(self._files.sink(), self._encoder, piece)
        self._encode_seconds += seconds
        return size

    def _encode_large(self, row: LargeRow) -> int:
        size, started = 0, perf_counter()
        first, self._first_cell = self._first_cell, None
        for piece in self._encoder.encode_large(row):
            if first is not None:
                piece = first.passed(piece)
            self._encode_seconds += perf_counter() - started
            self._files.sink().write(piece)
            size += len(piece)
            started = perf_counter()
        self._encode_seconds += perf_counter() - started
        return size

    def _end_rows(self, rows: int) -> None:
        self._file_rows += rows
        if self._is_full():
            self._files.finish(self._file_rows)

    def _begin_file(self) -> None:
        self._file_rows = 0
        self._next_look = self._size_limit
        self._files.sink().write(self._start)
        first = FirstCell(self._format, self._schema.names[0])
        self._first_cell = None if self._format.header or first.is_over else first

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch into pieces of about `_piece_bytes` of text, guessed from earlier ones."""
        start, rows = 0, batch.num_rows
        while start < rows:
            bytes_per_row = (
                self._text_bytes / self._text_rows if self._text_rows else batch.nbytes / rows
            )
            count = max(1, int(self._piece_bytes / max(bytes_per_row, self._least_row_bytes)))
            piece = batch.slice(start, count)
            # Rows may grow suddenly (an empty column, then large objects).
            while piece.num_rows > 1 and piece.nbytes > 2 * self._piece_bytes:
                piece = piece.slice(0, piece.num_rows // 2)
            start += piece.num_rows
            yield piece

    def _is_full(self) -> bool:
        """Return whether the file has reached its size.

        Compressed bytes lag behind, and waiting for them costs the overlap. Text does not grow
        when compressed, so the next look is due only when the rest, uncompressed, is there.
        """
        if not self._size_limit:
            return False
        sink = self._files.sink()
        if sink.bytes_accepted < self._next_look:
            return False
        if not self._compressed:
            return True
        sink.settle()
        missing = self._size_limit - sink.bytes_written
        self._next_look = sink.bytes_accepted + missing
        return missing <= 0


class EncodedTextWriter(_TextFiles):
    """Takes text that is already encoded and leaves one file, which begins with a header."""

    def __init__(self, spec: OutputSpec, stem: str, header: bytes = b"") -> None:
        if not isinstance(spec.format, TextFormat):
            raise FormatError(f"ready text cannot be written as {type(spec.format).__name__}.")
        super().__init__(replace(spec, file_size_bytes=0), spec.format, stem)
        self._counter = RecordCounter(spec.format.enclosure.encode())
        self._first_cell = FirstCell(spec.format, "1")
        self._first_cell.is_over |= spec.format.header
        self._files.sink().write(header)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._counter.add(data)
        self._files.sink().write(
            data if self._first_cell.is_over else self._first_cell.passed(bytes(data))
        )

    @property
    def records(self) -> int:
        return self._counter.records

    def close(self, rows: int) -> tuple[WrittenFile, ...]:
        if rest := self._first_cell.rest():
            self._files.sink().write(rest)
        return self._close(rows)


def _start(encoder: PlainEncoder | NativeEncoder, text_format: TextFormat) -> bytes:
    """Return preamble and header, whose first name is enclosed where it begins with U+FEFF."""
    try:
        return encoder.preamble() + FirstCell(text_format, "1").passed(encoder.header())
    except ValueNotRepresentable as error:
        raise FormatError(
            "the name of the first column begins with U+FEFF, which readers drop at the start of "
            "a file.",
            "use --no-header, --enclose minimal, or another name with --rename.",
        ) from error


_WINDOW_BYTES = 1 << 20
"""A larger text is copied by this number of bytes, where it has to be copied."""


class RecordCounter:
    """Counts line feeds outside enclosures (one byte, doubled inside), in any pieces."""

    def __init__(self, enclosure: bytes) -> None:
        self.records = 0
        self._enclosure = enclosure
        self._inside = ctypes.c_uint8(0)
        self._native: Callable[..., int] | None = None
        with suppress(Unusable):
            self._native = library().unloader_count_records

    def add(self, text: bytes | bytearray | memoryview) -> None:
        """Count the records that end in a text, which continues the previous one."""
        if self._native is not None and not (isinstance(text, memoryview) and text.readonly):
            inside = ctypes.byref(self._inside)
            where = text if isinstance(text, bytes) else (ctypes.c_char * 0).from_buffer(text)
            self.records += self._native(where, len(text), self._enclosure, inside)
            return
        for start in range(0, len(text), _WINDOW_BYTES):
            self._add(bytes(text[start : start + _WINDOW_BYTES]))

    def _add(self, text: bytes) -> None:
        if self._native is not None:
            self.add(text)
            return
        parts = text.split(self._enclosure)
        outside = parts[self._inside.value :: 2]
        self.records += sum(part.count(b"\n") for part in outside)
        self._inside.value = (self._inside.value + len(parts) - 1) % 2


BYTE_ORDER_MARK = "\ufeff"


class FirstCell:
    """Passes the text of one file on, and encloses its first cell where it begins with U+FEFF.

    Readers take that character for a byte order mark at the start of a file, and drop it. They keep
    it in an enclosure. A format that cannot enclose refuses the cell.
    """

    def __init__(self, format: TextFormat, column: str) -> None:
        self._format = format
        self._column = column
        encoding = OutputEncoding(format.encoding)
        unicode = encoding.holds_all and not format.record_length_digits
        self._mark = encoding.encode(BYTE_ORDER_MARK) if unicode else b""
        self._enclosure = encoding.encode(format.enclosure)
        self._ends = [encoding.encode(end) for end in (format.delimiter, format.eol) if end]
        self._width = len(encoding.encode(" "))
        self._kept = max(map(len, self._ends), default=0) - self._width
        """Bytes of the cell that may begin one of its ends."""
        self._held = b""
        self._is_inside = False
        self.is_over = not unicode
        """Whether all further text is passed on as it is."""

    def passed(self, text: bytes) -> bytes:
        """Return what to write of the next bytes, some later; or refuse a first cell."""
        if self.is_over:
            return text
        text, self._held = self._held + text, b""
        if self._is_inside:
            return self._ended(text)
        if not text.startswith(self._mark):
            if self._mark.startswith(text):
                self._held = text
                return b""
            self.is_over = True
            return text
        if not self._enclosure or endings(self._format.enclosure):
            raise ValueNotRepresentable(
                f"column {self._column}, row 1: the first value of the file begins with U+FEFF, "
                "which readers drop at the start of a file.",
                "use --header, or --enclose minimal with an --enclosure of one character.",
            )
        self._is_inside = True
        return self._enclosure + self._ended(text)

    def rest(self) -> bytes:
        self.is_over = True
        return self._held

    def _ended(self, text: bytes) -> bytes:
        """Return a part of the cell, with the enclosure at its end if that is in it."""
        end = self._end_in(text)
        if end < 0:
            cut = max(0, len(text) - self._kept)
            self._held = text[cut:]
            return text[:cut]
        self.is_over = True
        return b"".join((text[:end], self._enclosure, text[end:]))

    def _end_in(self, text: bytes) -> int:
        """Return where the cell ends; a bare one holds no end. -1: later."""
        found = []
        for end in self._ends:
            at = text.find(end)
            while at % self._width and at >= 0:
                at = text.find(end, at + 1)
            found.append(at)
        return min((at for at in found if at >= 0), default=-1)


def open_encoder(
    schema: pa.Schema, format: TextFormat, choice: EncoderChoice = "auto"
) -> PlainEncoder | NativeEncoder:
    """Return an encoder: auto is the native one where it can be used, else the plain one."""
    check_choice(choice)
    if choice != "plain" and why_not() is None:
        return NativeEncoder(schema, format)
    return PlainEncoder(schema, format)


def encode_into(
    sink: Sink, encoder: PlainEncoder | NativeEncoder, batch: pa.RecordBatch
) -> tuple[int, float]:
    """Encode a batch after what a sink was given before; it may have rows before a refused value.

    Return the bytes of the records, and the wall seconds of encoding without waiting for room.
    """
    started = perf_counter()
    if isinstance(encoder, PlainEncoder):
        text = encoder.encode(batch)
        seconds = perf_counter() - started
        sink.write(text)
        return len(text), seconds
    size, seconds = 0, 0.0
    with encoder.rows(batch) as rows:
        seconds += perf_counter() - started
        while not rows.done:
            room = sink.room()
            started = perf_counter()
            count = rows.fill(room)
            records = None if count else rows.next_records()
            seconds += perf_counter() - started
            if records is None:
                sink.advance(count)
            else:
                sink.write(records)
            size += count if records is None else len(records)
    return size, seconds
