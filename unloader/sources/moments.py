"""Dates and times as databases print them, parsed into Arrow's: exactly, or with an error.

Arrow's reader knows the years 1 to 9999 of ISO 8601. Other years are rare and are read one by one.
Ticks count in the proleptic Gregorian calendar with the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date

import pyarrow as pa

from unloader.errors import OutputFailed
from writers.schema import pc
from writers.text.mask_texts import DAY_SECONDS, UNIT_DIGITS

_CLOCK = r"( ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?)?$"
_DAY = r"-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_YEAR = r"^(\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)"
_YEAR_OF_NANOSECONDS = r"^(1[7-9]|2[01])\d\d"
"""Years that are within the range of nanoseconds, which begins and ends amid a year."""
_FORM = re.compile(
    r"(?P<sign>-?)(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?Z?)?"
    r"(?P<before> BC)?"
)
_EPOCH, _CYCLE_DAYS = date(1970, 1, 1).toordinal(), 146_097


class MomentRefused(Exception):
    """A text that the Arrow type has no value for; its arguments are the text and the reason."""


def conformed(
    arrays: Sequence[pa.Array],
    schema: pa.Schema,
    converters: Sequence[Callable[[pa.Array, pa.DataType], pa.Array]],
) -> pa.RecordBatch:
    """Return columns, each by its converter, under the schema of a run.

    `OutputFailed` names all columns that do not fit.
    """
    found, refused = [], {}
    for array, field, convert in zip(arrays, schema, converters, strict=True):
        try:
            found.append(convert(array, field.type))
            if pa.types.is_string(field.type):
                found[-1].validate(full=True)
        except MomentRefused as error:
            refused[field.name] = ", which ".join(error.args)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            if pa.types.is_string(field.type):
                raise OutputFailed(
                    f"column {field.name} holds text that is not valid UTF-8",
                    f"leave it out with --exclude {field.name}",
                ) from error
            refused[field.name] = str(error).splitlines()[0]
    if refused:
        raise unfit(refused)
    return pa.RecordBatch.from_arrays(found, schema=schema)


def unfit(refused: dict[str, str]) -> OutputFailed:
    """Return the error of the columns whose values do not fit, by name, each with its reason."""
    reported = "; ".join(f"column {name}: {reason}" for name, reason in refused.items())
    return OutputFailed(
        f"values do not fit the output type: {reported}",
        f"write them as exact text with --as-text {','.join(refused)}, or leave them out "
        "with --exclude",
    )


def parse_moments(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return dates or timestamps of the type `kind`, null for null.

    `kind` is date32, or a timestamp without a zone or in UTC, as the texts are. Texts are such as
    `2024-02-29 12:00:00.5`; years before Christ have a minus or ` BC`. Blanks before a text and a
    `Z` after the time mean nothing. `MomentRefused` names the first text that has no value of the
    type.
    """
    plain = kind if pa.types.is_date(kind) else pa.timestamp(kind.unit)
    texts = pc.ascii_rtrim(pc.ascii_ltrim(texts, " "), "Z")
    year = _YEAR_OF_NANOSECONDS if plain == pa.timestamp("ns") else _YEAR
    known = pc.match_substring_regex(texts, year + _DAY + _CLOCK)
    odd = pc.fill_null(pc.invert(known), False)
    try:
        ordinary = pc.cast(pc.if_else(odd, pa.scalar(None, texts.type), texts), plain)
    except pa.ArrowInvalid:
        for text in texts.to_pylist():
            _ticks(text, plain)
        raise
    if not pc.any(odd).as_py():
        return ordinary.view(kind)
    encoded = pc.filter(texts, odd).dictionary_encode()
    integer = pa.int32() if pa.types.is_date(kind) else pa.int64()
    ticks = [_ticks(text, plain) for text in encoded.dictionary.to_pylist()]
    found = pa.array(ticks, integer).take(encoded.indices).view(plain)
    return pc.replace_with_mask(ordinary, odd, found).view(kind)


def _ticks(text: str | None, kind: pa.DataType) -> int | None:
    if text is None:
        return None
    if text in ("infinity", "-infinity"):
        raise MomentRefused(text, "neither Parquet nor a date mask can show")
    match = _FORM.fullmatch(text)
    if match is None:
        raise MomentRefused(text, "is not a date")
    counted, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if not counted:
        raise MomentRefused(text, "has an impossible year")
    # The calendar repeats after 400 years, and Python has only some of them.
    cycles, year = divmod(1 - counted if match["sign"] or match["before"] else counted, 400)
    try:
        days = date(2000 + year, month, day).toordinal() - _EPOCH + (cycles - 5) * _CYCLE_DAYS
    except ValueError:
        raise MomentRefused(text, "is not a day of the Gregorian calendar") from None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise MomentRefused(text, "has an impossible time of day")
    if pa.types.is_date(kind):
        return days
    digits, fraction = UNIT_DIGITS[kind.unit], (match["fraction"] or "").rstrip("0")
    seconds = days * DAY_SECONDS + (hour * 60 + minute) * 60 + second
    ticks: int = seconds * 10**digits + int(fraction.ljust(digits, "0") or 0)
    if len(fraction) > digits or not -(2**63) <= ticks < 2**63:
        span = " (1677-09-21 to 2262-04-11)" if kind.unit == "ns" else ""
        raise MomentRefused(text, f"is outside the range of {kind}{span}")
    return ticks
