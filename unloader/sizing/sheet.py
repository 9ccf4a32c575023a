"""The lines of a calculation, each of which can be done again with a pocket calculator.

A value is rounded to six digits as soon as it is there, and goes on like that: what is shown is
what is reckoned with.
"""

from __future__ import annotations

import math

from unloader.sizing.model import Step

_DIGITS = 6
_EXACT = 10**15
"""Whole numbers below it are shown and kept digit by digit."""


def rounded(value: float) -> float:
    """Return a value with six digits of it; whole numbers are kept."""
    if value == 0 or (float(value).is_integer() and abs(value) < _EXACT):
        return float(value)
    return float(f"{value:.{_DIGITS}g}")


def shown(value: float) -> str:
    """Return a rounded value with its thousands marked, as formulas have it."""
    value = rounded(value)
    if value.is_integer() and abs(value) < _EXACT:
        return f"{value:,.0f}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 12)}f}".rstrip("0").rstrip(".")


class Sheet:
    """Lines in the order in which they were reckoned."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """All lines."""
        return tuple(self._steps)

    def given(self, what: str, value: float, unit: str, note: str = "") -> float:
        """Write down what is given or measured; return it as it is reckoned with."""
        return self._add(what, "", value, unit, note)

    def times(self, what: str, *factors: float, unit: str, note: str = "") -> float:
        """Multiply."""
        return self._add(what, " x ".join(map(shown, factors)), math.prod(factors), unit, note)

    def over(self, what: str, first: float, *divisors: float, unit: str, note: str = "") -> float:
        """Divide by one number after the other."""
        value = first
        for each in divisors:
            value /= each
        return self._add(what, " / ".join(map(shown, (first, *divisors))), value, unit, note)

    def without(self, what: str, value: float, share: float, *, unit: str) -> float:
        """Take a share off."""
        formula = f"{shown(value)} x (1 - {shown(share)})"
        return self._add(what, formula, value * (1 - share), unit, f"{share:.3g} is the discount")

    def whole(self, what: str, value: float, *, unit: str) -> int:
        """Round up, and write that down where it changes anything."""
        # What is a whole number but for the rounding is not one more.
        found = max(1, math.ceil(value - 1e-9 * abs(value)))
        self._add(what, "", found, unit, f"{shown(value)} rounded up")
        return found

    def _add(self, what: str, formula: str, value: float, unit: str, note: str) -> float:
        value = rounded(value)
        self._steps.append(Step(what=what, formula=formula, value=value, unit=unit, note=note))
        return value
