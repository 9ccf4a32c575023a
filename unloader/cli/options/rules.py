"""Rules between options: what contradicts what, each reported with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine and are let pass where they do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from unloader.cli.options.destination_rules import (
    check_destination,
    check_variables,
    flag,
    has_parquet_key,
    out_of_place,
)
from unloader.cli.options.tables import CHOOSING, table_names
from unloader.errors import UsageError
from unloader.redaction import holds_sql_password
from unloader.request.file_names import check_template
from unloader.request.job_options import TRANSFORMING
from unloader.request.options import options_of
from unloader.sources.registry import unknown_to

if TYPE_CHECKING:
    from unloader.tuning.ceilings import Part


def check_formats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that each option is of the format."""
    for option in options_of("run"):
        if option.key in given and not option.knows(values["format"]):
            raise UsageError(
                f"--{option.name} does not apply to --format {values['format']}",
                f"leave it out, or use --format {option.formats[0]}",
            )


def check_fixed(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check what records of fixed width have and lack."""
    if not values["fixed"]:
        if "width" in given:
            raise UsageError(
                "--width does not apply without --fixed", "give --fixed, or leave --width out"
            )
        if values["eol"] == "":
            raise UsageError(
                "--eol is empty, and only records of fixed width have no end of line",
                "give it at least one character, or --fixed",
            )
        return
    for option in out_of_place("fixed", given):
        if values[option.key] not in (False, 0):
            raise UsageError(
                f"--{option.name} does not apply to --fixed: such records have no "
                f"{option.not_for['fixed']}",
                "leave one of the two out",
            )


def check_file_sizes(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that sizes of files are asked for where there are several."""
    if values["file_per"] == "table" and values["file_size"] and "file_size" in given:
        raise UsageError(
            "--file-size does not apply to --file-per table, which is one file of any size",
            "leave one of the two out",
        )


def check_file_names(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that names of files tell the files apart."""
    template = values["file_name"]
    if template is None:
        return
    per_unit = values["file_per"] == "unit"
    check_template(template, per_unit=per_unit, parts=per_unit and bool(values["file_size"]))
    for field in () if per_unit else ("{unit}", "{partition}"):
        if field in template:
            raise UsageError(
                f"--file-name {template} names a work unit, and --file-per table has one file",
                f"leave {field} out",
            )


def check_transforms(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that changed values are not compared with values of the source."""
    changed = [flag(key) for key in TRANSFORMING if values.get(key)]
    if changed and values["verify"] == "source":
        raise UsageError(
            f"--verify source compares with the source's own columns, and {changed[0]} changes "
            "them",
            "use --verify full, which compares the files with the values to be written",
        )


def check_encryption(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that files are encrypted as their format is."""
    # Unlike for other options, a variable that does not apply is an error here: an output that the
    # user wants to encrypt must not be written in the open.
    if "encrypt_to" not in values:
        return
    check_variables()
    text, keyed = values["format"] != "parquet", has_parquet_key(values["parquet_key_file"])
    if text and keyed and not values["encrypt_to"]:
        raise UsageError(
            "a Parquet key is given, and text is not encrypted with it",
            "give --encrypt-to as well, or --format parquet, or no key",
        )
    if not text and values["encrypt_to"] and not keyed:
        raise UsageError(
            "--encrypt-to is for text, and Parquet is encrypted with a key",
            "give --parquet-key-file as well, or leave --encrypt-to out",
        )
    if values["parquet_key_name"] is not None and not keyed:
        raise UsageError("--parquet-key-name needs a key", "give --parquet-key-file")
    if "decrypt_with" in given and values["decrypt_with"] and not values["encrypt_to"]:
        raise UsageError(
            "--decrypt-with needs an output of encrypted text",
            "give --encrypt-to, or leave --decrypt-with out",
        )


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
"""Options on the places of workers, each with the values that mean no place."""


def check_verification(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that there is a moment to compare with."""
    if values["verify"] == "source" and values["consistency"] == "none":
        raise UsageError(
            "--verify source compares with the source at the run's snapshot, and --consistency "
            "none reads without a snapshot",
            "leave one of the two out, or use --verify full",
        )


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
    """Check that the files of a part can be merged with the files of the other parts."""
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
    for option in options_of("run"):
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
    for option in options_of("run"):
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


_OF_A_SOURCE = ("table", "query", "columns", "exclude", "where", "partition", "levels")


def validate_measuring(values: Mapping[str, Any], given: frozenset[str], source: str) -> None:
    """Raise UsageError if the options contradict each other or lack one another.

    Args:
        values: Every option by its name with underscores.
        given: The names of those set on the command line or in the job file.
        source: Its URL; empty without a source.
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
        validate(values, given)
    else:
        _validate_without_source(values, given)


def measured_parts(values: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the parts to measure.

    Raises:
        UsageError: `--without` names something else, or everything.
    """
    from unloader.tuning.ceilings import PARTS

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
    # All other rules are the rules of a run.
    validate({**values, "table": "T", "query": None}, given)
