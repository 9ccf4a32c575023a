"""Dataclasses whose methods are compiled when they are first called.

A run loads some 250 dataclasses and makes objects of a third of them. The standard library compiles
six methods for each of them when its module is imported, which took a third of the CPU of a small
run (measured with Python 3.11: 0.8 to 0.9 ms a class, here 0.1 ms). Everything else is that of
`dataclasses`: `fields`, `field`, `replace`, `asdict` and `is_dataclass` take these classes, too.
`unloader` has it from here; `numa` and `partition_planner` stand alone and have plainer ones.
"""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False):
        """Return the class as a dataclass; a decorator, with options or without."""

        def decorated(cls):
            return _made(cls, frozen=frozen, slots=slots, kw_only=kw_only)

        return decorated if cls is None else decorated(cls)

    def replace(record, /, **changes):
        """Return what `dataclasses.replace` returns, in half of its time for records with slots.

        A run over many tables makes some thirty records for each from others.
        """
        kind = type(record)
        copying = _COPYING[kind] if kind in _COPYING else _COPYING.setdefault(kind, _copying(kind))
        if copying is None or not changes.keys() <= copying[1].keys():
            return dataclasses.replace(record, **changes)
        values, puts = copying
        made = object.__new__(kind)
        for put, value in zip(puts.values(), values(record), strict=True):
            put(made, value)
        for name, value in changes.items():
            puts[name](made, value)
        return made


_COPYING: dict[type, Any] = {}
"""What copies records, by their class; see `_copying`."""


def _copying(kind: Any) -> tuple[Any, dict[str, Any]] | None:
    """Return what gets all fields of a record, and what sets each of them past `__setattr__`.

    None where `__init__` does more than to set slots.
    """
    fields = dataclasses.fields(kind)
    slots: list[Any] = [getattr(kind, field.name, None) for field in fields]
    is_plain = all(field.init for field in fields) and not hasattr(kind, "__post_init__")
    if len(fields) < _SEVERAL or not is_plain or {*map(type, slots)} != {MemberDescriptorType}:
        return None
    names = [field.name for field in fields]
    return attrgetter(*names), {name: slot.__set__ for name, slot in zip(names, slots, strict=True)}


_SEVERAL = 2
"""Fields of which `attrgetter` makes a tuple."""

_NO_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")

_CALLS_AS_THEY_ARE = 16
"""Guess: so many objects cost less one by one than a compiled `__init__`."""


def _made(cls: type, *, frozen: bool, slots: bool, kw_only: bool) -> type:
    own = cls.__dict__
    if frozen and ("__setattr__" in own or "__delattr__" in own):
        raise TypeError(f"{cls.__name__} is frozen but sets attributes in another way")
    if own.get("__doc__") is None:
        cls.__doc__ = cls.__name__  # Else the library makes one from a signature, which takes long.
    plain = _with_fields(cls, kw_only)
    fields = dataclasses.fields(plain)
    shape = _Shape(fields, frozen, slots)
    made = _with_slots(plain, fields) if slots else plain
    shape.owner = made
    _set_methods(made, shape)
    return made


def _with_fields(cls: Any, kw_only: bool) -> Any:
    """Let the library find the fields of a class; it has nothing to compile.

    It searches each type that is written as text for three names that are no types of fields.
    Where none of them is there it is not shown the texts.
    """
    types = vars(cls).get("__annotations__", {})
    hidden = not any(name in str(each) for each in types.values() for name in _NO_FIELDS)
    if hidden and types:
        cls.__annotations__ = dict.fromkeys(types, object)
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    if hidden and types:
        made.__annotations__ = types
        for field in dataclasses.fields(made):
            field.type = types.get(field.name, field.type)
    return made


class _Shape:
    """What the methods of a class are made from."""

    def __init__(self, fields: tuple[Any, ...], frozen: bool, slots: bool) -> None:
        self.fields = fields
        self.frozen = frozen
        self.slots = slots
        self.owner: Any = None
        self.calls = 0
        """Objects made so far without a compiled `__init__`."""


def _set_methods(made: Any, shape: _Shape) -> None:
    own = made.__dict__
    own_eq = "__eq__" in own
    # A class that has `__eq__` has None for `__hash__` by itself.
    own_hash = own.get("__hash__", None) is not None or ("__hash__" in own and not own_eq)
    for name, source in (("__init__", _init), ("__repr__", _repr), ("__eq__", _eq)):
        if name not in own:
            setattr(made, name, _Later(name, source, shape))
    if not own_hash:
        made.__hash__ = _Later("__hash__", _hash, shape) if shape.frozen else None
    if not shape.frozen:
        return
    names = frozenset(field.name for field in shape.fields)
    made.__setattr__, made.__delattr__ = _refusing(made, names)
    if shape.slots:
        if "__getstate__" not in own:
            made.__getstate__ = _getting([field.name for field in shape.fields])
        if "__setstate__" not in own:
            made.__setstate__ = _setting([field.name for field in shape.fields])


