"""Plain data as JSON and back, by the fields of its records, so that a new field needs no code.

What goes out comes back equal. A class with a `to_json` and a `from_json` of its own is written and
read by those. Reading is strict: a key that is missing or not known, or a value of another type, is
an error that names its place, for a key skipped in silence would be a part of a run that is lost.
"""

from __future__ import annotations

import reprlib
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Literal,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import NODEFAULT, Meta, Struct, ValidationError, convert, to_builtins

T = TypeVar("T")

OPTIONAL = Meta(extra={"json_optional": True})
"""Annotation of a field that is left out where it is None."""


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
    if has_own_form(kind):
        return _by_itself
    if is_strict(kind):
        return to_builtins
    if is_record(kind):
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
def fields_of(kind: type[Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Return name and key of each field of a dataclass, and whether it is left out where None."""
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    hints = _annotated(kind)
    return tuple((name, key, _is_optional(hints[name])) for name, key in names)


def _is_optional(hint: Any) -> bool:
    return any(isinstance(each, Meta) and each == OPTIONAL for each in get_args(hint))


def values_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets attributes of these names, as a tuple however many there are."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def fields_from_json(kind: type[T], value: object, where: str, *, newer: bool = False) -> T:
    """Return what `fields_to_json` wrote; as `from_json` otherwise."""
    found: T = _read(_reader_of_instance, kind, value, where, newer)
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
    found: T = _read(_reader_of, kind, value, where, newer)
    return found


def default_of(kind: type[Struct], name: str) -> Any:
    """Return the default of a record's field, or what makes it; NODEFAULT if it has none."""
    fields, defaults = kind.__struct_fields__, kind.__struct_defaults__
    place = fields.index(name) - len(fields) + len(defaults)
    return defaults[place] if place >= 0 else NODEFAULT


def is_record(kind: Any) -> TypeGuard[type[Struct]]:
    """Return whether a type is a record whose fields are written one by one."""
    return isinstance(kind, type) and issubclass(kind, Struct) and not is_strict(kind)


def is_strict(kind: Any) -> bool:
    """Return whether a type is a record that msgspec writes and reads: it refuses unknown keys."""
    is_struct = isinstance(kind, type) and issubclass(kind, Struct)
    return is_struct and kind.__struct_config__.forbid_unknown_fields


def _converted(kind: Any, value: object) -> Any:
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise _Unfit(f"is not as expected: {error}") from None


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the type of each field of a record, without annotations."""
    return {
        name: get_args(hint)[0] if get_origin(hint) is Annotated else hint
        for name, hint in _annotated(kind).items()
    }


@cache
def _annotated(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


_Reader = Callable[[object, bool], Any]
"""Returns a value from what was decoded; the second argument is `newer` of `from_json`."""


class _Unfit(Exception):
    """A value that is not of its type; `place` grows on the way up to what is read.

    So a place costs nothing where all is well: the manifest of a run over many tables has many
    thousand values.
    """

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(what)
        self.what, self.place = what, place


def _read(
    reader_of: Callable[[Any], _Reader], kind: Any, value: object, where: str, newer: bool
) -> Any:
    try:
        return reader_of(kind)(value, newer)
    except _Unfit as error:
        raise NotAsExpected(f"{where}{error.place} {error.what}") from None


@cache
def _reader_of(kind: Any) -> _Reader:
    """Return what reads a value of this type."""
    if kind in _READ_AS_THEY_ARE:
        return _reader_as_it_is(kind)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if any(map(is_strict, get_args(kind))):
            return lambda value, _newer: _converted(kind, value)
        return _reader_of_one(get_args(kind))
    if origin is tuple:
        return _reader_of_tuple(get_args(kind))
    if origin is dict:
        return _reader_of_dict(_reader_of(get_args(kind)[1]))
    if origin is Literal:
        return _reader_of_literal(get_args(kind))
    if has_own_form(kind):
        return lambda value, _newer: kind.from_json(value)
    if is_strict(kind):
        return lambda value, _newer: _converted(kind, value)
    if is_record(kind):
        return _reader_of_instance(kind)
    return lambda value, _newer: _plain(kind, value)


def _reader_as_it_is(kind: type) -> _Reader:
    def read(value: object, _newer: bool) -> Any:
        return value if type(value) is kind else _plain(kind, value)

    return read


class _Reading(Struct, frozen=True, kw_only=True):
    """How the fields of a dataclass are read, by their keys."""

    readers: dict[str, tuple[str, _Reader]]
    """The name of the field and what reads it."""
    optional: dict[str, str]
    """Names of the fields that are None where their key is missing."""
    needed: frozenset[str]
    """Keys that must be there; of a newer program, too."""
    expected: frozenset[str]
    """Keys that this program always writes, but not every newer one."""


@cache
def _reading_of(kind: Any) -> _Reading:
    hints = hints_of(kind)
    optional = {key: name for name, key, is_optional in fields_of(kind) if is_optional}
    names = {key: name for name, key, _ in fields_of(kind)}
    always = names.keys() - optional.keys()
    needed = frozenset(key for key in always if default_of(kind, names[key]) is NODEFAULT)
    return _Reading(
        readers={key: (name, _reader_of(hints[name])) for key, name in names.items()},
        optional=optional,
        needed=needed,
        expected=frozenset(always - needed),
    )


def _reader_of_instance(kind: Any) -> _Reader:
    """Return what reads a dataclass from its fields, even where it has a form of its own."""

    def read(value: object, newer: bool) -> Any:
        # Asked for here: a class may have fields of its own type.
        reading = _reading_of(kind)
        readers = reading.readers
        found: dict[str, Any] = {}
        value = _object(value)
        for key, item in value.items():
            if key in readers:
                name, reader = readers[key]
                try:
                    found[name] = reader(item, newer)
                except _Unfit as error:
                    raise _Unfit(error.what, f".{key}{error.place}") from None
            elif not newer:
                raise _Unfit(f"has the unknown key {min(value.keys() - readers.keys())!r}")
        if len(found) < len(readers):
            needed = reading.needed if newer else reading.needed | reading.expected
            missing = needed - value.keys()
            if missing:
                raise _Unfit(f"has no {next(key for key in readers if key in missing)!r}")
            for key in reading.optional.keys() - value.keys():
                found[reading.optional[key]] = None
        return kind(**found)

    return read


def _reader_of_one(kinds: tuple[Any, ...]) -> _Reader:
    may_be_none = type(None) in kinds
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    readers = [(kind, _reader_of(kind)) for kind in kinds]

    def read(value: object, newer: bool) -> Any:
        if value is None and may_be_none:
            return None
        for kind, reader in readers:
            if len(readers) == 1 or _may_be(kind, value):
                return reader(value, newer)
        raise _unfit("a value of a known form", value)

    return read


def _reader_of_dict(reader: _Reader) -> _Reader:
    def read(value: object, newer: bool) -> Any:
        found = {}
        for key, item in _object(value).items():
            try:
                found[key] = reader(item, newer)
            except _Unfit as error:
                raise _Unfit(error.what, f".{key}{error.place}") from None
        return found

    return read


def _reader_of_tuple(kinds: tuple[Any, ...]) -> _Reader:
    every = _reader_of(kinds[0]) if kinds[-1] is Ellipsis else None
    readers = [] if every else [_reader_of(kind) for kind in kinds]

    def read(value: object, newer: bool) -> Any:
        if not isinstance(value, list):
            raise _unfit("a list", value)
        if every is None and len(readers) != len(value):
            raise _unfit(f"a list of {len(readers)}", value)
        found = []
        for at, item in enumerate(value):
            try:
                found.append((every or readers[at])(item, newer))
            except _Unfit as error:
                raise _Unfit(error.what, f"[{at}]{error.place}") from None
        return tuple(found)

    return read


def _reader_of_literal(values: tuple[object, ...]) -> _Reader:
    def read(value: object, _newer: bool) -> Any:
        if value not in values:
            raise _unfit(" or ".join(map(repr, values)), value)
        return value

    return read


def _may_be(kind: Any, value: object) -> bool:
    """Tell which of several types is meant: of several records the one that has all keys."""
    if is_record(kind):
        return isinstance(value, dict) and value.keys() <= _reading_of(kind).readers.keys()
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list)
    return type(value) is kind


def has_own_form(kind: Any) -> bool:
    """Return whether a class has a `to_json` and a `from_json` of its own."""
    return isinstance(kind, type) and hasattr(kind, "from_json") and hasattr(kind, "to_json")


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit("an object", value)
    return value


def _plain(kind: Any, value: object) -> Any:
    if kind is Any:
        return value
    if kind is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise _unfit("hex digits", value) from None
    if kind is float and type(value) is int:
        return float(value)
    # By type, for a bool is an int to isinstance.
    if type(value) is not kind:
        raise _unfit(_NAMES.get(kind, str(kind)), value)
    return value


_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    bytes: "hex digits",
}


def _unfit(expected: str, value: object) -> _Unfit:
    # Not repr: that would go down into a value of any depth.
    return _Unfit(f"is {reprlib.repr(value)[:60]}, not {expected}")
