"""Rules on how a run goes: its snapshot, its hours, its checks, its seats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unloader.cli.options.rules.flags import flag
from unloader.errors import UsageError


def check_slow_hours(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that slow hours have a number of workers, and the number hours."""
    if "slow_parallelism" in given and not values["slow_between"]:
        raise UsageError(
            "--slow-parallelism is for the hours of --slow-between, which is not set",
            "give --slow-between, or leave --slow-parallelism out",
        )


def check_snapshot(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that a moment is asked for only where one is kept."""
    if values["scn"] is not None and values["consistency"] == "none":
        raise UsageError(
            "--scn does not apply to --consistency none, which reads without a snapshot",
            "leave one of the two out",
        )


def check_skipping(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that there is one place in which a finished run can be found, and that it is kept."""
    if not values.get("skip_finished"):  # `plan` does not have the option.
        return
    if not values["resume_or_start"]:
        raise UsageError(
            "--skip-finished needs --resume-or-start",
            "give --resume-or-start, too, or leave --skip-finished out",
        )
    if values["overwrite"]:
        raise UsageError(
            "--overwrite replaces a finished run, and --skip-finished leaves it alone",
            "leave one of the two out",
        )
    if values["part"] is not None:
        raise UsageError(
            "--skip-finished is not for --part",
            "leave it out: --resume-or-start leaves a part that is finished alone",
        )
    for place in values["to"] or ():
        if "{run_id}" in place:
            raise UsageError(
                f"--to {place} is a different directory for each run, so --skip-finished "
                "finds no finished run there",
                "use {date} in place of {run_id}, or leave --skip-finished out",
            )


def validate_seats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError if seats are asked for where nothing is to be bound to any."""
    if values["numa"] != "off":
        return
    for name, nothing in _NOT_WITHOUT_SEATS.items():
        if name in given and values[name] not in nothing:
            raise UsageError(
                f"{flag(name)} does not apply to --numa off, which binds nothing",
                "leave one of the two out",
            )


_NOT_WITHOUT_SEATS: Mapping[str, tuple[Any, ...]] = {
    "numa_nodes": ((), None),
    "placement": (),
    "bind": ("none",),
    "memory_policy": ("local",),
    "near": ("", None),
}
"""Options that say where workers sit, and what each says of a machine without seats, too."""


def check_verification(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that there is a moment to compare with."""
    if values["verify"] == "source" and values["consistency"] == "none":
        raise UsageError(
            "--verify source compares with the source at the run's snapshot, and --consistency "
            "none reads without a snapshot",
            "leave one of the two out, or use --verify full",
        )
