"""How columns can be read: a source describes this once, for every kind of output.

A column has one reading or several, each exact for the outputs it serves: a number as decimal for
Parquet and as text where it is written as text, for instance. `project` chooses among them.

Each output gets for each column the first reading that is exact for it. Outputs that choose the
same reading share one column of the scan; the others have one each, side by side.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import SourceError
from unloader.model import Extract, Projection, ReadColumn
from unloader.request.names import matching_any
from writers.model import TextFormat
from writers.schema import read_schema, schema_text

if TYPE_CHECKING:
    import pyarrow as pa


Use = Literal["parquet", "text", "masked", "encoded", "lob"]
"""What a value is for. parquet: a Parquet file. text: text that we encode; masked: the same under
a date or timestamp format of the user. encoded: text that the database itself renders. lob: a file
of large objects, where that is not the value of a Parquet file."""
Mask = Literal["date", "timestamp", "timestamp_tz"]

TEXT: frozenset[Use] = frozenset(("text", "masked"))
BATCHES: frozenset[Use] = frozenset(("parquet", "text", "masked"))

ENCODED_TYPE = "text"

_NESTED = re.compile(r"\w*list\w*[<\[]|struct<|map<")
_TIMESTAMP = re.compile(r"timestamp\[(\w+)(, tz=UTC)?\]")


class Reading(Struct, frozen=True, kw_only=True):
    expression: str
    """The item of the select list, or a name that the source's own reader knows."""
    output_type: str
    """The Arrow type it comes as, by the name Arrow prints; `ENCODED_TYPE` for text that the
    database renders."""
    serves: frozenset[Use] = BATCHES
    as_text: bool | None = None
    """True: only for columns that `--as-text` names; False: only for others; None: for both."""
    forms: frozenset[str] = frozenset()
    """Only for text with this boolean or binary format; empty is any."""
    lossless: bool = True
    note: str = ""
    """For the user: an explanation of anything unexpected about this reading."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Of the Arrow field: `source_type`, and `text_class` if text represents another type."""
    arrow_type: pa.DataType | None = None
    """The Arrow type itself, where `type_named` does not know its name."""


class ColumnReadings(Struct, frozen=True, kw_only=True):
    name: str
    source_type: str
    nullable: bool | None
    readings: tuple[Reading, ...]
    mask: Mask | None = None
    """The user's format that text of its values follows."""
    beside: str = ""
    """The column that this one accompanies: it shares that one's `--as-text`, and is left out where
    no reading of it serves."""
    added_by: str = ""
    """The option that asks for a column beside another."""


@lru_cache(maxsize=64)
def type_named(name: str) -> pa.DataType:
    """Return the Arrow type that prints as `name`: numbers, decimals, texts, bytes and times."""
    import pyarrow as pa

    if match := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(match[1], "UTC" if match[2] else None)
    if name.startswith("decimal128"):
        precision, scale = re.findall(r"\d+", name.partition("(")[2])
        return pa.decimal128(int(precision), int(scale))
    return pa.date32() if name == "date32[day]" else pa.type_for_alias(name)


def recorded_type(name: str) -> pa.DataType:
    """Return the Arrow type that printed as `name`, as far as checksums depend on it.

    A nested type has no contents; an unknown type is text.
    """
    import pyarrow as pa

    try:
        return type_named(name)
    except (ValueError, KeyError, IndexError):
        return pa.list_(pa.null()) if _NESTED.match(name) else pa.string()


def schema_message(columns: Sequence[tuple[str, Reading]]) -> str:
    """Return the Arrow schema of named readings, as `writers.schema.schema_text` writes it."""
    import pyarrow as pa

    fields = [
        pa.field(
            name,
            type_named(reading.output_type) if reading.arrow_type is None else reading.arrow_type,
            metadata=dict(reading.metadata),
        )
        for name, reading in columns
    ]
    return schema_text(pa.schema(fields))


_LENGTH = re.compile(r"(?P<name>[A-Z0-9_ ]+?) ?\((?P<length>\d+)(?: (?P<unit>BYTE|CHAR))?\)")
_DECIMAL = re.compile(r"(?:NUMBER|NUMERIC|DECIMAL) ?\((\d+|\*)(?:, ?(-?\d+))?\)")
_MAX_PRECISION = 38


