"""JSON with sorted keys and no blanks, of which a digest can be taken; what is shared, made once.

The text is that of `json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))`. The records
of a thousand tables have nine tenths of their text in common, as the tables share the options and
columns that it is made of.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any

from unloader.json_fields import fields_of, has_own_form, to_json

_MOST = 10_000
"""Objects whose text is kept (guess); it is given up then, and made anew."""


class CanonicalTexts:
    """Makes the text of objects, and keeps that of each as long as it is in use itself."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any) -> str:
        """Return the text of plain data, which must not be changed afterwards."""
        kind: type = type(value)
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(value)
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if kind is tuple:
            text = f"[{','.join(map(self.of, value))}]"
        elif dataclasses.is_dataclass(kind) and not has_own_form(kind):
            text = of_object(self.of_fields(value).items())
        else:
            text = of_json(to_json(value))
        if len(self._known) >= _MOST:
            self._known.clear()
        # The object with it: as long as it is there no other one has its number.
        self._known[id(value)] = value, text
        return text

    def of_fields(self, value: Any) -> dict[str, str]:
        """Return the texts of a dataclass's fields by their keys, which are sorted."""
        kind: type = type(value)
        fields, values = _sorted_fields(kind)
        found = {}
        for (key, is_optional), item in zip(fields, values(value), strict=True):
            if not (is_optional and item is None):
                plain = _PLAIN.get(type(item))
                found[key] = self.of(item) if plain is None else plain(item)
        return found


of_json: Callable[[Any], str] = partial(json.dumps, sort_keys=True, separators=(",", ":"))
"""Return the text of what is JSON already."""


def of_object(items: Iterable[tuple[str, str]]) -> str:
    """Return the text of an object, of keys in their order and the texts of their values."""
    return f"{{{','.join([f'{_key(key)}:{text}' for key, text in items])}}}"


@cache
def _key(name: str) -> str:
    return encode_basestring_ascii(name)


@cache
def _sorted_fields(
    kind: type,
) -> tuple[tuple[tuple[str, bool], ...], Callable[[Any], tuple[Any, ...]]]:
    """Return key of each field and whether it may be left out, and what gets their values."""
    fields = sorted(fields_of(kind), key=lambda field: field[1])
    names = [name for name, *_ in fields]
    if len(names) == 1:
        (only,) = map(attrgetter, names)
        return _keys(fields), lambda value: (only(value),)
    return _keys(fields), attrgetter(*names) if names else lambda value: ()


def _keys(fields: Iterable[tuple[str, str, bool]]) -> tuple[tuple[str, bool], ...]:
    return tuple((key, is_optional) for _, key, is_optional in fields)


_PLAIN: dict[type, Callable[[Any], str]] = {
    str: encode_basestring_ascii,
    int: str,
    float: of_json,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}
