"""The checksums of the columns of a written file, read by other code than wrote it.

Parquet is read by pyarrow's reader, delimited text by pyarrow's CSV reader where that knows the
dialect, and by `records` otherwise.

Fields of delimited text in any dialect: a slow reader for dialects that pyarrow's does not know.

It follows the description of the dialects and none of the writer's code. A record that the text
ends in the middle of is read again once there is more.

The values of a written text column: what its fields are, and which cannot be told any more.

A dialect may show less than there was: a mask without the fraction, a substitute for a character.
Such a column is named and left out, never compared with something else.
"""

from __future__ import annotations

import base64
import codecs
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import csv, types

from writers.content.sums import ColumnSums, Form, Kind, form_of
from writers.encryption.parquet import reading_options
from writers.errors import WriteError
from writers.files.read_back import (
    Readable,
    arrow_stream,
    arrow_table,
    count_fixed,
    decompressed,
    decrypted,
    is_plain,
    parquet_batches,
    plain_records,
)
from writers.files.regular import write_error
from writers.model import Compression, ContentSums, OutputSpec, ParquetFormat, TextFormat
from writers.schema import pc, read_schema, text_class
from writers.text.enclosing import is_guarded
from writers.text.mask_texts import UNIT_DIGITS

_ROWS = 10_000
_BATCH_CHARACTERS = 1 << 22
_PIECE_BYTES = 1 << 20

Check = Callable[[], None]


def not_compared(message: str, format: TextFormat | ParquetFormat) -> dict[int, str]:
    """Return the columns whose values a file does not show in full, by index, each with why."""
    if isinstance(format, ParquetFormat):
        return {}
    return _left_out(read_schema(message), format)


def _left_out(schema: pa.Schema, format: TextFormat) -> dict[int, str]:
    reasons = ((index, why_not(field, format)) for index, field in enumerate(schema))
    return {index: reason for index, reason in reasons if reason}


def file_sums(
    path: Readable, spec: OutputSpec, message: str, *, header: bool, check: Check
) -> ContentSums:
    """Return the checksums of a file's columns; columns `not_compared` count no values.

    `message` is the schema of the written data (`writers.schema.schema_text`), `header` whether the
    file begins with one where the format has one. `check` is called regularly; an error that it
    raises ends the reading. WriteError: the file cannot be read, or differs from the written data.
    """
    format, schema = spec.format, read_schema(message)
    try:
        if isinstance(format, ParquetFormat):
            sums = ColumnSums(schema)
            with pq.ParquetFile(arrow_stream(path), **reading_options(spec.encryption)) as file:
                if file.schema_arrow.names != schema.names:
                    raise ValueError(f"its columns are {', '.join(file.schema_arrow.names)}")
                for batch in parquet_batches(file):
                    check()
                    sums.add(batch.columns, batch.num_rows)
            return sums.result()
        text = replace(format, header=format.header and header)
        plain = decrypted(path, spec.encryption)
        sums, left_out = ColumnSums(schema), _left_out(schema, text)
        if text.fixed:
            # No mark tells its fields apart, maybe none its records, and no column is compared.
            sums.count(count_fixed(plain, text, spec.compression, check))
            return sums.result()
        for columns, rows in _text_columns(plain, text, spec.compression, len(schema)):
            check()
            sums.count(rows)
            for index, (texts, field) in enumerate(zip(columns, schema, strict=True)):
                if index not in left_out:
                    sums.add_column(index, *values_of(texts, field, text))
        return sums.result()
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    except (pa.ArrowException, ValueError) as exc:
        raise WriteError(
            f"{path} differs from the data that was written: {exc}.", "unload the table again."
        ) from exc


