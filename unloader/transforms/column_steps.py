"""Steps that change columns: keep, drop, rename, cast and set to a constant.

A step takes the columns that it finds to the columns that it leaves, and to the work on rows. Casts
change no value: a value that the type cannot hold is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, UsageError
from unloader.sources.readings import type_named
from unloader.transforms.model import Masked, Step
from writers.errors import WriteError
from writers.model import TextFormat
from writers.schema import has_infinities, pc
from writers.text.text_values import text_of

Arrays = list[pa.Array | pa.ChunkedArray]
"""Columns that no step has touched may be in pieces."""
Work = Callable[[Arrays, int], Arrays]
"""From the columns and the number of rows to the columns; never changes the list it is given."""

_SHOWN = 12
_ALIASES = {
    "date": "date32[day]",
    "date32": "date32[day]",
    "timestamp": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]",
    "text": "string",
    "boolean": "bool",
    "integer": "int32",
    "bigint": "int64",
}
_DECIMAL = re.compile(r"decimal(?:128)?\((\d{1,2}),\s*(\d{1,2})\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?UTC\]")
_KNOWN = re.compile(
    r"u?int(8|16|32|64)|float|double|bool|string|binary|date32\[day\]"
    r"|timestamp\[(s|ms|us|ns)(, tz=UTC)?\]"
)
_HINT = (
    "write int8 to int64, uint8 to uint64, float, double, decimal(p,s), bool, string, binary, "
    "date or timestamp[us], where us may be s, ms or ns; timestamp[us, UTC] is an instant"
)

Cast = Callable[[pa.Array], pa.Array]


class Column(Struct, frozen=True, kw_only=True):
    """A column between two steps."""

    field: pa.Field
    inputs: tuple[str, ...]
    """The input columns that it depends on."""
    clear: frozenset[str]
    """The inputs whose unmasked values it has."""
    source: str = ""
    """The input column that became this column; empty for a new column."""
    changes: tuple[str, ...] = ()
    masked: Masked | None = None
    origin: int | None = None
    """The place of the unchanged input column; None if a step has changed it."""

    @property
    def name(self) -> str:
        return str(self.field.name)


Columns = tuple[Column, ...]


def names_of(columns: Columns) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def schema_of(columns: Columns) -> pa.Schema:
    return pa.schema([column.field for column in columns])


def moment_ticks(array: pa.Array) -> pa.Array:
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return pc.cast(array.view(width), pa.int64())


def plain_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of an array that may be in pieces, or a dictionary."""
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def plain_field(field: pa.Field) -> pa.Field:
    kind = field.type
    return field.with_type(kind.value_type) if pa.types.is_dictionary(kind) else field


def kept(step: Step, columns: Columns) -> tuple[Columns, Work]:
    indexes = [found(names_of(columns), name, "keep") for name in step.columns]
    if len(set(indexes)) < len(indexes):
        raise UsageError("keep names a column twice", "name each column once")
    return tuple(columns[index] for index in indexes), (
        lambda arrays, _: [arrays[index] for index in indexes]
    )


def renamed(step: Step, columns: Columns) -> Columns:
    names = names_of(columns)
    indexes = [found(names, name, "rename") for name, _ in step.names]
    if len(set(indexes)) < len(indexes):
        raise UsageError("rename names a column twice", "name each column once")
    after = list(columns)
    for index, (_, to) in zip(indexes, step.names, strict=True):
        if not to:
            raise UsageError("rename gives an empty name", "give an unused name")
        after[index] = replace(columns[index], field=columns[index].field.with_name(to))
    made = [column.name for column in after]
    for _, to in step.names:
        if made.count(to) > 1:
            raise UsageError(
                f"rename would give two columns the name {to!r}", "give an unused name"
            )
    return tuple(after)


def cast(step: Step, columns: Columns) -> tuple[Columns, Work]:
    index = found(names_of(columns), step.column, "cast")
    column = columns[index]
    kind = column_type(step.type)
    function = exact_cast(column.field, kind)
    changed = replace(
        column,
        field=pa.field(column.name, kind, column.field.nullable),
        changes=(*column.changes, f"cast to {kind}"),
        origin=None,
    )
    return with_column(columns, index, changed), on_one(index, function)


def constant(step: Step, columns: Columns) -> tuple[Columns, Work]:
    kind = column_type(step.type or "string")
    value = value_of(step.value, kind, f"constant {step.column}")
    index, name = target(columns, step.column, "constant")
    column = Column(field=pa.field(name, kind), inputs=(), clear=frozenset(), changes=("constant",))
    return with_column(columns, index, column), setting(
        index, lambda arrays, rows: pa.repeat(value, rows)
    )


