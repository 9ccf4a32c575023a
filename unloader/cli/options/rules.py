"""Rules between options: what contradicts what, each reported with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine and are let pass where they do not apply.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from unloader.cli.options.encryption import check_variables, has_parquet_key
from unloader.cli.options.tables import (
    CHOOSING,
    ONE_OF_SEVERAL,
    check_of_each_table,
    is_of_several,
    table_names,
)
from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.redaction import holds_sql_password
from unloader.request.directory_names import check_directory, home_template, is_dated
from unloader.request.file_names import check_template
from unloader.request.locations import looks_like_source
from unloader.request.options.option import Circumstance, Option, of_command
from unloader.request.options.parsing import ADAPTIVE
from unloader.request.options.transforming import TRANSFORMING
from unloader.sources.options import every_option, unknown_to
from unloader.sources.registry import KINDS
from unloader.storage.kinds import (
    NULL,
    NULL_ROWS,
    destination_kind,
    is_one_stream,
    overlapping,
    pipe_template,
    two_are_one,
)
from writers.model import Compression


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
    """Raise UsageError if a plan file would keep a password that a statement of the user has."""
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
        raise UsageError(f"{_flag(name)} does not apply to {kind} sources", "leave it out")


def _subject(values: Mapping[str, Any], given: frozenset[str]) -> None:
    query, names = values["query"], table_names(values)
    if names and query is not None:
        raise UsageError("--table and --query exclude each other", "leave one of the two out")
    if query is not None:
        for key in CHOOSING:
            if key in given:
                raise UsageError(
                    f"{_flag(key)} does not apply to --query", "leave one of the two out"
                )
    elif not (names or values.get("schema") or values.get("tables_from")):
        raise UsageError("nothing says what to unload", "give --table or --query")


def _query(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if values["query"] is None:
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


def _subset(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if "limit_rows" not in values:
        return  # A command that measures, whose --sample is another option.
    share, by, most = values["sample"], values["sample_by"], values["limit_rows"]
    if by is not None and share is None:
        raise UsageError(
            "--sample-by says how a sample is taken, and no --sample how large it is",
            "give --sample as well, for instance 1%",
        )
    units = share is not None and share < 1 and by is None
    if units and values["query"] is not None:
        raise UsageError(
            "--sample takes whole work units, and a query is one", "give --sample-by as well"
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


def _formats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    for option in of_command(every_option(), "run"):
        if option.key in given and not option.knows(values["format"]):
            raise UsageError(
                f"--{option.name} does not apply to --format {values['format']}",
                f"leave it out, or use --format {option.formats[0]}",
            )


def _fixed(values: Mapping[str, Any], given: frozenset[str]) -> None:
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
    for option in _out_of_place("fixed", given):
        if values[option.key] not in (False, 0):
            raise UsageError(
                f"--{option.name} does not apply to --fixed: such records have no "
                f"{option.not_for['fixed']}",
                "leave one of the two out",
            )


def _out_of_place(where: Circumstance, given: frozenset[str]) -> Iterator[Option]:
    """Yield the given options that do not apply somewhere."""
    for option in of_command(every_option(), "run"):
        if option.key in given and where in option.not_for:
            yield option


def _file_sizes(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if values["file_per"] == "table" and values["file_size"] and "file_size" in given:
        raise UsageError(
            "--file-size does not apply to --file-per table, which is one file of any size",
            "leave one of the two out",
        )


def _file_names(values: Mapping[str, Any], given: frozenset[str]) -> None:
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


def _destination(values: Mapping[str, Any], given: frozenset[str]) -> None:
    places = values.get("to") or ()
    for place in places:
        if looks_like_source(place, KINDS):
            raise UsageError(
                "--to looks like a URL or a login, which is not shown, and output goes to a "
                "directory",
                "give a directory; one of such a name is written ./NAME",
            )
    if destination_kind(places) != "directories":
        _stream(values, given, places)
    else:
        _directories(values, places)


def _directories(values: Mapping[str, Any], places: tuple[str, ...]) -> None:
    if any(destination_kind((place,)) != "directories" for place in places):
        raise _alone(places)
    for place in places:
        check_directory(place)
    if places and is_of_several(values):
        check_of_each_table(places)
    _earlier_runs(values, places)
    if overlapping(paths := [PurePath(place) for place in places]):
        first, second = (paths[at] for at in overlapping(paths) or ())
        raise UsageError(
            two_are_one(str(first), str(second), same=first == second),
            "name separate directories",
        )
    if len(places) > 1 and values["file_per"] == "table":
        raise UsageError(
            f"--file-per table is one file, and --to names {len(places)} directories",
            "give one directory, or leave --file-per out",
        )


def _tells_runs_apart(place: str, *, several: bool) -> bool:
    """Return whether the directories of all runs lie side by side: of a table, or of all tables."""
    return is_dated(place) or (several and is_dated(home_template(place)))


def _earlier_runs(values: Mapping[str, Any], places: tuple[str, ...]) -> None:
    for name in ("keep", "latest_link"):
        if values.get(name) is None:
            continue
        several = is_of_several(values) or values.get(ONE_OF_SEVERAL, False)
        if not places or not all(_tells_runs_apart(place, several=several) for place in places):
            raise UsageError(
                f"{_flag(name)} needs a directory for each run, side by side",
                "put {date} or {run_id} into the last part of --to, and nowhere else: "
                "--to '/extract/{table}/{date}'"
                + (", or that of all tables: --to '/extract/{date}/{table}'" if several else ""),
            )
    if values.get("keep") is not None and values["verify"] == "none":
        raise UsageError(
            "--keep removes earlier runs once the new one is verified, and --verify is none",
            "leave one of the two out",
        )
    link = values.get("latest_link")
    if link is None:
        return
    if len(places) > 1:
        raise UsageError(
            f"--latest-link is one link, and --to names {len(places)} directories",
            "give one directory, or leave --latest-link out",
        )
    if not link or "/" in link or "\\" in link or link.startswith((".", "_", "-")):
        raise UsageError(
            "--latest-link is not a plain file name",
            "leave out slashes, and begin with no dot, underscore or hyphen",
        )


def _stream(values: Mapping[str, Any], given: frozenset[str], places: tuple[str, ...]) -> None:
    kind = destination_kind(places)
    if len(places) > 1:
        raise _alone(places)
    if kind == "null" and places[0] not in (NULL, NULL_ROWS):
        raise UsageError(
            f"--to {places[0]} is no destination",
            f"write {NULL} to drop the output, or {NULL_ROWS} to drop the rows before they are "
            f"encoded; a directory of that name is ./{places[0]}",
        )
    what = "standard output" if kind == "stdout" else places[0]
    if kind != "null" and is_of_several(values):
        raise UsageError(
            f"--to {places[0]} is a stream, and each of several tables has files of its own",
            "give a directory, --to '/extract/{schema}.{table}', or run one table",
        )
    for option in _out_of_place("streams", given):
        if values[option.key] not in (False, 0, "unit"):
            if option.key == "file_per" and is_one_stream(kind):
                continue
            raise UsageError(
                f"--{option.name} does not apply to {what}"
                + (", which keeps nothing" if kind == "null" else f": {option.not_for['streams']}"),
                "leave it out",
            )
    if "verify" in given and values["verify"] == "full":
        raise UsageError(
            f"--verify full cannot read back what went to {what}", "use --verify count"
        )
    parallelism = values["parallelism"]
    if is_one_stream(kind) and "parallelism" in given and parallelism not in (0, 1):
        asked = "adaptive" if parallelism == ADAPTIVE else parallelism
        raise UsageError(
            f"--parallelism {asked} does not apply to {what}: it has one writer",
            "leave it out, or use a pipe a work unit: --to pipe:DIR/{unit}.csv",
        )
    if kind == "stdout":
        _standard_output(values)
    elif kind != "null":
        _pipe(values, places[0])


def _standard_output(values: Mapping[str, Any]) -> None:
    if values.get("json"):
        raise UsageError(
            "--json and --to - both write to standard output",
            "leave --json out; the exit status tells the result",
        )
    if was_closed(1):
        raise UsageError("--to - has no standard output to write to", "give it a reader or a file")
    text = values["format"] == "csv" and values["compression"] in (None, Compression())
    if not text and sys.stdout.isatty():
        raise UsageError(
            "standard output is a terminal, and the output is not text",
            "send it to a file or another program: > FILE, | PROGRAM",
        )


def _pipe(values: Mapping[str, Any], place: str) -> None:
    folder, template = pipe_template(place)
    if not template:
        raise UsageError(f"--to {place} names no pipe", "write pipe:DIR/NAME")
    if "{" in str(folder):
        raise UsageError(
            f"--to {place} has a field in the directory's name", "use fields in the last part only"
        )
    per_unit = destination_kind((place,)) == "pipes"
    check_template(template, per_unit=per_unit, parts=False, option="--to")
    if not per_unit and "{partition}" in template:
        raise UsageError(
            f"--to {place} names a partition, and is one pipe for all", "add {unit} to it"
        )


def _alone(places: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"--to {','.join(places)} mixes directories and streams",
        "give directories only, or one stream",
    )


def _slow_hours(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if "slow_parallelism" in given and not values["slow_between"]:
        raise UsageError(
            "--slow-parallelism says how many workers work in the hours of --slow-between, and "
            "there are none",
            "give --slow-between, or leave --slow-parallelism out",
        )


def _snapshot(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if values["scn"] is not None and values["consistency"] == "none":
        raise UsageError(
            "--scn does not apply to --consistency none, which reads each work unit as it comes",
            "leave one of the two out",
        )


def validate_seats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError if seats are asked for where nothing is to be bound to any."""
    if values["numa"] != "off":
        return
    for name, nothing in _NOT_WITHOUT_SEATS.items():
        if name in given and values[name] not in nothing:
            raise UsageError(
                f"{_flag(name)} does not apply to --numa off, which binds nothing",
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


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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


def _verification(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if values["verify"] == "source" and values["consistency"] == "none":
        raise UsageError(
            "--verify source compares with the source at the run's snapshot, and --consistency "
            "none takes none",
            "leave one of the two out, or use --verify full",
        )


def _transforms(values: Mapping[str, Any], given: frozenset[str]) -> None:
    changed = [each.name for each in TRANSFORMING if values.get(each.key)]
    if changed and values["verify"] == "source":
        raise UsageError(
            f"--verify source compares with the source's own values, and --{changed[0]} writes "
            "others",
            "use --verify full, which compares the files with what was meant to be written",
        )


def _encryption(values: Mapping[str, Any], given: frozenset[str]) -> None:
    # Unlike other options, a variable that does not apply is not let pass here: what somebody
    # wants to be encrypted must not be written in the open.
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
        raise UsageError(
            "--parquet-key-name names a key, and there is none", "give --parquet-key-file"
        )
    if "decrypt_with" in given and values["decrypt_with"] and not values["encrypt_to"]:
        raise UsageError(
            "--decrypt-with is for text that is encrypted, and this is not",
            "give --encrypt-to, or leave --decrypt-with out",
        )


_RULES: tuple[Callable[[Mapping[str, Any], frozenset[str]], None], ...] = (
    _empty,
    _subject,
    _query,
    _subset,
    _formats,
    _fixed,
    _file_sizes,
    _file_names,
    _destination,
    _snapshot,
    _slow_hours,
    _verification,
    _encryption,
    _transforms,
    validate_seats,
)