def _text_columns(
    path: Readable, format: TextFormat, compression: Compression, columns: int
) -> Iterator[tuple[Sequence[pa.Array], int]]:
    """Yield texts of each column and the number of rows, some rows at a time."""
    if not is_plain(format):
        with decompressed(path, compression) as file:
            records = Records(format, columns).read(_pieces(file, format.encoding))
            if format.header:
                next(records, None)
            for rows in _batches(records):
                turned: Iterator[tuple[Field, ...]] = zip(*rows, strict=True)
                yield [pa.array(column, pa.large_string()) for column in turned], len(rows)
        return
    # The reader finds one more field after the delimiter that follows the last value.
    fields = columns + 1 if format.trailing_delimiter else columns
    names = [f"f{position}" for position in range(fields)]
    values = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[format.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    header = int(format.header)
    for block in plain_records(path, format, compression):
        table = arrow_table(block, format, names, values)
        for batch in table.slice(header).to_batches():
            # The writer leaves nothing after the last delimiter.
            behind = batch.columns[columns:]
            if any(pc.max(pc.binary_length(column)).as_py() for column in behind):
                raise ValueError("a record has text after its last delimiter")
            yield batch.columns[:columns], batch.num_rows
        header = 0


def _batches(records: Iterator[list[Field]]) -> Iterator[list[list[Field]]]:
    """Yield some records at a time, fewer of them where they are wide."""
    rows: list[list[Field]] = []
    size = 0
    for record in records:
        rows.append(record)
        size += sum(len(field) for field in record if field)
        if len(rows) == _ROWS or size > _BATCH_CHARACTERS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _pieces(file: Any, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    while data := file.read(_PIECE_BYTES):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


Field = str | None
"""A value's text, None for NULL."""

_CODES = {"n": "\n", "t": "\t", "r": "\r"}

_ENDS_WITHIN = "the text ends within a record."


class _Incomplete(WriteError):
    pass


class Records(Struct):
    """Reads records out of pieces of text, with a number of fields each."""

    format: TextFormat
    columns: int
    _text: str = ""
    _at: int = 0
    _whole: bool = False
    """All pieces have come."""

    def read(self, pieces: Iterator[str]) -> Iterator[list[Field]]:
        """Yield the fields of each record, the header among them; ValueError for another dialect.

        A record that has not ended is read again once there is twice as much of it, so the time
        grows with its size and not with the square of it.
        """
        waiting: list[str] = []
        size = 0
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= len(self._text):
                yield from self._ready(waiting)
                waiting, size = [], 0
        self._whole = True
        yield from self._ready(waiting)
        if self._text:
            raise ValueError("the last record has no end")

    def _ready(self, pieces: list[str]) -> Iterator[list[Field]]:
        """Yield the records that end in the text and some further pieces, and keep the rest."""
        self._text, self._at = "".join((self._text, *pieces)), 0
        while self._at < len(self._text):
            start = self._at
            try:
                record = self._record()
            except _Incomplete:
                self._text, self._at = self._text[start:], 0
                return
            yield record
        self._text, self._at = "", 0

    def _record(self) -> list[Field]:
        format = self.format
        self._at += format.record_length_digits
        fields = []
        for column in range(self.columns):
            last = column == self.columns - 1 and not format.trailing_delimiter
            fields.append(self._field(format.eol if last else format.delimiter))
        if format.trailing_delimiter:
            self._skip(format.eol)
        return fields

    def _field(self, end: str) -> Field:
        mark = self.format.enclosure
        if mark and self.format.enclose != "none" and self._is_next(mark):
            self._at += len(mark)
            value = self._enclosed(mark)
            self._skip(end)
            return value
        return self._bare(end)

    def _is_next(self, mark: str) -> bool:
        if not self._whole and len(self._text) - self._at < len(mark):
            raise _Incomplete(_ENDS_WITHIN)
        return self._text.startswith(mark, self._at)

    def _skip(self, mark: str) -> None:
        if not self._is_next(mark):
            if self._whole and self._at >= len(self._text):
                raise _Incomplete(_ENDS_WITHIN)
            raise ValueError(f"{mark!r} is missing after a value")
        self._at += len(mark)

    def _find(self, mark: str, start: int) -> int:
        found = self._text.find(mark, start)
        if found < 0:
            raise _Incomplete(_ENDS_WITHIN)
        return found

    def _enclosed(self, mark: str) -> str:
        start = self._at
        if self.format.escape == "backslash":
            end, value = self._unescaped(start, mark)
            self._at = end + len(mark)
            return value
        text = io.StringIO()
        while True:
            end = self._find(mark, start)
            text.write(self._text[start:end])
            self._at = end + len(mark)
            if self.format.escape != "double" or not self._is_next(mark):
                return text.getvalue()
            text.write(mark)
            start = self._at + len(mark)

    def _bare(self, end: str) -> Field:
        start = self._at
        if self.format.escape == "backslash":
            stop, value = self._unescaped(start, end)
        else:
            stop = self._find(end, start)
            value = self._text[start:stop]
        self._at = stop + len(end)
        return None if self._text[start:stop] == self.format.null else value

    def _unescaped(self, start: int, end: str) -> tuple[int, str]:
        r"""Return the place of the first mark without a backslash before it, and the value."""
        value = io.StringIO()
        stop = self._find(end, start)
        while (escape := self._text.find("\\", start, stop)) >= 0:
            following = self._text[escape + 1]
            value.write(self._text[start:escape])
            value.write(_CODES.get(following, following))
            start = escape + 2
            if start > stop:
                stop = self._find(end, start)
        value.write(self._text[start:stop])
        return stop, value.getvalue()


_MASK = re.compile(r'(YYYY|MM|DD|HH24|MI|SS)|FF([1-9])|"([^"]*)"|([-/.,;: ])', re.IGNORECASE)
_LENGTHS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "MI": 2, "SS": 2}
_PREFIXES = {"prefixed-hex": 2, "hex": 0}

Slices = dict[str, tuple[int, int]]
"""The place of each element of a mask in a text that follows it: first character, and the end."""


def why_not(field: pa.Field, format: TextFormat) -> str:
    """Return why the values of a column cannot be told from its text; empty if they can."""
    if format.fixed:
        return "padding of fixed width hides blanks and NULLs"
    kind = field.type
    moment = types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind)
    textual = not (moment or _is_number(kind) or types.is_boolean(kind))
    if format.substitute is not None and textual:
        return "--substitute may have replaced characters"
    if format.guard_formulas and is_guarded(field):
        return "--guard-formulas may have put a quote before the value"
    if text_class(field) == "timestamp" and format.moves_to_utc:
        return "the dialect writes timestamps with a time zone in UTC, without their offset"
    mask = _mask_of(field, format)
    if mask is not None and _slices(field, mask, format) is None:
        return f"the format {mask} does not show all of a value"
    return ""


