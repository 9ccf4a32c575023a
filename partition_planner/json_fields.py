"""Strict reading of decoded JSON objects, with errors that say where the text is wrong.

Strictness carries the promise that an edited plan is refused: a key that was skipped in silence
would not reach the digest.
"""

from __future__ import annotations

import reprlib

from partition_planner.errors import PlanError


class Fields:
    """One JSON object whose keys are exactly those expected."""

    def __init__(self, value: object, where: str, names: tuple[str, ...]) -> None:
        """Take the object apart.

        Args:
            value: What `json.loads` gave.
            where: Path of the object inside the plan, for messages.
            names: Every key that must be there; no other may be.

        Raises:
            PlanError: Not an object, a key is missing, or one is unknown.
        """
        self.where = where
        if not isinstance(value, dict):
            raise not_as_expected(where, "an object", value)
        missing = [name for name in names if name not in value]
        if missing:
            raise broken(f"{where} has no {', '.join(map(repr, missing))}")
        unknown = sorted(str(key) for key in value if key not in names)
        if unknown:
            raise broken(f"{where} has the unknown key {', '.join(map(repr, unknown))}")
        self._value: dict[str, object] = value

    def raw(self, name: str) -> object:
        """Return the value as it is."""
        return self._value[name]

    def path(self, name: str) -> str:
        """Return the path of a key, for messages."""
        return f"{self.where}.{name}"

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._value[name]
        if not isinstance(value, str):
            raise not_as_expected(self.path(name), "a string", value)
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string or None."""
        return None if self._value[name] is None else self.text(name)

    def integer(self, name: str) -> int:
        """Return an integer; 1.0 and true are none."""
        value = self._value[name]
        if not isinstance(value, int) or isinstance(value, bool):
            raise not_as_expected(self.path(name), "an integer", value)
        return value

    def optional_integer(self, name: str) -> int | None:
        """Return an integer or None."""
        return None if self._value[name] is None else self.integer(name)

    def number(self, name: str) -> float:
        """Return a number as a float."""
        value = self._value[name]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise not_as_expected(self.path(name), "a number", value)
        return float(value)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._value[name]
        if not isinstance(value, bool):
            raise not_as_expected(self.path(name), "true or false", value)
        return value

    def items(self, name: str) -> list[object]:
        """Return a list of anything."""
        value = self._value[name]
        if not isinstance(value, list):
            raise not_as_expected(self.path(name), "a list", value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        found = []
        for at, item in enumerate(self.items(name)):
            if not isinstance(item, str):
                raise not_as_expected(f"{self.path(name)}[{at}]", "a string", item)
            found.append(item)
        return tuple(found)

    def optional_pair(self, name: str) -> tuple[str, str] | None:
        """Return two strings or None."""
        value = self._value[name]
        return None if value is None else pair(value, self.path(name))


def pair(value: object, where: str) -> tuple[str, str]:
    """Return two strings.

    Raises:
        PlanError: The value is anything else.
    """
    if isinstance(value, list) and len(value) == 2:
        first, second = value
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    raise not_as_expected(where, "a list of two strings", value)


def integer_pair(value: object, where: str) -> tuple[int, int]:
    """Return two integers; 1.0 and true are none.

    Raises:
        PlanError: The value is anything else.
    """
    if isinstance(value, list) and len(value) == 2:
        first, second = value
        # By type, for a bool is an int to isinstance.
        if type(first) is int and type(second) is int:
            return first, second
    raise not_as_expected(where, "a list of two integers", value)


def not_as_expected(where: str, expected: str, value: object) -> PlanError:
    """Return the error for a value of the wrong kind."""
    # Not repr: that would go down into a value of any depth, as far as the stack reaches.
    shown = reprlib.repr(value)
    return broken(f"{where} is {shown[:60]}{'...' if len(shown) > 60 else ''}, not {expected}")


def broken(what: str) -> PlanError:
    """Return the error for a plan that cannot be read."""
    return PlanError(f"The plan cannot be used: {what}.", "make the plan again from the source.")
