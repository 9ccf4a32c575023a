"""Values of results as Python has them, and parameters as the server reads them; all as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unloader.sources.postgres.libpq.errors import ServerError

_BOOL, _NUMERIC = 16, 1700
_WHOLE = (20, 21, 23, 26)
_FLOATS = (700, 701)
_ARRAYS = {
    1000: _BOOL,
    **{1016: 20, 1005: 21, 1007: 23, 1028: 26},
    **{1021: 700, 1022: 701},
    1231: _NUMERIC,
    **dict.fromkeys((1002, 1003, 1009, 1014, 1015), 25),
}
"""Object numbers of array types, with that of their elements; from the catalog `pg_type`."""

_NOT_TEXT = "22021"
"""The SQLSTATE with which a server refuses a NUL in a text."""


class Row(Sequence[Any]):
    """A row of a result: values by position or by name of the column."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: tuple[Any, ...], places: Mapping[str, int]) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, key: Any) -> Any:
        """Return a value; `KeyError` or `IndexError` if there is no such column."""
        return self._values[self._places[key] if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Row({dict(zip(self._places, self._values, strict=False))})"


def reader(oid: int) -> Callable[[bytes], Any]:
    """Return what makes a value of the text of a type; what is not known stays text."""
    if oid == _BOOL:
        return lambda text: text == b"t"
    if oid in _WHOLE:
        return int
    if oid in _FLOATS:
        return float
    if oid == _NUMERIC:
        from decimal import Decimal

        return lambda text: Decimal(text.decode())
    if oid in _ARRAYS:
        element = reader(_ARRAYS[oid])
        return lambda text: _elements(text.decode(), element)
    return bytes.decode


def _elements(text: str, element: Callable[[bytes], Any]) -> list[Any]:
    """Return the elements of an array of one dimension, None for NULL."""
    found: list[Any] = []
    at, end = text.index("{") + 1, len(text) - 1
    while at < end:
        if text[at] == '"':
            at, value = _quoted(text, at + 1)
            found.append(element(value.encode()))
        else:
            comma = text.find(",", at)
            stop = comma if comma >= 0 else end
            bare, at = text[at:stop], stop
            found.append(None if bare == "NULL" else element(bare.encode()))
        at += 1  # The comma behind it.
    return found


def _quoted(text: str, at: int) -> tuple[int, str]:
    """Return where an element in quotes ends, behind its quote, and what it says."""
    said = []
    while text[at] != '"':
        at += text[at] == "\\"
        said.append(text[at])
        at += 1
    return at + 1, "".join(said)


def written(value: object) -> bytes | None:
    """Return a parameter as the server reads it; None is NULL.

    Raises:
        ServerError: A text has a NUL, as the server itself would say.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return c_text("{" + ",".join(map(_written_element, value)) + "}")
    return c_text(_plain(value))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _written_element(value: object) -> str:
    if value is None:
        return "NULL"
    text = _plain(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def c_text(text: str) -> bytes:
    """Return a text for a function of C, which would take a NUL for its end.

    Raises:
        ServerError: It has one. Cut there, a statement would lose its conditions.
    """
    if "\0" in text:
        raise ServerError("PostgreSQL does not accept text with the character NUL", _NOT_TEXT)
    return text.encode()