def values_of(texts: pa.Array, field: pa.Field, format: TextFormat) -> tuple[pa.Array, Form]:
    """Return the fields of a column, null for NULL, as an array with a form."""
    kind = field.type
    number = _is_number(kind) or text_class(field) == "number"
    if number and format.decimal_separator != ".":
        texts = pc.replace_substring(texts, format.decimal_separator, ".")
    if types.is_floating(kind):
        array = pc.cast(texts, kind)
        return array, _form(array)
    if number:
        return texts, _form(texts, "number")
    if types.is_boolean(kind):
        yes, no = format.boolean.split("/")
        array = pc.equal(texts, yes)
        if not pc.all(pc.fill_null(pc.or_(array, pc.equal(texts, no)), True)).as_py():
            raise ValueError(f"a truth value is neither {yes} nor {no}")
        return array, _form(array)
    if types.is_binary(kind) or types.is_large_binary(kind):
        if format.binary == "base64":
            found = [None if each is None else base64.b64decode(each) for each in texts.to_pylist()]
            array = pa.array(found, pa.large_binary())
            return array, _form(array)
        width, prefix = _form(texts).width, _PREFIXES[format.binary]
        return texts, Form(kind=Kind.HEX_TEXT, width=width, digits=prefix)
    mask = _mask_of(field, format)
    if mask is not None:
        texts = _rearranged(texts, field, mask, format)
    elif types.is_timestamp(kind) and kind.tz is not None and format.moves_to_utc:
        # An infinity has no offset.
        texts = pc.replace_substring_regex(texts, r"^(\d.*?)( BC)?$", r"\1+00:00\2")
    return texts, _form(texts)


def _form(array: pa.Array, text_class: str = "") -> Form:
    form = form_of(array.type, text_class=text_class)
    assert form is not None
    return form


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind))


def _mask_of(field: pa.Field, format: TextFormat) -> str | None:
    if text_class(field) == "timestamp":
        return format.timestamp_tz_format or format.timestamp_format
    if types.is_date(field.type):
        return format.date_format
    if not types.is_timestamp(field.type):
        return None
    if text_class(field) == "date" and format.date_format is not None:
        return format.date_format
    return format.timestamp_format if field.type.tz is None else format.timestamp_tz_format


def _slices(field: pa.Field, mask: str, format: TextFormat) -> Slices | None:
    """Return where a mask's elements stand, None if it does not show all of a value once."""
    found: Slices = {}
    at = end = 0
    for match in _MASK.finditer(mask):
        name = (match[1] or "").upper() or ("FF" if match[2] else "")
        length = _LENGTHS.get(name) or int(match[2] or 0) or len(match[3] or match[4] or "")
        if match.start() != end or name in found:
            return None
        end, start, at = match.end(), at, at + length
        if name:
            found[name] = (start, at)
    needed = {"YYYY", "MM", "DD"}
    if types.is_timestamp(field.type):
        if field.type.tz is not None:
            return None
        needed |= {"HH24", "MI", "SS"}
        first, last = found.get("FF", (0, 0))
        # Where fractions are kept, they were written whole: the writer refuses to cut them.
        if format.fractions == "mask" and last - first < UNIT_DIGITS[field.type.unit]:
            return None
    elif text_class(field) == "timestamp":
        return None
    return found if end == len(mask) and needed <= found.keys() else None


def _rearranged(texts: pa.Array, field: pa.Field, mask: str, format: TextFormat) -> pa.Array:
    """Return ISO 8601 for texts that follow a mask."""
    slices = _slices(field, mask, format)
    assert slices is not None, "asked before"

    def part(name: str) -> Any:
        return pc.utf8_slice_codeunits(texts, *slices[name])

    def joined(mark: str, *parts: Any) -> Any:
        return pc.binary_join_element_wise(*parts, pa.scalar(mark, texts.type))

    date = joined("-", part("YYYY"), part("MM"), part("DD"))
    if types.is_date(field.type):
        return date
    moment = joined(" ", date, joined(":", part("HH24"), part("MI"), part("SS")))
    if "FF" not in slices:
        return moment
    return pc.ascii_rtrim(pc.ascii_rtrim(joined(".", moment, part("FF")), "0"), ".")
