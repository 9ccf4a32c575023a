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
from unloader.cli.options.tables import CHOOSING, table_names
from unloader.errors import UsageError
from unloader.redaction import holds_sql_password
from unloader.request.option import of_command
from unloader.request.options import every_option
from unloader.sources.options import unknown_to


def check_subject(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that just one thing is to be unloaded: tables or a query."""
    query, names = values["query"], table_names(values)
    if names and query is not None:
        raise UsageError("--table and --query exclude each other", "leave one of the two out")
    if query is not None:
        for key in CHOOSING:
            if key in given:
                raise UsageError(
                    f"{flag(key)} does not apply to --query", "leave one of the two out"
                )
    elif not (names or values.get("schema") or values.get("tables_from")):
        raise UsageError("no table or query is given", "give --table or --query")


def check_query(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that a query is read in one go, as it stands."""
    if values["query"] is None:
        if values.get("query_name") is not None:
            raise UsageError("--query-name names the result of --query", "leave it out")
        return
    if values["partition"]:
        raise UsageError(
            "--partition does not apply to --query", "use --table, or select in the query"
        )
    if values["where"] is not None:
        raise UsageError("--where does not apply to --query", "write the condition into the query")
    if values["split"] not in ("auto", "none"):
        raise UsageError(
            f"--split {values['split']} does not apply to --query, which is read as one work unit",
            "leave --split out, or use --table",
        )


def check_part(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that the files of a part can be put together with those of the others."""
    if values.get("part") is None:
        return
    if values["file_per"] == "table":
        raise UsageError(
            "--file-per table is one file, and each part writes separate files",
            "leave one of the two out",
        )
    if values["limit_rows"] is not None:
        raise UsageError(
            "--limit-rows reads one work unit, which cannot be divided into parts",
            "run the plan without --part",
        )
    for name in ("keep", "latest_link"):
        if values.get(name) is not None:
            raise UsageError(
                f"{flag(name)} applies to whole runs, and --part writes a part of a run",
                "leave it out, and manage the directories after the merge",
            )
    for place in values.get("to") or ():
        if "{run_id}" in place:
            raise UsageError(
                f"--to {place}: each part has a different run_id, so the parts would be in "
                "different directories",
                "use {date} instead, which is the day of the plan's snapshot",
            )


def check_subset(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that a part of the rows is asked for in one way."""
    if "limit_rows" not in values:
        return  # A command that measures, whose --sample is another option.
    share, by, most = values["sample"], values["sample_by"], values["limit_rows"]
    if by is not None and share is None:
        raise UsageError(
            "--sample-by needs --sample, which sets the size of the sample",
            "give --sample as well, for instance 1%",
        )
    units = share is not None and share < 1 and by is None
    if units and values["query"] is not None:
        raise UsageError(
            "--sample takes whole work units, and a query is one work unit",
            "give --sample-by as well",
        )
    if most is None:
        return
    if units:
        raise UsageError(
            "--sample takes whole work units, and --limit-rows a number of rows",
            "leave one of the two out, or give --sample-by as well",
        )
    if "split" in given and values["split"] not in ("auto", "none"):
        raise UsageError(
            f"--split {values['split']} does not apply to --limit-rows, which reads one work unit",
            "leave one of the two out",
        )
    if values["verify"] == "source":
        raise UsageError(
            "--verify source reads the values again, and --limit-rows may then find other rows",
            "use --verify full",
        )


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
        if nothing or any(isinstance(text, str) and not text.strip() for text in texts):
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
