"""All rules of a job, one after the other; and those of plans, sources and seats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unloader.cli.options.rules.destinations import check_destination
from unloader.cli.options.rules.files import (
    check_encryption,
    check_file_names,
    check_file_sizes,
    check_fixed,
    check_formats,
    check_transforms,
)
from unloader.cli.options.rules.flags import flag
from unloader.cli.options.rules.runs import (
    check_skipping,
    check_slow_hours,
    check_snapshot,
    check_verification,
    validate_seats,
)
from unloader.cli.options.rules.subjects import check_part, check_query, check_subject, check_subset
from unloader.errors import UsageError
from unloader.redaction import holds_sql_password
from unloader.request.options.option import of_command
from unloader.sources.options import every_option, unknown_to


def validate(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError if the options of a job contradict each other or lack one another.

    Args:
        values: Every option by its name with underscores.
        given: The names of those set on the command line or in the job file.
    """
    for error in broken(values, given):
        raise error


def broken(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Yield an error for each rule that the options of a job break; see `validate`."""
    for rule in _RULES:
        try:
            rule(values, given)
        except UsageError as error:
            yield error


def validate_planned(written: frozenset[str], plan: str) -> None:
    """Raise UsageError if options on the command line would change what a plan has decided.

    Args:
        written: The names of those on the command line.
        plan: The plan's file.
    """
    for option in of_command(every_option(), "run"):
        if option.planned and option.key in written:
            raise UsageError(
                f"--{option.name} cannot change the finished plan {plan}",
                f"make a new plan with --{option.name}, or leave it out",
            )


def validate_plan_file(values: Mapping[str, Any]) -> None:
    """Raise UsageError if a plan file would keep a password, or is missing where it is needed."""
    if values["keep_snapshot"] and not values["output"]:
        raise UsageError(
            "--keep-snapshot keeps the snapshot of a plan while its file exists, and --output is "
            "missing",
            "give --output FILE, or leave --keep-snapshot out",
        )
    if values["output"] and any(map(holds_sql_password, values["session_sql"])):
        raise UsageError(
            "--output would keep the password of a --session-sql in the plan file",
            "leave --output out, and give run the same options",
        )


def validate_source(kind: str, given: frozenset[str]) -> None:
    """Raise UsageError if an option is given that says nothing to this kind of source.

    Variables may be set for all jobs of a machine and are let pass.
    """
    for name in sorted(given & unknown_to(kind)):
        raise UsageError(f"{flag(name)} does not apply to {kind} sources", "leave it out")


def _empty(values: Mapping[str, Any], given: frozenset[str]) -> None:
    # What an unset variable of a script leaves: `--to "$DEST"` would be the working directory.
    for option in of_command(every_option(), "run"):
        if option.empty:
            continue
        value = values.get(option.key)
        texts = value if isinstance(value, tuple) else (value,)
        nothing = value == () and option.key in given
        if nothing or any(text is not None and not text.strip() for text in texts):
            raise UsageError(f"--{option.name} is empty", "give it a value, or leave it out")


_RULES: tuple[Callable[[Mapping[str, Any], frozenset[str]], None], ...] = (
    _empty,
    check_subject,
    check_query,
    check_subset,
    check_part,
    check_formats,
    check_fixed,
    check_file_sizes,
    check_file_names,
    check_destination,
    check_skipping,
    check_snapshot,
    check_slow_hours,
    check_verification,
    check_encryption,
    check_transforms,
    validate_seats,
)
