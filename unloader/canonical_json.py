"""JSON with sorted keys and no blanks, of which a digest can be taken; what is shared, made once.

The text is that of `json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))`. The records
of a thousand tables have nine tenths of their text in common, as the tables share the options and
columns that it is made of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from json.encoder import encode_basestring_ascii
from typing import Any

from unloader.identity import ByIdentity
from unloader.json_fields import fields_of, has_own_form, is_record, to_json, values_getter
from unloader.json_text import PLAIN

_MOST = 10_000
"""Objects whose text is kept (guess); it is given up then, and made anew."""


class CanonicalTexts:
    """Makes the text of objects, and keeps that of each as long as it is in use itself."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._known: ByIdentity[str] = ByIdentity(_MOST)

    def of(self, value: Any) -> str:
        """Return the text of plain data, which must not be changed afterwards."""
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(value)
        return self._known.of((value,), lambda: self._made(value))

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

    def _made(self, value: Any) -> str:
        kind: type = type(value)
        if kind is tuple:
            return f"[{','.join(map(self.of, value))}]"
        if is_record(kind) and not has_own_form(kind):
            return of_object(self.of_fields(value).items())
        return of_json(to_json(value))


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
    keys = tuple((key, is_optional) for _, key, is_optional in fields)
    return keys, values_getter([name for name, *_ in fields])


_PLAIN: dict[type, Callable[[Any], str]] = {**PLAIN, str: encode_basestring_ascii}
