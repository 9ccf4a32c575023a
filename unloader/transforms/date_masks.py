"""Masks of dates and timestamps: cut to the month or year, or shifted by days.

Far years use the calendar of `writers.text.mask_texts`, in integers, because the functions of Arrow
are silently wrong for years past 32767. Infinite dates and timestamps stay infinite.
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

_USUAL = (-134_774, 193_944)
"""Days since 1970-01-01 of 1601-01-01 and 2501-01-01, between which Arrow's function is right; it
is ten times as fast."""

TwoColumns = Callable[[pa.Array, pa.Array], pa.Array]
"""From a column of dates and one of subjects to the dates in their place."""


def check_dates(field: pa.Field) -> None:
    """Return if a column holds dates or timestamps.

    Raises:
        UsageError: It does not.
    """
    kind = field.type
    if not pa.types.is_date32(kind) and not pa.types.is_timestamp(kind):
        raise UsageError(
            f"column {field.name} has the type {kind}, but only dates and timestamps can be "
            "shifted or truncated to their month or year",
            "cast it before, to date or timestamp[us]; or use another mask",
        )


def truncated_dates(step: TruncateDates, field: pa.Field) -> Values:
    """Return the function that cuts dates to their month or year."""

    known = _FirstDays(step.to)

    def cut(array: pa.Array) -> pa.Array:
        ends = _ends(array)
        if ends is None:
            return array
        day = _day_ticks(array.type)
        if _USUAL[0] * day <= ends[0] and ends[1] < _USUAL[1] * day:
            if pa.types.is_date32(array.type):
                return known.of(array, *ends)
            plain = _of_ticks(_ticks(array), pa.timestamp(array.type.unit))
            return pc.floor_temporal(plain, unit=step.to).view(array.type)
        civil = Civil(array)
        _, march_day = civil.year_parts
        past = _day_of_month(march_day) if step.to == "month" else civil.yearday
        days = pc.subtract(civil.days, past)
        return _moved(pc.multiply_checked, days, _day_ticks(field.type), field)

    return lambda array: _finite_only(array, field, cut)


class _FirstDays:
    """The first days of months or years, in a table for a range of days where that is worth it.

    To look a day up takes half of the time that it takes to compute it. A table costs as much as
    to compute its days once, so one is made only after as many rows as it has days.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._first = 0
        self._days: pa.Array | None = None
        """From `_first` on."""
        self._rows = 0
        """Looked at since the table was made."""

    def of(self, days: pa.Array, low: int, high: int) -> pa.Array:
        """Return the first day of the month or year of each day; the days are from low to high."""
        self._rows += len(days)
        if not self._has(low, high):
            if high - low >= self._rows:
                return pc.floor_temporal(days, unit=self._unit)
            numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), high - low + 1))
            listed = pc.add(numbers, pa.scalar(low - 1, pa.int32())).view(pa.date32())
            self._days = pc.floor_temporal(listed, unit=self._unit)
            self._first, self._rows = low, 0
        place = pc.subtract(days.view(pa.int32()), pa.scalar(self._first, pa.int32()))
        return pc.take(self._days, place)

    def _has(self, low: int, high: int) -> bool:
        known = 0 if self._days is None else len(self._days)
        return self._first <= low and high < self._first + known


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


def _ends(array: pa.Array) -> tuple[int, int] | None:
    """Return the first and the last of some dates, as ticks; None if all are NULL."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    ends = pc.min_max(array.view(width)).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


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


def _of_ticks(ticks: pa.Array, kind: pa.DataType) -> pa.Array:
    return (pc.cast(ticks, pa.int32()) if kind.bit_width == 32 else ticks).view(kind)


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
        return _of_ticks(function(values, other), field.type)
    except pa.ArrowInvalid:
        raise OutputFailed(
            f"a date of column {field.name} would be outside the range of {field.type}",
            f"redact the column: --mask '{field.name}=redact'",
        ) from None
