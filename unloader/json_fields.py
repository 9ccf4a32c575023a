"""Plain data as JSON and back, by the fields of its dataclasses, so that a new field needs no code.

What goes out comes back equal. A class with a `to_json` and a `from_json` of its own is written and
read by those. Reading is strict: a key that is missing or not known, or a value of another type, is
an error that names its place, for a key skipped in silence would be a part of a run that is lost.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

KEY = "json_key"
"""Metadata of a field: its key, where that is not the field's name."""
OPTIONAL = "json_optional"
"""Metadata of a field that is left out where it is None."""


class NotAsExpected(ValueError):
    """What was decoded is not what its type says; the message names the place."""


def to_json(value: Any) -> Any:
    """Return plain data as values that `json.dumps` takes."""
    kind: type = type(value)
    return _form_of(kind)(value)


def fields_to_json(value: Any) -> dict[str, Any]:
    """Return a dataclass by its fields, even where it has a form of its own."""
    kind: type = type(value)
    found = {}
    for name, key, is_optional in fields_of(kind):
        item = getattr(value, name)
        if not (is_optional and item is None):
            # Asked of the type here: most values are plain, and a run over many tables has many.
            found[key] = item if type(item) in _PLAIN_TYPES else to_json(item)
    return found


_PLAIN_TYPES = frozenset((str, int, float, bool, type(None)))
_READ_AS_THEY_ARE = (str, int, float, bool)


@cache
def _form_of(kind: type) -> Callable[[Any], Any]:
    """Return what makes JSON of a value of this type."""
    if _has_own_form(kind):
        return _by_itself
    if dataclasses.is_dataclass(kind):
        return fields_to_json
    if issubclass(kind, (tuple, list)):
        return lambda value: [to_json(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    if issubclass(kind, bytes):
        return _in_hex
    return _as_it_is


def _by_itself(value: Any) -> Any:
    return value.to_json()


def _in_hex(value: bytes) -> str:
    return value.hex()  # In base64 any word may occur, "pwd=" among them.


def _as_it_is(value: Any) -> Any:
    return value


@cache
def fields_of(kind: type) -> tuple[tuple[str, str, bool], ...]:
    """Return name and key of each field of a dataclass, and whether it is left out where None."""
    return tuple(
        (field.name, key_of(field), bool(field.metadata.get(OPTIONAL)))
        for field in dataclasses.fields(kind)
    )


def fields_from_json(kind: type[T], value: object, where: str, *, newer: bool = False) -> T:
    """Return what `fields_to_json` wrote; as `from_json` otherwise."""
    found: T = _Reading(newer).instance(kind, value, where)
    return found


def from_json(kind: type[T], value: object, where: str, *, newer: bool = False) -> T:
    """Return what `to_json` wrote.

    Args:
        kind: The class of what was written.
        value: What `json.loads` gave.
        where: What the value is, for messages.
        newer: Keys that are not known are passed over, and those that are missing have their
            defaults: a program of another version may have written it.

    Raises:
        NotAsExpected: The value is not of the class; the message names the place.
    """
    found: T = _Reading(newer).read(kind, value, where)
    return found


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key that a field has in JSON."""
    return str(field.metadata.get(KEY, field.name))


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass.

    A module that imports types of its fields for type checks alone has a function `late_types`,
    which returns them by their names.
    """
    try:
        return get_type_hints(kind)
    except NameError:
        # Only for a class that has such a field: importing the types takes its time.
        late = getattr(sys.modules[kind.__module__], "late_types", dict)
        return get_type_hints(kind, localns=late())


class _Reading:
    """One reading, with its rules."""

    def __init__(self, newer: bool) -> None:
        self._newer = newer

    def read(self, kind: Any, value: object, where: str) -> Any:
        """Return a value of a type from what was decoded."""
        if kind in _READ_AS_THEY_ARE and type(value) is kind:
            return value
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            return self._one_of(get_args(kind), value, where)
        if origin is tuple:
            return self._tuple(get_args(kind), value, where)
        if origin is dict:
            of = get_args(kind)[1]
            entries = _object(value, where).items()
            return {key: self.read(of, item, f"{where}.{key}") for key, item in entries}
        if origin is Literal:
            return _literal(get_args(kind), value, where)
        if _has_own_form(kind):
            return kind.from_json(value)
        if dataclasses.is_dataclass(kind):
            return self.instance(kind, value, where)
        return _plain(kind, value, where)

    def instance(self, kind: Any, value: object, where: str) -> Any:
        """Return a dataclass from its fields."""
        value = _object(value, where)
        fields = _fields_by_key(kind)
        unknown = sorted(value.keys() - fields.keys())
        if unknown and not self._newer:
            raise NotAsExpected(f"{where} has the unknown key {unknown[0]!r}")
        found = {}
        for key, field in fields.items():
            if key in value:
                kind_of_field = hints_of(kind)[field.name]
                found[field.name] = self.read(kind_of_field, value[key], f"{where}.{key}")
            elif field.metadata.get(OPTIONAL):
                found[field.name] = None
            elif not self._newer or not _has_default(field):
                raise NotAsExpected(f"{where} has no {key!r}")
        return kind(**found)

    def _one_of(self, kinds: tuple[Any, ...], value: object, where: str) -> Any:
        if value is None and type(None) in kinds:
            return None
        kinds = tuple(kind for kind in kinds if kind is not type(None))
        if len(kinds) > 1:
            kinds = tuple(kind for kind in kinds if _may_be(kind, value))
            if not kinds:
                raise _wrong(where, "of a form that is known", value)
        return self.read(kinds[0], value, where)

    def _tuple(self, kinds: tuple[Any, ...], value: object, where: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(value)
        if len(kinds) != len(value):
            raise _wrong(where, f"a list of {len(kinds)}", value)
        return tuple(
            self.read(kind, item, f"{where}[{at}]")
            for at, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )


@cache
def _fields_by_key(kind: Any) -> dict[str, dataclasses.Field[Any]]:
    return {key_of(field): field for field in dataclasses.fields(kind)}


def _may_be(kind: Any, value: object) -> bool:
    """Tell which of several types is meant: of several dataclasses the one that has all keys."""
    if dataclasses.is_dataclass(kind):
        keys = {key_of(field) for field in dataclasses.fields(kind)}
        return isinstance(value, dict) and value.keys() <= keys
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list)
    return type(value) is kind


def _has_own_form(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "from_json") and hasattr(kind, "to_json")


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return value


def _literal(values: tuple[object, ...], value: object, where: str) -> Any:
    if value not in values:
        raise _wrong(where, " or ".join(map(repr, values)), value)
    return value


def _plain(kind: Any, value: object, where: str) -> Any:
    if kind is Any:
        return value
    if kind is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise _wrong(where, "hex digits", value) from None
    if kind is float and type(value) is int:
        return float(value)
    # By type, for a bool is an int to isinstance.
    if type(value) is not kind:
        raise _wrong(where, _NAMES.get(kind, str(kind)), value)
    return value


_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    bytes: "hex digits",
}


def _wrong(where: str, expected: str, value: object) -> NotAsExpected:
    # Not repr: that would go down into a value of any depth.
    return NotAsExpected(f"{where} is {reprlib.repr(value)[:60]}, not {expected}")
