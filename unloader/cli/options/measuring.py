"""Rules on the options of `preflight`: which parts are measured, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from unloader.cli.options import rules
from unloader.errors import UsageError

if TYPE_CHECKING:
    from unloader.tuning.ceiling_records import Part

_OF_A_SOURCE = ("table", "query", "columns", "exclude", "where", "partition", "levels")


def validate(values: Mapping[str, Any], given: frozenset[str], source: str) -> None:
    """Raise UsageError if the options contradict each other or lack one another.

    Args:
        values: Every option by its name with underscores.
        given: The names of those set on the command line or in the job file.
        source: Its URL; empty if there is none.
    """
    if values["save"] is not None and not values["save"].strip():
        raise UsageError("--save is empty", "give it a file, or leave it out")
    for name in ("disk_seconds", "source_seconds"):
        if not 0 < values[name] <= 3600:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} is {values[name]:g}", "give a number of seconds above 0, at most 3600"
            )
    if source:
        rules.validate(values, given)
    else:
        _validate_without_source(values, given)


def measured_parts(values: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what is measured.

    Raises:
        UsageError: `--without` names something else, or everything.
    """
    from unloader.tuning.ceiling_records import PARTS

    for name in values["without"]:
        if name not in PARTS:
            near = get_close_matches(name, PARTS, n=1)
            meant = f"did you mean {near[0]}?" if near else f"use {', '.join(PARTS)}"
            raise UsageError("--without names an unknown part", meant)
    parts = tuple(part for part in PARTS if part not in values["without"])
    if not parts:
        raise UsageError("--without leaves out everything", "leave one of its items out")
    return parts


def _validate_without_source(values: Mapping[str, Any], given: frozenset[str]) -> None:
    for name in _OF_A_SOURCE:
        if name in given:
            raise UsageError(
                f"--{name} needs a SOURCE",
                "write unloader preflight SOURCE, or leave it out",
            )
    if not values["to"]:
        raise UsageError(
            "there is nothing to measure", "give a SOURCE with --table, or --to, or both"
        )
    # What is not about a source holds as it does for a run.
    rules.validate({**values, "table": "T", "query": None}, given)
