"""All options, in the order of the help pages, and the fields of a request that they set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

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
from unloader.request.option import Option, declared_in
from unloader.request.value_types import several

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
    ConcurrencyOptions,
    PlanOptions,
    command_options.SWEEP_OPTIONS,
    job_options.DESTINATION_OPTIONS,
    command_options.SAMPLING_OPTIONS,
    OutputOptions,
    job_options.ENCRYPTION_OPTIONS,
    job_options.TRANSFORMS_OPTIONS,
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

PAGE_ORDER = {
    "Selection": "table query query-name columns exclude where partition sample sample-by "
    "limit-rows part as-text",
    "Session": "session-sql call-timeout client-library scn fetch confirm-fetch parallel-query "
    "direct-read enable-row-security keep-snapshot",
    "Speed": "max-db-load parallelism max-sessions max-cpu slow-between slow-parallelism split "
    "unit-bytes fetch-memory worker-memory overlap-buffer overlap-buffers direct-io",
    "Output": "output to sample overwrite save-mode replace-where branch partition-by keep "
    "latest-link pipe-timeout format compression file-size file-per file-name checksum",
    "CSV": "dialect delimiter enclosure enclose escape null eol header trailing-delimiter "
    "record-length encoding substitute fixed width date-format timestamp-format "
    "timestamp-tz-format decimal-separator boolean-format binary-format guard-formulas",
    "Routes": "route",
    "Safety": "consistency resume-or-start skip-finished retries retry-delay retry-delay-max "
    "stall-timeout verify",
    POINTS: f"parallelism {' '.join(AXES)}",
}
"""The options with which a group begins; all others of the group follow as they are declared."""


@cache
def every_option() -> tuple[Option, ...]:
    """Return the one list of options, in the order of the help pages."""
    found = [
        option
        for each in DECLARING
        for option in (each if isinstance(each, tuple) else declared_in(each))
    ]
    of_run = {option.name: option for option in found if "run" in option.commands}
    found += [_axis(of_run[name]) for name in AXES]
    places = {(option.group, option.name): at for at, option in enumerate(found)}

    def place(option: Option) -> tuple[int, int]:
        at = places[option.group, option.name]
        first = PAGE_ORDER.get(option.group, "").split()
        if not first:
            return at, 0
        number = first.index(option.name) if option.name in first else len(first) + at
        return places[option.group, first[0]], number

    return tuple(sorted(found, key=place))


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """Return the options that a command takes, in the order of the help page."""
    return tuple(option for option in every_option() if command in option.commands)


def _axis(one: Option) -> Option:
    """Return an option of a run as a sweep has it, with several values."""
    return replace(
        one,
        kind=several(one.kind),
        commands=("sweep",),
        default=None if one.initial is None else (one.initial,),
        metavar="",
        common=False,
        group=POINTS,
        help=f"{one.help} Several values are measured one after another.",
    )


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
            shaped = option.kind.field(value)
            found[option.field] = option.shape(shaped) if option.shape else shaped
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
