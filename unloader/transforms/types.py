"""Types of columns by their names, and casts that change no value."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from unloader.errors import OutputFailed, UsageError
from unloader.sources.readings import type_named
from writers.arrow_compute import pc
from writers.errors import WriteError
from writers.model import TextFormat
from writers.schema import has_infinities
from writers.text.text_values import text_of

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


def column_type(name: str) -> pa.DataType:
    """Return the type that a step names.

    Raises:
        UsageError: There is none of this name.
    """
    plain = _ZONED.sub(r"timestamp[\1, tz=UTC]", _ALIASES.get(name.strip().lower(), name.strip()))
    if match := _DECIMAL.fullmatch(plain):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if not _KNOWN.fullmatch(plain):
        raise UsageError(f"{name!r} is not a type of a column", _HINT)
    return type_named(plain)


def value_of(text: str | None, kind: pa.DataType, what: str) -> pa.Scalar:
    """Return a constant of a type, from its text; None is NULL.

    Raises:
        UsageError: The text is no value of the type.
    """
    try:
        return pc.cast(pa.array([text], pa.string()), kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(
            f"the value of {what} does not have the type {kind}",
            "write it in the form that CSV has",
        ) from None


def exact_cast(field: pa.Field, kind: pa.DataType) -> Cast:
    """Return the function that casts a column, and fails on a value that the type cannot hold.

    Raises:
        UsageError: No value of the one type is one of the other.
    """
    own = field.type
    if pa.types.is_dictionary(own):
        own = own.value_type
    if pa.types.is_string(kind):
        return _to_text(field)
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
    return _checked(field.name, own, kind)


def _checked(name: str, own: pa.DataType, kind: pa.DataType) -> Cast:
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
                f"a value of column {name} cannot become {kind} exactly; it is not shown",
                "cast it to another type, or compute it with ROUND or TRY_CAST",
            ) from None
        return found

    return cast


def _is_same(back: pa.Array, array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        # NaN equals nothing, itself included.
        back, array = (pc.if_else(pc.is_nan(each), 0.0, each) for each in (back, array))
    return bool(back.equals(array))


def _to_text(field: pa.Field) -> Cast:
    def cast(array: pa.Array) -> pa.Array:
        try:
            texts = text_of(array, field.with_type(array.type), TextFormat())
        except WriteError:
            raise OutputFailed(
                f"a value of column {field.name} has no text; it is not shown",
                "leave the column out",
            ) from None
        return texts if pa.types.is_string(texts.type) else texts.cast(pa.string())

    return cast
