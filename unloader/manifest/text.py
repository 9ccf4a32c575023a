"""The text of manifests. What the tables of a run have in common is put into words once.

A run over a thousand tables writes a thousand manifests, which differ in little: their options are
the same but for the place, so are their settings, and many of their columns and workers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from unloader.identity import ByIdentity
from unloader.json_fields import fields_of, has_own_form, is_record, to_json, values_getter
from unloader.json_text import PLAIN, STEP, indented
from unloader.manifest.asked import OptionsRecord
from unloader.manifest.digest import with_digest
from unloader.manifest.model import Manifest, SeatRecord

_MOST_KNOWN = 4096
"""Texts that are kept of values, by what these are (guess)."""

_SHARED = frozenset(("source", "snapshot", "columns", "settings"))
"""Keys whose values are the same objects in many manifests."""

_PLACE = '"to": ""'
_TOP, _BELOW = "\n  ", "\n    "

_known: dict[Any, str] = {}
_of_objects: ByIdentity[str] = ByIdentity()


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
    if name in _SHARED:
        return _of_objects.of((value,), lambda: _direct(value, _TOP))
    if isinstance(value, OptionsRecord):
        # The place is the first of the options, and all that differs.
        _, *others = _values_of(OptionsRecord)(value)
        options = _of_objects.of(tuple(others), lambda: _direct(replace(value, to=""), _TOP))
        return options.replace(_PLACE, f'"to": {_direct(value.to, _BELOW)}', 1)
    if name == "workers" and value:
        inner = f",{_BELOW}".join(_worker(each) for each in value)
        return f"[{_BELOW}{inner}{_TOP}]"
    return _direct(value, _TOP)


def _direct(value: Any, line: str) -> str:
    """Return the same as `indented` of what `to_json` returns, which is not made in between."""
    kind: type = type(value)
    plain = PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    if kind is SeatRecord:
        return _seat(value, line)
    return _parts(value, line)


def _parts(value: Any, line: str) -> str:
    kind: type = type(value)
    inner = line + STEP
    fields = _fields_of(kind)
    if fields is None:
        if kind is tuple:
            if not value:
                return "[]"
            return f"[{inner}{f',{inner}'.join([_direct(each, inner) for each in value])}{line}]"
        return indented(to_json(value), line)
    items = []
    for (begin, is_optional), item in zip(fields, _values_of(kind)(value), strict=True):
        plain = PLAIN.get(type(item))
        if plain is None:
            items.append(begin + _direct(item, inner))
        elif item is not None or not is_optional:
            items.append(begin + plain(item))
    return f"{{{inner}{f',{inner}'.join(items)}{line}}}" if items else "{}"


@lru_cache(maxsize=_MOST_KNOWN)
def _seat(value: SeatRecord, line: str) -> str:
    """Return the text of a seat, of which a run has one for each worker."""
    return _parts(value, line)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Return what each field of a dataclass begins with, and whether it may be left out.

    None for what is no dataclass, or has a form of its own.
    """
    if not is_record(kind) or has_own_form(kind):
        return None
    return tuple((f'"{key}": ', is_optional) for _, key, is_optional in fields_of(kind))


def _worker(value: Any) -> str:
    """Return the text of a worker, most of which have done nothing for most of the tables."""
    key = _identity(value)
    text = _known.get(key)
    if text is None:
        text = _direct(value, _BELOW)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = text
    return text


def _identity(value: Any) -> Any:
    """Return what is equal for values with the same text only; dictionaries as what can be a key.

    1, 1.0 and true are equal, but no field of a record takes more than one of them.
    """
    kind: type = type(value)
    values = _values_of(kind)(value)
    return tuple(tuple(each.items()) if type(each) is dict else each for each in values)


@cache
def _values_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets all fields of a dataclass."""
    return values_getter([name for name, *_ in fields_of(kind)])
