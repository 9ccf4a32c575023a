"""How columns can be read: a source describes this once, for every kind of output.

A column has one reading or several, each exact for the outputs it serves: a number as decimal for
Parquet and as text where it is written as text, for instance. `projection` chooses among them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from writers.schema import schema_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Use = Literal["parquet", "text", "masked", "encoded"]
"""What a value is for. parquet: a Parquet file. text: text that we encode; masked: the same under
a date or timestamp format of the user. encoded: text that the database itself renders."""
Mask = Literal["date", "timestamp", "timestamp_tz"]

TEXT: frozenset[Use] = frozenset(("text", "masked"))
BATCHES: frozenset[Use] = frozenset(("parquet", "text", "masked"))

ENCODED_TYPE = "text"

_NESTED = re.compile(r"\w*list\w*[<\[]|struct<|map<")
_TIMESTAMP = re.compile(r"timestamp\[(\w+)(, tz=UTC)?\]")


class Reading(Struct, frozen=True, kw_only=True):
    """One way in which a column can be read."""

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
    """A column and its readings, in the order of preference."""

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

    A nested type is recognized as nested, without its contents. Any other type that
    `type_named` does not know is text.
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
    """Return the length that `NAME(15)`, `NAME(15 BYTE)` or `NAME(15 CHAR)` declares.

    Args:
        source_type: In capitals.
        names: The names of the text types that have a length.
        padded: The names of the types padded with blanks, with a length or without.

    Returns:
        None if the type is not in `names` or `padded`.
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