class Declared(Struct, frozen=True, kw_only=True):
    """How long the values of a type can be; unknown limits keep their defaults."""

    characters: int | None = None
    """The maximum number of characters of text."""
    utf8_bytes: int | None = None
    """The maximum number of bytes of text in the database, whose encoding is usually UTF-8."""
    padded: bool = False
    """Text is filled up with blanks, which mean nothing."""
    digits: tuple[int, int] | None = None
    """Precision and scale of numbers that are carried as text."""
    binary_bytes: int | None = None
    second_digits: int = 9
    """Of a second's fraction, for timestamps that are carried as text."""
    zone: Literal["offset", "region"] | None = None
    """The suffix of a date and time, if any: an offset, or perhaps a region's name."""
    dated: bool = False
    longest: str = ""
    """A text of ASCII characters that is as long as the longest value."""


def text_length(
    source_type: str, names: Collection[str], padded: Collection[str] = ()
) -> Declared | None:
    """Return the length that `NAME(15)`, `NAME(15 BYTE)` or `NAME(15 CHAR)` declares, in capitals.

    `names` are text types with a length, `padded` types padded with blanks.
    """
    name = source_type.partition("(")[0].strip()
    match = _LENGTH.fullmatch(source_type)
    if match is None or match["name"] not in names:
        return Declared(padded=True) if name in padded else None
    length, blanks = int(match["length"]), name in padded
    if match["unit"] == "BYTE":
        return Declared(utf8_bytes=length, padded=blanks)
    return Declared(characters=length, padded=blanks)


def decimal_digits(source_type: str) -> Declared | None:
    """Return the digits that `NUMBER(p,s)` and its like declare, None for any other type."""
    match = _DECIMAL.fullmatch(source_type)
    if match is None:
        return None
    precision = _MAX_PRECISION if match[1] == "*" else int(match[1])
    return Declared(digits=(precision, int(match[2] or 0)))


def one_of(source_type: str, lengths: dict[str, int]) -> Declared:
    """Return the length of a type with a name from a table; its arguments do not matter."""
    length = lengths.get(re.sub(r" ?\(\d+\)", "", source_type), 0)
    return Declared(longest="9" * length)


Encodes = Callable[["TextFormat"], bool]


class OutputNeeds(Struct, frozen=True, kw_only=True):
    text: TextFormat | None
    """Its dialect; None is Parquet."""
    batches_only: bool = False
    """Finished text would not do: files are cut by size, or fields have fixed widths."""
    values: frozenset[str] = frozenset()
    """Columns that are read as values where Parquet would have values, even if they are to be text:
    a transform works on them, or they go to files of large objects."""
    lobs: frozenset[str] = frozenset()
    """Columns whose values go to files of large objects."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of the output, in its order; None means all, in table order."""
    filter_columns: tuple[str, ...] | None = None
    """Names of the columns that its filter looks at; None where it has no filter."""


def choose(
    columns: Sequence[ColumnReadings],
    outputs: Sequence[OutputNeeds],
    *,
    as_text: Sequence[str] = (),
    encodes: Encodes = lambda text: False,
) -> Projection:
    """Return one set of columns that serves all outputs, and which of them each output takes.

    Only the columns that an output takes or its filter uses are read. The filter has the values as
    they would be in Parquet, for every kind of output. The database renders the text itself if
    there is one output and it is text that the database can render to the byte, as `encodes`
    returns. `as_text` has globs of the columns to be written as exact text.
    """
    output, text = outputs[0], outputs[0].text
    width = len(columns if output.columns is None else output.columns)
    encoded = (
        len(outputs) == 1
        and text is not None
        and not (output.batches_only or text.guard_formulas or output.filter_columns is not None)
        # The server does not enclose an empty text, so its record would be an empty line.
        and not (text.null and width == 1)
        and encodes(text)
    )
    return _chosen_once(tuple(columns), tuple(outputs), tuple(as_text), encoded)