def target(columns: Columns, name: str, what: str) -> tuple[int, str]:
    """Return the place and the name of the column that a step sets; a new column comes last."""
    index = known(names_of(columns), name, what)
    return (len(columns), name) if index is None else (index, columns[index].name)


def with_column(columns: Columns, index: int, column: Column) -> Columns:
    return (*columns[:index], column, *columns[index + 1 :])


def on_one(index: int, function: Callable[[pa.Array], pa.Array]) -> Work:
    return setting(index, lambda arrays, _: function(plain_array(arrays[index])))


def setting(index: int, made: Callable[[Arrays, int], pa.Array]) -> Work:

    def work(arrays: Arrays, rows: int) -> Arrays:
        return [*arrays[:index], made(arrays, rows), *arrays[index + 1 :]]

    return work


def found(names: Sequence[str], name: str, what: str) -> int:
    """Return the column of exactly this name, else of the only one that differs in case."""
    index = known(names, name, what)
    if index is None:
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise UsageError(
            f"{what} names {name!r}, but this column does not exist", f"the columns are {shown}"
        )
    return index


def known(names: Sequence[str], name: str, what: str) -> int | None:
    """Return the same, None if the column does not exist."""
    exact = [index for index, each in enumerate(names) if each == name]
    folded = name.casefold()
    same = exact or [index for index, each in enumerate(names) if each.casefold() == folded]
    if len(same) > 1:
        several = ", ".join(repr(names[index]) for index in same)
        raise UsageError(
            f"{what} names {name!r}, which may mean {several}",
            "write the name exactly as the column has it; if two columns have the same name, "
            "rename one in the query",
        )
    return same[0] if same else None


def column_type(name: str) -> pa.DataType:
    plain = _ZONED.sub(r"timestamp[\1, tz=UTC]", _ALIASES.get(name.strip().lower(), name.strip()))
    if match := _DECIMAL.fullmatch(plain):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if not _KNOWN.fullmatch(plain):
        raise UsageError(f"{name!r} is not a type of a column", _HINT)
    return type_named(plain)


def value_of(text: str | None, kind: pa.DataType, what: str) -> pa.Scalar:
    """Return a constant of a type, from its text; None is NULL."""
    try:
        return pc.cast(pa.array([text], pa.string()), kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(
            f"the value of {what} does not have the type {kind}",
            "write it in the form that CSV has",
        ) from None


def exact_cast(field: pa.Field, kind: pa.DataType) -> Cast:
    """Return the function that casts a column, and fails on a value that the type cannot hold."""
    own = plain_field(field).type

    def to_text(array: pa.Array) -> pa.Array:
        try:
            texts = text_of(array, field.with_type(array.type), TextFormat())
        except WriteError:
            raise OutputFailed(
                f"a value of column {field.name} has no text; it is not shown",
                "leave the column out",
            ) from None
        return texts if pa.types.is_string(texts.type) else texts.cast(pa.string())

    if pa.types.is_string(kind):
        return to_text
    moments = pa.types.is_date(own) or pa.types.is_timestamp(own)
    if moments and has_infinities(field):
        raise UsageError(
            f"column {field.name} may contain infinite dates, which other types do not have",
            "cast it to string, or compute it with CASE WHEN isfinite(...)",
        )
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(kind) and bool(own.tz) != bool(kind.tz):
        raise UsageError(
            f"column {field.name} has the type {own}, and {kind} would change its meaning",
            "compute it instead: AT TIME ZONE gives the time zone",
        )
    try:
        pa.array([], own).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(
            f"column {field.name} of the type {own} cannot be cast to {kind}", _HINT
        ) from None
    whole = pa.types.is_decimal(own) and pa.types.is_integer(kind)
    checks_itself = pa.types.is_string(own) or whole

    def cast(array: pa.Array) -> pa.Array:
        try:
            found = array.cast(kind)
            # Arrow rounds floats to decimals and cuts times of day without a word.
            same = checks_itself or _is_same(found.cast(own), array)
        except pa.ArrowInvalid:
            same = False
        if not same:
            raise OutputFailed(
                f"a value of column {field.name} cannot become {kind} exactly; it is not shown",
                "cast it to another type, or compute it with ROUND or TRY_CAST",
            ) from None
        return found

    return cast


def _is_same(back: pa.Array, array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        # NaN equals nothing, itself included.
        back, array = (pc.if_else(pc.is_nan(each), 0.0, each) for each in (back, array))
    return bool(back.equals(array))
