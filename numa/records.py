"""Dataclasses of this package that are cheap to make: none of their methods is compiled.

The standard library compiles six methods of each class when its module is imported: 0.7 ms with
Python 3.11, where this takes 0.1 ms, and a short run makes no more than a few objects of each. In
all else they are dataclasses: `fields`, `replace`, `asdict`, `is_dataclass` and pickle take them.
`numa` and `partition_planner` stand alone, so each has this module, word for word.
"""

import dataclasses
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, slots, kw_only, frozen=False):
        """Return what makes a class a dataclass, with slots and with named arguments only."""
        if not (slots and kw_only):
            raise TypeError("give slots=True and kw_only=True")
        return partial(_made, frozen=frozen)


def _made(plain: Any, frozen: bool) -> Any:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(
        plain
    )
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields)
    methods = [_init(made, fields), *_comparing(names)]
    if frozen:
        methods += [_hash(names), *_refusing(), *_pickling(names)]
    else:
        made.__hash__ = None
    for method in methods:
        setattr(made, method.__name__, method)
    made.__signature__ = _Signature()
    return made


class _Signature:
    """What `inspect` tells of the arguments; made when somebody asks, as `inspect` takes long."""

    def __get__(self, one: Any, owner: Any) -> Any:
        from inspect import Parameter, Signature

        missing = dataclasses.MISSING
        arguments = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is missing else field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(owner)
        ]
        return Signature(arguments, return_annotation=None)


def _init(made: Any, fields: tuple[Any, ...]) -> Any:
    # Slots are set past `__setattr__`, which refuses.
    puts = tuple((field.name, getattr(made, field.name).__set__) for field in fields)
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    prepare = getattr(made, "__post_init__", None)

    def __init__(self: Any, **given: Any) -> None:
        values = {**defaults, **given}
        for name, put in puts:
            if name not in values:
                raise TypeError(f"{made.__name__} needs {name}")
            put(self, values[name])
        if len(values) != len(puts):
            unknown = sorted(values.keys() - {name for name, _ in puts})
            raise TypeError(f"{made.__name__} has no {', '.join(unknown)}")
        if prepare is not None:
            prepare(self)

    return __init__


def _comparing(names: tuple[str, ...]) -> tuple[Any, ...]:
    values = _values(names)

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return __eq__, __repr__


def _hash(names: tuple[str, ...]) -> Any:
    values = _values(names)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _refusing() -> tuple[Any, ...]:
    def __setattr__(self: Any, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    return __setattr__, __delattr__


def _pickling(names: tuple[str, ...]) -> tuple[Any, ...]:
    values = _values(names)

    def __getstate__(self: Any) -> Any:
        return values(self)

    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


def _values(names: tuple[str, ...]) -> Any:
    """Return what takes the values of an object, as a tuple whatever their number is."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)
