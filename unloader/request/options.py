"""All options, in the order of the help pages, and the fields of a request that they set."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    OutputOptions,
    Request,
    RetryOptions,
    SeatOptions,
    Selection,
    SessionOptions,
    ValueOptions,
)
from unloader.request import job_options
from unloader.request.option import Option
from unloader.request.value_types import FLAG, choice, several

DECLARING: tuple[type, ...] = (
    job_options.JobOptions,
    Selection,
    ValueOptions,
    SessionOptions,
    Request,
    ConcurrencyOptions,
    OutputOptions,
    job_options.TextFilesOptions,
    job_options.ParquetFilesOptions,
    SeatOptions,
    ClusterOptions,
    RetryOptions,
)
"""The classes with the options of a run, in the order of the options within a group."""

# fmt: off
GROUPS = (
    "Options", "Resume", "Source", "Selection", "Tables", "Session", "Speed", "Output",
    "Encryption", "Transforms", "Safety", "CSV", "Parquet", "Routes", "Placement", "Cluster",
    "Display", "Operations",
)
# fmt: on
"""The groups of a run, in the order of the help pages; a command's own groups come before them."""
_ORDER = {name: at for at, name in enumerate(GROUPS)}

AXES = ("format", "compression", "fetch-memory", "overlap-buffer", "numa", "placement")
"""Options that a sweep may vary beside parallelism; all others are the same for all points."""

POINTS = "Points"
"""The group of the options of a sweep."""


@cache
def every_option() -> tuple[Option, ...]:
    """Return the one list of options, by groups, in the order of the help pages."""
    # Imported on use: a run does not have these options.
    from unloader.request import command_options as commands

    own = (each for each in vars(commands).values() if isinstance(each, type))
    of_commands = [each for each in own if each.__module__ == commands.__name__]
    found = [option for each in of_commands for option in _declared(each)]
    for option in shared_options():
        found.append(option)
        if option.name in AXES and "run" in option.commands:
            axis = replace(option, kind=several(option.kind), commands=("sweep",), group=POINTS)
            found.append(
                replace(
                    axis,
                    default=None if option.initial is None else (option.initial,),
                    metavar="",
                    common=False,
                    more="Several values are measured one after another.",
                )
            )
    return tuple(sorted(found, key=lambda each: _ORDER.get(each.group, -1)))


@cache
def shared_options() -> tuple[Option, ...]:
    """Return the options of `run`, `resume` and the program; other commands share some of them."""
    found = (option for each in DECLARING for option in _declared(each))
    return tuple(sorted(found, key=lambda each: _ORDER.get(each.group, -1)))


def _declared(place: type) -> Iterator[Option]:
    """Yield the options of a class, with the facts that follow from the fields that they set."""
    owner = place if issubclass(place, Struct) else getattr(place, "owner", None)
    hints = {} if owner is None else get_type_hints(owner, include_extras=True)
    attributes = vars(place) if owner is not place else hints
    for name, attribute in attributes.items():
        given = attribute if isinstance(attribute, tuple) else (attribute, *get_args(attribute))
        hint = hints.get(name)
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        # A Literal may also be None.
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        words = [word for each in parts if get_origin(each) is Literal for word in get_args(each)]
        for option in given:
            if isinstance(option, Option):
                yield replace(
                    option,
                    name=option.name or name.rstrip("_").replace("_", "-"),
                    kind=choice(*words) if words and option.kind is FLAG else option.kind,
                    group=option.group or getattr(place, "group", ""),
                    commands=option.commands or getattr(place, "commands", ()),
                    declared_in=place,
                    field=name,
                    owner=owner,
                )


@cache
def options_of(command: str) -> tuple[Option, ...]:
    every = shared_options() if command in ("", "run", "resume", "plan") else every_option()
    return tuple(option for option in every if command in option.commands)


def fields_of(owner: type[Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Struct that options set; an empty option leaves its field's default.

    Options that the format does not know are left out: a variable may set them for all jobs.
    """
    found: dict[str, Any] = {}
    for option in shared_options():
        value = values.get(option.key)
        if option.owner is owner and value is not None and option.knows(values.get("format", "")):
            kind = option.kind
            if kind.parsed and kind.parse:
                value = tuple(map(kind.parse, value))
            found[option.field] = option.shape(value) if option.shape else value
    return found


def recorded(request: Request, keys: Collection[str]) -> dict[str, Any]:
    """Return the values of a request for the options that a manifest keeps, by their keys there."""
    parts = {type(each): each for each in _parts(request)}
    found: dict[str, Any] = {}
    for option in options_of("run"):
        key = option.record or option.key
        if key in keys and option.owner is not None:
            part = parts.get(option.owner)
            found[key] = None if part is None else getattr(part, option.field)
    return found


def _parts(part: Struct) -> tuple[Struct, ...]:
    """Return a record and all records that its fields have."""
    inner = (getattr(part, name) for name in part.__struct_fields__)
    return (part, *(each for of in inner if isinstance(of, Struct) for each in _parts(of)))