class _Later:
    """A method that is compiled, and put into its place in the class, when somebody asks for it."""

    def __init__(self, name: str, source: Any, shape: _Shape) -> None:
        self._name = name
        self._source = source
        self._shape = shape

    def __get__(self, one: Any, owner: type) -> Any:
        if self._source is _init and one is not None and self._shape.calls < _CALLS_AS_THEY_ARE:
            self._shape.calls += 1
            return partial(self._initialise, one)
        function = self._compiled()
        return function if one is None else function.__get__(one, owner)

    def _initialise(self, one: Any, /, *positional: Any, **named: Any) -> None:
        """Do what the compiled method would do; leave to it whatever is not plain."""
        values, taken = [], 0
        for field in () if positional else self._shape.fields:
            if field.init and field.name in named:
                values.append((field.name, named[field.name]))
                taken += 1
            elif field.default_factory is not dataclasses.MISSING:
                values.append((field.name, field.default_factory()))
            elif field.default is not dataclasses.MISSING:
                values.append((field.name, field.default))
            elif field.init:
                break  # Required and missing.
        else:
            if taken == len(named) and not positional:
                put = object.__setattr__ if self._shape.frozen else setattr
                for name, value in values:
                    put(one, name, value)
                if hasattr(self._shape.owner, "__post_init__"):
                    one.__post_init__()
                return
        self._compiled()(one, *positional, **named)

    def _compiled(self) -> Any:
        owner = self._shape.owner
        text, known = self._source(self._shape)
        known["_set"] = object.__setattr__
        indented = text.replace("\n", "\n ")
        # Its globals are those of the module: where tools look for the types of the arguments.
        maker = f"def make({', '.join(known)}):\n {indented}\n return {self._name}"
        found: dict[str, Any] = {}
        exec(maker, sys.modules[owner.__module__].__dict__, found)  # Made of names of fields alone.
        function = found["make"](**known)
        function.__qualname__ = f"{owner.__qualname__}.{self._name}"
        if self._name == "__init__":
            fields = (field for field in self._shape.fields if field.init)
            function.__annotations__ = {**{f.name: f.type for f in fields}, "return": None}
        setattr(owner, self._name, function)
        return function


def _init(shape: _Shape) -> tuple[str, dict[str, Any]]:
    known: dict[str, Any] = {"_missing": dataclasses.MISSING}
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in shape.fields:
        has_factory = field.default_factory is not dataclasses.MISSING
        has_default = field.default is not dataclasses.MISSING
        value = field.name
        if has_factory:
            known[f"_make_{field.name}"] = field.default_factory
        if has_default:
            known[f"_default_{field.name}"] = field.default
        if field.init:
            default = (
                f"=_default_{field.name}" if has_default else "=_missing" if has_factory else ""
            )
            (named if field.kw_only else positional).append(f"{field.name}{default}")
            if has_factory:
                value = f"_make_{field.name}() if {field.name} is _missing else {field.name}"
        elif has_factory:
            value = f"_make_{field.name}()"
        elif has_default and shape.slots:
            value = f"_default_{field.name}"
        else:
            continue
        body.append(
            f"_set(self, {field.name!r}, {value})" if shape.frozen else f"self.{field.name}={value}"
        )
    if hasattr(shape.owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *named] if named else [])]
    lines = "\n ".join(body or ["pass"])
    return f"def __init__({', '.join(parameters)}):\n {lines}", known


def _repr(shape: _Shape) -> tuple[str, dict[str, Any]]:
    from reprlib import recursive_repr

    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in shape.fields if f.repr)
    text = f'@_once()\ndef __repr__(self):\n return f"{{self.__class__.__qualname__}}({shown})"'
    return text, {"_once": recursive_repr}


def _eq(shape: _Shape) -> tuple[str, dict[str, Any]]:
    names = [field.name for field in shape.fields if field.compare]
    ours, theirs = (_tuple(side, names) for side in ("self", "other"))
    text = (
        "def __eq__(self, other):\n if other.__class__ is self.__class__:\n"
        f"  return {ours} == {theirs}\n return NotImplemented"
    )
    return text, {}


def _hash(shape: _Shape) -> tuple[str, dict[str, Any]]:
    fields = shape.fields
    names = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
    return f"def __hash__(self):\n return hash({_tuple('self', names)})", {}


def _tuple(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name},' for name in names)})"


def _refusing(made: Any, names: frozenset[str]) -> tuple[Any, Any]:
    """Return what sets and deletes attributes of a frozen class: nothing, but in subclasses."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return __setattr__, __delattr__


def _getting(names: list[str]) -> Any:
    """Return what pickle takes for the state: the values in the order of the fields."""
    if not names:
        return lambda self: ()
    values = attrgetter(*names)
    if len(names) == 1:
        return lambda self: (values(self),)
    return lambda self: values(self)


def _setting(names: list[str]) -> Any:
    put = object.__setattr__

    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            put(self, name, value)

    return __setstate__


def _with_slots(cls: type, fields: tuple[Any, ...]) -> type:
    """Return the class anew, with a slot for each field that no class above has one for."""
    taken = {name for base in cls.__mro__[1:] for name in _slots_of(base)}
    names = [field.name for field in fields]
    content = dict(cls.__dict__)
    content["__slots__"] = tuple(name for name in names if name not in taken)
    for name in (*names, "__dict__", "__weakref__"):
        content.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


def _slots_of(base: type) -> tuple[str, ...]:
    found = base.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)
