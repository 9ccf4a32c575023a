"""The contract of a writer as one call: a broken promise raises an error that names it."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from writers.files.checksums import checksum_name, open_digest
from writers.large_rows import LargeRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from writers.model import WrittenFile
    from writers.registry import Writer

    Make = Callable[[Path, pa.Schema], Writer]
    ReadBack = Callable[[list[Path]], pa.Table]

_DAYS = (
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 15),
    date(1969, 12, 31),
    date(3844, 11, 27),
    date(9999, 12, 31),
)
# Made from text: arithmetic on a Decimal rounds to the 28 digits of its context.
_MAX_38 = (Decimal("9" * 38), Decimal("-" + "9" * 38))
_MAX_FRACTION = (Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38))
_MONEY = pa.decimal128(12, 2)


def check_writer(make: Make, read_back: ReadBack) -> None:
    """Check what both writers promise.

    Args:
        make: Starts a writer of batches of that schema in that empty directory.
        read_back: Reads files, given in the order the writer reported them, into a table with
            all rows in order and NULL apart from the empty string. Columns have the types of
            the schema, or text that Arrow casts to them.

    Raises:
        AssertionError: The writer broke a promise.
    """
    for name, batches in _cases():
        _check_round_trip(name, batches, make, read_back)
    _check_large_rows(make, read_back)
    _check_abort(make, [])
    _check_abort(make, _counted(5000, 1000))


def _cases() -> list[tuple[str, list[pa.RecordBatch]]]:
    texts = _texts()
    whole = _counted(10_000, 10_000)[0]
    slices = [whole.slice(start, 77) for start in range(13, 4000, 77)]
    return [
        ("no rows", [_counted(0, 1)[0]]),
        ("one row", _counted(1, 1)),
        ("many batches", _counted(12_000, 1_701)),
        ("slices of a batch", slices),
        ("an empty batch between others", [whole.slice(0, 9), whole.slice(0, 0), whole.slice(9)]),
        ("NULL, empty and awkward text", [texts]),
        ("awkward text in slices", [texts.slice(row, 1) for row in range(texts.num_rows)]),
        ("the widest numbers", [_numbers()]),
        ("dates and times at the edges", [_days()]),
    ]


def _check_round_trip(
    name: str, batches: Sequence[pa.RecordBatch], make: Make, read_back: ReadBack
) -> None:
    schema = batches[0].schema
    expected = pa.Table.from_batches(batches, schema)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        writer = make(directory, schema)
        for batch in batches:
            writer.write(batch)
        files = writer.close()
        _check_files(name, files, expected.num_rows, directory)
        _require(
            writer.bytes_written == sum(file.bytes for file in files),
            f"{name}: bytes_written is {writer.bytes_written} after close, the files hold "
            f"{sum(file.bytes for file in files)}",
        )
        found = read_back([directory / file.path for file in files])
    _check_rows(name, expected, found)


class PiecedText(Struct, frozen=True, kw_only=True):
    """A text as a large value in pieces of a few characters."""

    text: str
    piece_characters: int = 2
    binary: bool = False

    def pieces(self) -> Iterator[str]:
        """Read the text from its start."""
        size = self.piece_characters
        return (self.text[at : at + size] for at in range(0, len(self.text), size))


def _check_large_rows(make: Make, read_back: ReadBack) -> None:
    """Write every text in pieces, between batches of the same schema."""
    name, texts = "large rows between batches", _texts()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        writer = make(directory, texts.schema)
        for row in range(texts.num_rows):
            one = texts.slice(row, 1)
            text = one.column("text")[0].as_py()
            writer.write(one)
            if text is not None:
                values = ((1, PiecedText(text=text)), (3, PiecedText(text=text)))
                writer.write_large(LargeRow(row=_without(one, 1), values=values))
        files = writer.close()
        rows = [
            {**row, **changes}
            for row in texts.to_pylist()
            for changes in ({}, {"nothing": row["text"]})
            if not changes or row["text"] is not None
        ]
        expected = pa.Table.from_pylist(rows, texts.schema)
        _check_files(name, files, expected.num_rows, directory)
        found = read_back([directory / file.path for file in files])
    _check_rows(name, expected, found)


def _without(row: pa.RecordBatch, index: int) -> pa.RecordBatch:
    """Return the row with a null in one column."""
    columns = list(row.columns)
    columns[index] = pa.nulls(1, row.schema.field(index).type)
    return pa.RecordBatch.from_arrays(columns, schema=row.schema)


def _check_files(name: str, files: Sequence[WrittenFile], rows: int, directory: Path) -> None:
    _require(len(files) > 0, f"{name}: close returned no file; even no rows leave one")
    there = sorted(path.name for path in directory.iterdir())
    reported = sorted(file.path for file in files)
    _require(there == reported, f"{name}: the files are {there}, but {reported} were reported")
    counted = sum(file.rows for file in files)
    _require(counted == rows, f"{name}: {counted} rows were reported, {rows} were written")
    for file in files:
        data = (directory / file.path).read_bytes()
        _require(
            file.bytes == len(data),
            f"{name}: {file.path} has {len(data)} bytes, but {file.bytes} were reported",
        )
        kind = checksum_name(file.checksum)
        digest = open_digest(kind)
        digest.update(data)
        checksum = f"{kind}:{digest.hexdigest()}"
        _require(
            file.checksum == checksum,
            f"{name}: {file.path} has the checksum {checksum}, but {file.checksum} was reported",
        )


def _check_rows(name: str, expected: pa.Table, found: pa.Table) -> None:
    _require(
        found.column_names == expected.column_names,
        f"{name}: the columns {expected.column_names} came back as {found.column_names}",
    )
    _require(
        found.num_rows == expected.num_rows,
        f"{name}: {expected.num_rows} rows came back as {found.num_rows}",
    )
    for index, field in enumerate(expected.schema):
        want = expected.column(index).to_pylist()
        got = found.column(index).cast(field.type).to_pylist()
        for row, (value, other) in enumerate(zip(want, got, strict=True)):
            # repr keeps the sign of zero and the digits of a decimal apart.
            _require(
                repr(value) == repr(other),
                f"{name}: column {field.name!r}, row {row}: {value!r} came back as {other!r}",
            )


def _check_abort(make: Make, batches: Sequence[pa.RecordBatch]) -> None:
    schema = _counted(0, 1)[0].schema
    with tempfile.TemporaryDirectory() as folder:
        writer = make(Path(folder), schema)
        for batch in batches:
            writer.write(batch)
        writer.abort()
        left = sorted(path.name for path in Path(folder).iterdir())
    _require(not left, f"abort after {len(batches)} batches left {left} behind")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _counted(rows: int, batch_rows: int) -> list[pa.RecordBatch]:
    """Return batches of numbered rows; the number shows loss, repetition and wrong order."""
    batches = []
    for start in range(0, max(rows, 1), batch_rows):
        numbers = range(start, min(start + batch_rows, rows))
        batches.append(
            _batch(
                number=pa.array(numbers, pa.int64()),
                name=pa.array([f"row {number}" for number in numbers], pa.string()),
                third=pa.array([None if n % 3 else n for n in numbers], pa.int32()),
            )
        )
    return batches


def _texts() -> pa.RecordBatch:
    texts = [
        *(None, "", " ", "NULL", r"\N", "a", "Größe", "表ソ", "😀", "ne\u0301e", "x" * 5000),
        *("a,b", 'a"b', '"', '""', "a'b", "line\nbreak", "line\r\nbreak", "tab\there", "\\", "~~"),
        *(None, "trailing ", "-", "0010"),
    ]
    return _batch(
        number=pa.array(range(len(texts)), pa.int32()),
        text=pa.array(texts, pa.string()),
        large=pa.array(reversed(texts), pa.large_string()),
        nothing=pa.nulls(len(texts), pa.string()),
    )


def _numbers() -> pa.RecordBatch:
    return _batch(
        int64=pa.array([2**63 - 1, -(2**63), 0, None], pa.int64()),
        uint64=pa.array([2**64 - 1, 0, 1, None], pa.uint64()),
        int8=pa.array([127, -128, 0, None], pa.int8()),
        whole=pa.array([*_MAX_38, Decimal(0), None], pa.decimal128(38, 0)),
        fraction=pa.array([*_MAX_FRACTION, Decimal("1E-38"), None], pa.decimal128(38, 38)),
        money=pa.array([Decimal("9999999999.99"), Decimal("-0.01"), None, None], _MONEY),
        double=pa.array([1.7976931348623157e308, 5e-324, -0.0, None], pa.float64()),
        truth=pa.array([True, False, None, True], pa.bool_()),
    )


def _days() -> pa.RecordBatch:
    stamps: list[Any] = [datetime(d.year, d.month, d.day, 23, 59, 59) for d in _DAYS]
    exact = [stamp.replace(microsecond=999_999) for stamp in stamps]
    utc = [stamp.replace(tzinfo=UTC) for stamp in exact]
    return _batch(
        day=pa.array([*_DAYS, None], pa.date32()),
        second=pa.array([*stamps, None], pa.timestamp("s")),
        micro=pa.array([*exact, None], pa.timestamp("us")),
        zoned=pa.array([*utc, None], pa.timestamp("us", tz="UTC")),
    )


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