@lru_cache(maxsize=256)  # Tables of a schema have columns in common.
def _chosen_once(
    columns: tuple[ColumnReadings, ...],
    outputs: tuple[OutputNeeds, ...],
    as_text: tuple[str, ...],
    encoded: bool,
) -> Projection:
    """Return the result of `choose`; `encoded` is true if the database renders the output."""
    own = tuple(column for column in columns if not column.beside)
    asked = [(columns, output, as_text, encoded) for output in outputs]
    # A filter has the values as they would be in Parquet.
    filters = (OutputNeeds(text=None, columns=each.filter_columns or ()) for each in outputs)
    asked += [(own, each, (), False) for each in filters]
    scan: list[tuple[ReadColumn, Reading]] = []
    places: dict[tuple[ReadColumn, tuple[tuple[str, str], ...]], int] = {}
    """By the column without its note, and the metadata of its field."""
    taken = []
    for some, output, texts, is_encoded in asked:
        indexes = []
        for column, reading in _chosen(some, output, texts, encoded=is_encoded):
            read = ReadColumn(
                name=column.name,
                source_type=column.source_type,
                expression=reading.expression,
                output_type=reading.output_type,
                nullable=column.nullable,
                lossless=reading.lossless,
                note="",
            )
            at = places.setdefault((read, reading.metadata), len(scan))
            if at == len(scan):
                scan.append((read, reading))
            if reading.note and not scan[at][0].note:
                scan[at] = (replace(read, note=reading.note), scan[at][1])
            indexes.append(at)
        taken.append(tuple(indexes))
    has_filters = any(output.filter_columns is not None for output in outputs)
    return Projection(
        columns=tuple(read for read, _ in scan),
        route="encoded" if encoded else "arrow",
        schema="" if encoded else schema_message([(read.name, how) for read, how in scan]),
        outputs=tuple(taken[: len(outputs)]),
        filters=tuple(taken[len(outputs) :]) if has_filters else None,
    )


def _chosen(
    columns: Sequence[ColumnReadings], output: OutputNeeds, as_text: Sequence[str], *, encoded: bool
) -> list[tuple[ColumnReadings, Reading]]:
    found, text = [], output.text
    forms = set() if text is None else {text.boolean, text.binary}
    texts = matching_any([column.beside or column.name for column in columns], as_text)
    if output.columns is not None:
        # In their order, each with its accompanying columns.
        columns = [
            column
            for name in output.columns
            for column in columns
            if (column.beside or column.name) == name
        ]
    for column in columns:
        use: Use = "parquet" if text is None else "encoded" if encoded else "text"
        if use == "text" and column.mask and getattr(text, f"{column.mask}_format") is not None:
            use = "masked"
        asked = (column.beside or column.name) in texts
        fitting = [
            each
            for each in column.readings
            if each.as_text in (None, asked) and (not each.forms or each.forms & forms)
        ]
        reading = next((each for each in fitting if use in each.serves), None)
        if column.name in output.values and not column.beside:
            value = next((each for each in fitting if "parquet" in each.serves), None)
            if reading is None or reading.output_type == "string":
                reading = value or reading
        if column.name in output.lobs and not column.beside:
            reading = next((each for each in fitting if "lob" in each.serves), reading)
        if reading is not None:
            found.append((column, reading))
        elif not column.beside:
            raise SourceError(
                f"column {column.name} has the type {column.source_type}, which cannot be read "
                f"exactly for {'Parquet' if text is None else 'text'}",
                f"leave it out with --exclude {column.name}",
            )
    counted = Counter(column.name for column, _ in found)
    for column, _ in found:
        if column.beside and counted[column.name] > 1:
            raise SourceError(
                f"the column {column.name} already exists, and {column.added_by} would add another",
                f"leave one of them out with --exclude {column.name}, or run without "
                f"{column.added_by}",
            )
    return found


def with_origin(extract: Extract) -> Extract:
    """Return an extract whose schema has the source's kind, and the table or query, as metadata.

    A Parquet file records it. Files of two runs over the same rows are equal byte by byte, so
    neither the run nor its snapshot is in it; the manifest has both.
    """
    projection = extract.projection
    if not projection.schema:
        return extract
    table, keys, most = extract.table, extract.keys, extract.limit_rows
    origin = {
        "unloader:source": extract.source.kind,
        "unloader:schema": table.schema if extract.query is None else None,
        "unloader:table": table.name if extract.query is None else None,
        "unloader:query": extract.query,
        "unloader:where": extract.where,
        "unloader:sample": None if keys is None else f"{keys.share * 100:.12g}% by {keys.column}",
        "unloader:limit_rows": None if most is None else str(most),
    }
    schema = read_schema(projection.schema)
    metadata = {**(schema.metadata or {}), **{key: text for key, text in origin.items() if text}}
    text = schema_text(schema.with_metadata(metadata))
    return replace(extract, projection=replace(projection, schema=text))
