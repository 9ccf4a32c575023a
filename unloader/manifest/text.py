"""The text of manifests. What the tables of a run have in common is put into words once.

A run over a thousand tables writes a thousand manifests, which differ in little: their options are
the same but for the place, so are their settings, and many of their columns and workers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

from unloader.json_fields import fields_of, to_json
from unloader.json_text import indented, is_plain
from unloader.manifest.asked import OptionsRecord
from unloader.manifest.digest import with_digest
from unloader.manifest.model import Manifest

_MOST_KNOWN = 4096
"""Parts whose text is kept (guess)."""

_WHOLE = frozenset(("source", "snapshot", "settings"))
"""Keys whose values many manifests have in common."""

_EACH = frozenset(("columns", "workers"))
"""Keys of lists, entries of which many manifests have in common."""

_PLACE = '"to": ""'
_TOP, _BELOW = "\n  ", "\n    "

_known: dict[tuple[str, Any], str] = {}


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the text of a manifest as it is written, its digest at the end."""
    items = []
    for name, key, is_optional in fields_of(Manifest):
        value = getattr(manifest, name)
        if name != "digest" and not (is_optional and value is None):
            items.append(f'"{key}": {_text(name, value)}')
    inner = f",{_TOP}".join(items)
    return with_digest(f"{{{_TOP}{inner}\n}}\n".encode())


def _text(name: str, value: Any) -> str:
    if is_plain(value):
        return indented(value)
    if isinstance(value, OptionsRecord):
        # The place is the first of the options, and all that differs.
        key = _TOP, (OptionsRecord, *_values(value)[1:])
        options = _kept(key, lambda: replace(value, to=""), _TOP)
        return options.replace(_PLACE, f'"to": {indented(to_json(value.to), _BELOW)}', 1)
    if name in _WHOLE:
        return _shared(value, _TOP)
    if name in _EACH and value:
        inner = f",{_BELOW}".join(_shared(each, _BELOW) for each in value)
        return f"[{_BELOW}{inner}{_TOP}]"
    return indented(to_json(value), _TOP)


def _shared(value: Any, line: str) -> str:
    """Return the text of a value, which is kept for the next manifest."""
    return _kept((line, _identity(value)), lambda: value, line)


def _kept(key: tuple[str, Any], value: Callable[[], Any], line: str) -> str:
    """Return the text that is kept under a key, which is made of the value if there is none."""
    try:
        text = _known.get(key)
    except TypeError:
        # Options of a transform hold objects of any form.
        return indented(to_json(value()), line)
    if text is None:
        text = indented(to_json(value()), line)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = text
    return text


def _identity(value: Any) -> Any:
    """Return what is equal for values with the same text only.

    1, 1.0 and true are equal, but no field of a record takes more than one of them.
    """
    kind = type(value)
    return (kind, *_values(value)) if dataclasses.is_dataclass(kind) else value


def _values(value: Any) -> tuple[Any, ...]:
    """Return the fields of a dataclass; dictionaries as what can be a key."""
    kind: type = type(value)
    values = _values_of(kind)(value)
    if dict not in map(type, values):
        return values
    return tuple(tuple(each.items()) if type(each) is dict else each for each in values)


@cache
def _values_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets all fields of a dataclass, which has several."""
    return attrgetter(*(name for name, *_ in fields_of(kind)))
