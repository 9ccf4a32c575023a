"""All options, in the order of the help pages, and the fields of a request that they set."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    FixedWidths,
    OutputOptions,
    PlanOptions,
    Request,
    RetryOptions,
    SeatOptions,
    Selection,
    SessionOptions,
    ValueOptions,
)
from unloader.request import command_options, job_options
from unloader.request.option import Option, declared
from unloader.request.value_types import Items, several

DECLARING: tuple[tuple[Option, ...] | type[Struct], ...] = (
    command_options.PROGRAM_OPTIONS,
    command_options.DEMO_OPTIONS,
    command_options.RESUME_OPTIONS,
    command_options.VERIFY_OPTIONS,
    command_options.STATUS_OPTIONS,
    command_options.RUNS_OPTIONS,
    command_options.STOP_OPTIONS,
    command_options.SET_OPTIONS,
    command_options.REPORT_OPTIONS,
    command_options.INIT_OPTIONS,
    command_options.CLEAN_OPTIONS,
    command_options.KEEPERS_OPTIONS,
    job_options.PASSWORDS_OPTIONS,
    Selection,
    job_options.TABLES_OPTIONS,
    ValueOptions,
    SessionOptions,
    PlanOptions,
    ConcurrencyOptions,
    command_options.SWEEP_OPTIONS,
    job_options.DESTINATION_OPTIONS,
    command_options.SAMPLING_OPTIONS,
    job_options.ENCRYPTION_OPTIONS,
    job_options.TRANSFORMS_OPTIONS,
    OutputOptions,
    job_options.TEXT_OPTIONS,
    job_options.TEXT_FILES_OPTIONS,
    FixedWidths,
    job_options.PARQUET_FILES_OPTIONS,
    job_options.ROUTES_OPTIONS,
    command_options.TOPOLOGY_OPTIONS,
    SeatOptions,
    ClusterOptions,
    Request,
    job_options.RESTART_OPTIONS,
    RetryOptions,
    command_options.PREFLIGHT_OPTIONS,
    command_options.SIZE_OPTIONS,
    job_options.OPERATIONS_OPTIONS,
    command_options.ANALYSIS_OPTIONS,
    command_options.DISPLAY_OPTIONS,
)
"""Options, and Structs with options as metadata of their fields, in the order of the help pages."""

AXES = ("format", "compression", "fetch-memory", "overlap-buffer", "numa", "placement")
"""Options that a sweep may vary beside parallelism; all others are the same for all points."""

POINTS = "Points"
"""The group of the options of a sweep."""


@cache
def every_option() -> tuple[Option, ...]:
    """Return the one list of options, by groups, in the order of the help pages."""
    found: list[Option] = []
    for each in DECLARING:
        if not isinstance(each, tuple):
            hints = get_type_hints(each, include_extras=True).items()
            named = {
                key: get_args(hint)[1:] for key, hint in hints if get_origin(hint) is Annotated
            }
            each = declared("", (), each, **named)
        found.extend(each)
    for option in tuple(found):
        if option.name in AXES and "run" in option.commands:
            found.append(
                replace(
                    option,
                    kind=several(option.kind),
                    commands=("sweep",),
                    default=None if option.initial is None else (option.initial,),
                    metavar="",
                    common=False,
                    group=POINTS,
                    help=f"{option.help} Several values are measured one after another.",
                )
            )
    groups: dict[str, list[Option]] = {}
    for option in found:
        groups.setdefault(option.group, []).append(option)
    return tuple(itertools.chain.from_iterable(groups.values()))


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """Return the options that a command takes, in the order of the help page."""
    return tuple(option for option in every_option() if command in option.commands)


def fields_of(owner: type[Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Struct that options set.

    An empty option leaves its field's default. An option that the format does not know is passed
    over, since a variable may set it for all jobs of a machine.

    Args:
        owner: The Struct.
        values: The options by their keys; an option that a command does not take is missing.
    """
    found: dict[str, Any] = {}
    for option in every_option():
        value = values.get(option.key)
        if option.owner is owner and value is not None and option.knows(values.get("format", "")):
            kind = option.kind
            if isinstance(kind, Items) and kind.parsed and kind.parse:
                value = tuple(map(kind.parse, value))
            found[option.field] = option.shape(value) if option.shape else value
    return found


def recorded(request: Request, keys: Collection[str]) -> dict[str, Any]:
    """Return what a request has for the options that a manifest keeps.

    Args:
        request: The request.
        keys: Of the options in the manifest.
    """
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
