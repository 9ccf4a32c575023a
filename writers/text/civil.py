"""Dates, times and timestamps taken apart by integer arithmetic on whole arrays.

The calendar is the proleptic Gregorian one, for every year that Arrow's 64 bits reach. Days
become years by Howard Hinnant's `civil_from_days`, with the year beginning on March 1 so that a
leap day is the last.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from writers.arrow_compute import pc

UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of the fraction of a second by Arrow's time unit."""
DAY_SECONDS = 86_400
_ERA_DAYS = 146_097
_ERA_YEARS = 400
_MARCH_1_YEAR_0 = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_ERAS_BEFORE = 10**9
"""Whole eras added so that every dividend is positive; Arrow's seconds reach 3e11 years."""

_ERAS_BEFORE_FIELDS = 13
"""The same for years given as fields, which begin in -4800."""


class Civil:
    """The calendar and clock fields of an array, each computed when first asked for.

    Takes date32, date64, time32, time64 and timestamps; a zone is ignored (the fields are those
    of UTC). All fields are int64 and null where the value is.
    """

    def __init__(self, values: pa.Array) -> None:
        kind = values.type
        self._is_date32 = bool(pa.types.is_date32(kind))
        self._is_time = bool(pa.types.is_time(kind))
        unit = "ms" if pa.types.is_date64(kind) else "s" if self._is_date32 else kind.unit
        self.fraction_digits = UNIT_DIGITS[unit]
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        self._ticks = pc.cast(values.view(width), pa.int64())

    @cached_property
    def _day_parts(self) -> tuple[pa.Array, pa.Array]:
        """Days since 1970-01-01 and ticks of the day."""
        if self._is_date32:
            return self._ticks, pc.multiply(self._ticks, 0)
        if self._is_time:
            # Not divided, since 24:00 is a time of its own.
            return pc.multiply(self._ticks, 0), self._ticks
        return floor_divide(self._ticks, DAY_SECONDS * 10**self.fraction_digits)

    @cached_property
    def _second_parts(self) -> tuple[pa.Array, pa.Array]:
        """Seconds of the day and ticks of the second."""
        ticks = self._day_parts[1]
        if self.fraction_digits == 0:
            return ticks, pc.multiply(ticks, 0)
        return _divide(ticks, 10**self.fraction_digits)

    @property
    def days(self) -> pa.Array:
        """Days since 1970-01-01."""
        return self._day_parts[0]

    @property
    def daysecond(self) -> pa.Array:
        """Seconds since midnight."""
        return self._second_parts[0]

    @property
    def fraction(self) -> pa.Array:
        """Ticks since the last whole second."""
        return self._second_parts[1]

    @cached_property
    def minute_parts(self) -> tuple[pa.Array, pa.Array]:
        """Minutes since midnight and seconds of the minute."""
        return _divide(self.daysecond, 60)

    @cached_property
    def year_parts(self) -> tuple[pa.Array, pa.Array]:
        """Astronomical year, and the day of the year that began on March 1, from 0."""
        return _year_parts(self.days)

    @cached_property
    def yearday(self) -> pa.Array:
        """Days since January 1."""
        return _yearday(*self.year_parts)

    @cached_property
    def weekday(self) -> pa.Array:
        """Days since Sunday."""
        return floor_divide(pc.add(self.days, 4), 7)[1]

    @cached_property
    def iso_week_parts(self) -> tuple[pa.Array, pa.Array]:
        """ISO 8601 year and week, which are those of the week's Thursday."""
        since_monday = floor_divide(pc.add(self.days, 3), 7)[1]
        year, march_day = _year_parts(pc.add(pc.subtract(self.days, since_monday), 3))
        return year, pc.add(_divide(_yearday(year, march_day), 7)[0], 1)


class CivilFields(Civil):
    """The same of fields that are known already.

    Args:
        year: Astronomical years from -4800 on, int64 as all others.
        march_day: Day of the year that began on March 1, from 0.
        daysecond: Seconds since midnight.
        fraction: Nanoseconds since the last whole second.
    """

    def __init__(
        self, *, year: pa.Array, march_day: pa.Array, daysecond: pa.Array, fraction: pa.Array
    ) -> None:
        self.fraction_digits = 9
        self.__dict__["year_parts"] = year, march_day
        self.__dict__["_second_parts"] = daysecond, fraction

    @property
    def days(self) -> pa.Array:
        """Days since 1970-01-01."""
        return self._days

    @cached_property
    def _days(self) -> pa.Array:
        year, march_day = self.year_parts
        before_march = pc.cast(pc.greater_equal(march_day, 306), pa.int64())
        years = pc.add(pc.subtract(year, before_march), _ERAS_BEFORE_FIELDS * _ERA_YEARS)
        leap_days = pc.add(
            pc.subtract(pc.divide(years, 4), pc.divide(years, 100)), pc.divide(years, _ERA_YEARS)
        )
        days = pc.add(pc.add(pc.multiply(years, 365), leap_days), march_day)
        return pc.subtract(days, _ERAS_BEFORE_FIELDS * _ERA_DAYS + _MARCH_1_YEAR_0)


def floor_divide(values: pa.Array, divisor: int) -> tuple[pa.Array, pa.Array]:
    """Return quotients rounded down and remainders of 0 or more; `values` are int64."""
    quotient, remainder = _divide(values, divisor)
    # Arrow rounds towards zero: -1 where that was up. It ignores a shift by all 63 bits, and the
    # remainder is far below 2**62.
    borrow = pc.shift_right(remainder, 62)
    return pc.add(quotient, borrow), pc.add(remainder, pc.bit_wise_and(borrow, divisor))


def _divide(values: pa.Array, divisor: int) -> tuple[pa.Array, pa.Array]:
    quotient = pc.divide(values, divisor)
    return quotient, pc.subtract(values, pc.multiply(quotient, divisor))


def _year_parts(days: pa.Array) -> tuple[pa.Array, pa.Array]:
    shift = _MARCH_1_YEAR_0 + _ERAS_BEFORE * _ERA_DAYS
    quarters = pc.add(pc.multiply(days, 4), 4 * shift + 3)
    century, rest = _divide(quarters, _ERA_DAYS)
    in_century = pc.bit_wise_or(rest, 3)
    year, rest = _divide(in_century, 1461)
    march_day = pc.shift_right(rest, 2)
    years = pc.add(pc.multiply(century, 100), year)
    after_december = pc.cast(pc.greater_equal(march_day, 306), pa.int64())
    return pc.add(pc.subtract(years, _ERAS_BEFORE * _ERA_YEARS), after_december), march_day


def _yearday(year: pa.Array, march_day: pa.Array) -> pa.Array:
    centuries, of_century = floor_divide(year, 100)
    of_four = pc.bit_wise_and(pc.if_else(pc.equal(of_century, 0), centuries, year), 3)
    leap = pc.cast(pc.equal(of_four, 0), pa.int64())
    return pc.if_else(
        pc.greater_equal(march_day, 306),
        pc.subtract(march_day, 306),
        pc.add(pc.add(march_day, 59), leap),
    )
