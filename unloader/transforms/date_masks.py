"""Masks of dates and timestamps: cut to the month or year, or shifted by days.

The calendar is that of `writers.text.mask_texts`, in integers, because the functions of Arrow are
silently wrong for years past 32767. Infinite dates and timestamps stay infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.keyed_masks import (
    Hmac,
    Values,
    canonical,
    derived,
    each_once,
    leading_integers,
)
from unloader.transforms.model import ShiftDates, TruncateDates
from writers.schema import has_infinities, pc
from writers.text.mask_texts import DAY_SECONDS, UNIT_DIGITS, Civil

TwoColumns = Callable[[pa.Array, pa.Array], pa.Array]
"""From a column of dates and one of subjects to the dates in their place."""


def check_dates(field: pa.Field) -> None:
    kind = field.type
    if not pa.types.is_date32(kind) and not pa.types.is_timestamp(kind):
        raise UsageError(
            f"column {field.name} has the type {kind}, but only dates and timestamps can be "
            "shifted or truncated to their month or year",
            "cast it before, to date or timestamp[us]; or use another mask",
        )


def truncated_dates(step: TruncateDates, field: pa.Field) -> Values:

    def cut(array: pa.Array) -> pa.Array:
        civil = Civil(array)
        past = _day_of_month(civil.year_parts[1]) if step.to == "month" else civil.yearday
        days = pc.subtract(civil.days, past)
        return _moved(pc.multiply_checked, days, _day_ticks(field.type), field)

    return lambda array: _finite_only(array, field, cut)


def shifted(step: ShiftDates, field: pa.Field, by: pa.Field, key: bytes) -> TwoColumns:
    """Return the function that shifts dates by a number of days that follows from the subject."""
    hmac = Hmac(derived(key, "shift", step.domain))

    def shift_of(messages: list[bytes]) -> pa.Array:
        found = leading_integers(hmac.digests(messages))
        rest = pc.subtract(found, pc.multiply(pc.divide(found, 2 * step.days), 2 * step.days))
        # From -days to days, and never 0, which would leave a date as it is.
        below = pc.less(rest, step.days)
        return pc.if_else(below, pc.subtract(rest, step.days), pc.subtract(rest, step.days - 1))

    def shift(array: pa.Array, subjects: pa.Array) -> pa.Array:
        days = each_once(canonical(subjects, by), shift_of)
        ticks = pc.multiply(days, _day_ticks(field.type))
        moved = _finite_only(
            array,
            field,
            lambda finite: _moved(pc.add_checked, _ticks(finite), ticks, field),
        )
        return pc.if_else(pc.is_valid(days), moved, pa.scalar(None, array.type))

    return shift


def _finite_only(array: pa.Array, field: pa.Field, change: Values) -> pa.Array:
    if not has_infinities(field):
        return change(array)
    ticks = _ticks(array)
    greatest = 2 ** (array.type.bit_width - 1) - 1
    infinite = pc.or_(pc.equal(ticks, greatest), pc.equal(ticks, -greatest))
    finite = pc.if_else(infinite, pa.scalar(None, array.type), array)
    return pc.if_else(infinite, array, change(finite))


def _day_of_month(march_day: pa.Array) -> pa.Array:
    """Return days since the first of the month, of days since the last March 1."""
    # Months of a year that begins in March are 153 days in five.
    month = pc.divide(pc.add(pc.multiply(march_day, 5), 2), 153)
    first = pc.divide(pc.add(pc.multiply(month, 153), 2), 5)
    return pc.subtract(march_day, first)


def _day_ticks(kind: pa.DataType) -> int:
    return 1 if pa.types.is_date32(kind) else DAY_SECONDS * 10 ** UNIT_DIGITS[kind.unit]


def _ticks(array: pa.Array) -> pa.Array:
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return pc.cast(array.view(width), pa.int64())


def _moved(
    function: Callable[[pa.Array, pa.Array | int], pa.Array],
    values: pa.Array,
    other: pa.Array | int,
    field: pa.Field,
) -> pa.Array:
    """Return dates by their ticks, which are computed from others.

    Raises:
        OutputFailed: A date would leave the range of its type.
    """
    try:
        ticks = function(values, other)
        wide = field.type.bit_width == 64
        return (ticks if wide else pc.cast(ticks, pa.int32())).view(field.type)
    except pa.ArrowInvalid:
        raise OutputFailed(
            f"a date of column {field.name} would be outside the range of {field.type}",
            f"redact the column: --mask '{field.name}=redact'",
        ) from None
