"""Rules between options: each broken rule is an error with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine. They are ignored where they do not apply.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.lakehouse.lake_formats import lake_kind
from unloader.redaction import PARQUET_KEY_VARIABLE, holds_sql_password
from unloader.request.locations import looks_like_source
from unloader.request.name_templates import check_directory, check_template, home_template, is_dated
from unloader.request.option import Circumstance
from unloader.request.options import options_of
from unloader.request.settings import ADAPTIVE
from unloader.secrets.secret_places import USUAL_PARQUET_KEY, usual_credential
from unloader.selection.choice import TableChoice, parse_pattern, parse_schema, read_patterns
from unloader.selection.listing import STORED
from unloader.sources.registry import KINDS
from unloader.storage.place_names import (
    NULL,
    NULL_ROWS,
    comparable,
    destination_kind,
    is_kept,
    is_one_stream,
    overlapping,
    pipe_template,
    two_are_one,
)
from writers.errors import FormatError
from writers.model import Compression
from writers.objects.location import Location, is_location

if TYPE_CHECKING:
    from unloader.selection.listing import Family
    from unloader.tuning.ceilings import Part

ONE = "leave one of the two out"

_OWN_COLUMNS = ("which compares with the source's own columns", "use --verify full")
_TRANSFORMING = ("expression", "constant", "cast", "mask", "rename", "output-columns")
_PART_OF_RUN = (
    "which writes a part of a run",
    "leave it out, and manage the directories after the merge",
)

_CONFLICTS: Mapping[str, tuple[str, str]] = {
    "--table to --query": ("", ONE),
    "--partition to --query": ("", "use --table, or select in the query"),
    "--where to --query": ("", "write the condition into the query"),
    "--split to --query": ("which is read as one work unit", "leave it out, or use --table"),
    "--query-name without --query": ("", "leave it out"),
    "--sample-by without --sample": ("", "give --sample as well, for instance 1%"),
    "--limit-rows to --verify source": (
        "which reads the values again and may find other rows",
        "use --verify full",
    ),
    "--limit-rows to --part": ("as one work unit has no parts", "run the plan without --part"),
    "--file-per table to --part": ("which writes separate files", ONE),
    "--keep to --part": _PART_OF_RUN,
    "--latest-link to --part": _PART_OF_RUN,
    "--skip-finished without --resume-or-start": ("", "give --resume-or-start as well"),
    "--skip-finished to --overwrite": ("which replaces a finished run", ONE),
    "--skip-finished to --part": (
        "",
        "leave it out: --resume-or-start leaves a part that is finished alone",
    ),
    "--scn to --consistency none": ("which reads without a snapshot", ONE),
    "--verify source to --consistency none": (
        "which reads without a snapshot",
        f"{ONE}, or use --verify full",
    ),
    "--keep to --verify none": ("since earlier runs are removed after a verified run", ONE),
    "--replace-where without --save-mode overwrite": ("", "give it, or leave --replace-where out"),
    **{f"--{name} to --verify source": _OWN_COLUMNS for name in _TRANSFORMING},
}
"""Options that exclude or need each other, with the reason and the advice."""

_GIVEN_CONFLICTS: Mapping[str, tuple[str, str]] = {
    "--schema to --query": ("", ONE),
    "--exclude-table to --query": ("", ONE),
    "--tables-from to --query": ("", ONE),
    "--split to --limit-rows": ("which reads one work unit", ONE),
    "--file-size to --file-per table": ("which is one file of any size", ONE),
    "--slow-parallelism without --slow-between": ("", "give --slow-between, or leave it out"),
    "--width without --fixed": ("", "give --fixed, or leave --width out"),
    "--decrypt-with without --encrypt-to": ("", "give --encrypt-to, or leave it out"),
    **{
        f"--{name} to --numa off": ("which binds nothing", ONE)
        for name in ("numa-nodes", "placement", "bind", "memory-policy", "near")
    },
}
"""Pairs whose variables are ignored: they may be set for all jobs of a machine."""

_USUAL = {
    "split": ("auto", "none"),
    "bind": ("none",),
    "memory_policy": ("local",),
    "file_per": ("unit",),
}
"""Words that change nothing."""


def validate(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise the first error of `broken`."""
    for error in broken(values, given):
        raise error


def broken(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Yield an error for each rule that the options of a job break.

    The command line or the job file sets the options in `given`.
    """
    for rule in (_empty, conflicts, _selection, _layout, _file_names, _destination, _encryption):
        try:
            yield from rule(values, given)
        except UsageError as error:
            yield error


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _empty(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    # What an unset variable of a script leaves: `--to "$DEST"` would be the working directory.
    for option in options_of("run"):
        value = values.get(option.key)
        texts = value if isinstance(value, tuple) else (value,)
        nothing = value == () and option.key in given
        blank = any(isinstance(text, str) and not text.strip() for text in texts)
        if not option.empty and (nothing or blank):
            yield UsageError(f"--{option.name} is empty", "give it a value, or leave it out")


def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Yield an error for each pair of options that exclude or need each other."""
    for pairs, every in ((_CONFLICTS, True), (_GIVEN_CONFLICTS, False)):
        for pair, (why, advice) in pairs.items():
            first, word, second = re.split(" (to|without) ", pair)
            if not every and first[2:].replace("-", "_") not in given:
                continue
            if _is_set(values, first) and _is_set(values, second) == (word == "to"):
                text = f"{first} and {second} exclude each other"
                if why or word == "without" or " " in second:
                    text = f"{first} does not apply {word} {second}{why and f', {why}'}"
                yield UsageError(text, advice)


def _is_set(values: Mapping[str, Any], words: str) -> bool:
    """Return whether an option is set; with a word after its name, whether it has that value."""
    name, _, value = words[2:].partition(" ")
    key = name.replace("-", "_")
    found = values.get(key)
    if value:
        return str(found) == value
    return found not in (None, False, 0, "", (), *_USUAL.get(key, ()))


def _selection(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Just one thing is unloaded, and a part of its rows is selected in one way."""
    query, most = values["query"], values.get("limit_rows")
    if query is None and not any(values.get(key) for key in ("table", "schema", "tables_from")):
        yield UsageError("no table or query is given", "give --table or --query")
    # A command that measures has another --sample, and no --limit-rows.
    share = values["sample"] if "limit_rows" in values else None
    if share is not None and share < 1 and values["sample_by"] is None:
        if query is not None:
            yield UsageError(
                "--sample takes whole work units, and a query is one work unit",
                "give --sample-by as well",
            )
        if most is not None:
            yield UsageError(
                "--sample takes whole work units, and --limit-rows a number of rows",
                f"{ONE}, or give --sample-by as well",
            )
    for name in ("part", "skip_finished"):
        for place in (values.get("to") or ()) if values.get(name) else ():
            if "{run_id}" in place:
                yield UsageError(
                    f"--to {place} is a different directory for each run, which {_flag(name)} "
                    "cannot use",
                    f"use {{date}} in place of {{run_id}}, or leave {_flag(name)} out",
                )


def _layout(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Each option is of the format; records of fixed width have no delimiters."""
    for option in options_of("run"):
        if option.key in given and not option.knows(values["format"]):
            yield UsageError(
                f"--{option.name} does not apply to --format {values['format']}",
                f"leave it out, or use --format {option.formats[0]}",
            )
    if values["fixed"]:
        yield from _out_of_place("fixed", "--fixed", values, given)
    elif values["eol"] == "":
        yield UsageError(
            "--eol is empty, and only records of fixed width have no end of line",
            "give it at least one character, or --fixed",
        )


def _out_of_place(
    where: Circumstance, what: str, values: Mapping[str, Any], given: frozenset[str], why: str = ""
) -> Iterator[UsageError]:
    """Yield an error for each given option that does not apply; `why` replaces its own reasons."""
    for option in options_of("run"):
        set_here = option.key in given and where in option.not_for
        if set_here and _is_set(values, f"--{option.name}"):
            yield UsageError(
                f"--{option.name} does not apply to {what}{why or f': {option.not_for[where]}'}",
                "leave it out",
            )


def _file_names(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """The names of several files differ."""
    template, per_unit = values["file_name"], values["file_per"] == "unit"
    if template is not None:
        check_template(template, per_unit=per_unit, parts=per_unit and bool(values["file_size"]))
        for field in () if per_unit else ("{unit}", "{partition}"):
            if field in template:
                yield UsageError(
                    f"--file-name {template} names a work unit, and --file-per table has one file",
                    f"leave {field} out",
                )


def has_parquet_key(path: str | None) -> bool:
    """Return whether a Parquet key is given: in a file, in the variable or by systemd."""
    given = path is not None or PARQUET_KEY_VARIABLE in os.environ
    return given or usual_credential(USUAL_PARQUET_KEY) is not None


def _encryption(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Files are encrypted in the way of their format."""
    # Unlike for other options, a variable that does not apply is an error here: an output that the
    # user wants to encrypt must not be written in the open.
    if "encrypt_to" not in values:
        return
    for name in (PARQUET_KEY_VARIABLE, "UNLOADER_PARQUET_KEY_FILE", "UNLOADER_ENCRYPT_TO"):
        # A script leaves it empty whose own source failed.
        if not os.environ.get(name, "set").strip():
            yield UsageError(
                f"{name} is set and empty, so the files would not be encrypted",
                "give it a value, or unset it",
            )
    text, keyed = values["format"] != "parquet", has_parquet_key(values["parquet_key_file"])
    if text and keyed and not values["encrypt_to"]:
        yield UsageError(
            "a Parquet key is given, and text is not encrypted with it",
            "give --encrypt-to as well, or --format parquet, or no key",
        )
    if not text and values["encrypt_to"] and not keyed:
        yield UsageError(
            "--encrypt-to is for text, and Parquet is encrypted with a key",
            "give --parquet-key-file as well, or leave --encrypt-to out",
        )
    if values["parquet_key_name"] is not None and not keyed:
        yield UsageError("--parquet-key-name needs a key", "give --parquet-key-file")


def _destination(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """The rows can go to the places of --to."""
    places: tuple[str, ...] = values.get("to") or ()
    tables = [place for place in places if lake_kind(place) is not None]
    if tables:
        if len(places) > 1:
            raise UsageError(
                f"--to {tables[0]} is a table, and all files go into it", "give it alone"
            )
        yield from _table(values, given, tables[0])
    for name in () if tables else ("save_mode", "replace_where", "branch", "partition_by"):
        if places and values.get(name) not in (None, ()) and name in given:
            yield UsageError(
                f"{_flag(name)} is for a table, and --to {', '.join(places)} is not a table",
                "give --to iceberg://CATALOG/NAMESPACE.TABLE, delta:PLACE or "
                "ducklake:CATALOG/SCHEMA.TABLE, or leave it out",
            )
    for place in places:
        if place not in tables and looks_like_source(place, KINDS):
            raise UsageError(
                "--to looks like a URL or a login and not like a directory; it is not shown",
                "give a directory; write ./NAME if this is its name",
            )
    kinds = {destination_kind((place,)) for place in places}
    if kinds == {"directories", "objects"}:
        raise UsageError(
            "--to names directories and an object store, and one output goes to one kind of place",
            "give places of one kind, or two routes",
        )
    if len(kinds) > 1 or (len(places) > 1 and not is_kept(places)):
        raise UsageError(
            f"--to {','.join(places)} mixes directories and streams",
            "give directories only, or one stream",
        )
    if is_kept(places):
        yield from _directories(values, given, places)
    else:
        yield from _stream(values, given, places[0])


def _directories(
    values: Mapping[str, Any], given: frozenset[str], places: tuple[str, ...]
) -> Iterator[UsageError]:
    kind, several = destination_kind(places), bool(places) and is_of_several(values)
    for place in places if kind != "table" else ():
        check_directory(place)
        if kind == "objects":
            try:
                Location.parse(place)
            except FormatError as error:
                raise UsageError(f"--to: {error.message}", error.hint) from None
        if several and "{table}" not in place:
            raise UsageError(
                f"--to {place} is one directory, and each of several tables needs its own",
                "write {table} into it, and {schema} for tables of several schemas: "
                "--to '/extract/{schema}.{table}'",
            )
    if kind == "objects":
        yield from _out_of_place("objects", "an object store", values, given)
    several = several or values.get(ONE_OF_SEVERAL, False)
    kept = [name for name in ("keep", "latest_link") if values.get(name) is not None]
    # The directories of all runs of a table, or of all tables, are beside each other.
    apart = (is_dated(place) or (several and is_dated(home_template(place))) for place in places)
    for name in kept if kept and not (places and all(apart)) else ():
        before = ", or only into the part before {table}: --to '/extract/{date}/{table}'"
        yield UsageError(
            f"{_flag(name)} needs a separate directory for each run of a table, below one "
            "directory that is the same for all runs",
            "write {date} or {run_id} only into the last part of --to, such as "
            f"--to '/extract/{{table}}/{{date}}'{before if several else ''}",
        )
    link = values.get("latest_link")
    if link is not None and len(places) > 1:
        yield UsageError(
            f"--latest-link is one link, and --to names {len(places)} directories",
            "give one directory, or leave --latest-link out",
        )
    if link is not None and (not link or set("/\\") & set(link) or link[0] in "._-"):
        yield UsageError(
            "--latest-link is not a plain file name",
            "leave out slashes, and begin with no dot, underscore or hyphen",
        )
    if len(places) < 2:
        return
    # Options of an object store are left out.
    paths = [comparable(place) if is_location(place) else PurePath(place) for place in places]
    if two := overlapping(paths):
        first, second = (paths[at] for at in two)
        yield UsageError(
            two_are_one(str(first), str(second), same=first == second), "name separate directories"
        )
    if values["file_per"] == "table":
        yield UsageError(
            f"--file-per table is one file, and --to names {len(places)} directories",
            "give one directory, or leave --file-per out",
        )


def _stream(values: Mapping[str, Any], given: frozenset[str], place: str) -> Iterator[UsageError]:
    kind = destination_kind((place,))
    what = "standard output" if kind == "stdout" else place
    if kind == "null" and place not in (NULL, NULL_ROWS):
        yield UsageError(
            f"--to {place} is not a destination",
            f"write {NULL} to drop the output, or {NULL_ROWS} to drop the rows before they are "
            f"encoded; a directory of that name is ./{place}",
        )
    if kind != "null" and (is_of_several(values) or values.get(ONE_OF_SEVERAL)):
        yield UsageError(
            f"--to {place} is a stream, and several tables need separate files",
            "give a directory, --to '/extract/{schema}.{table}', or run one table",
        )
    # One stream is one file for the table.
    applies = {"file_per"} if is_one_stream(kind) else set()
    why = ", which keeps nothing" if kind == "null" else ""
    yield from _out_of_place("streams", what, values, given - applies, why)
    if "verify" in given and values["verify"] == "full":
        yield UsageError(
            f"--verify full cannot read back the output to {what}", "use --verify count"
        )
    parallelism = values["parallelism"]
    if is_one_stream(kind) and "parallelism" in given and parallelism not in (0, 1):
        asked = "adaptive" if parallelism == ADAPTIVE else parallelism
        yield UsageError(
            f"--parallelism {asked} does not apply to {what}: it has one writer",
            "leave it out, or give a directory",
        )
    if kind == "stdout":
        if values.get("json"):
            yield UsageError(
                "--json and --to - both write to standard output",
                "leave --json out; the exit status shows the result",
            )
        if was_closed(1):
            raise UsageError(
                "--to - needs standard output, and it is closed", "give it a reader or a file"
            )
        text = values["format"] == "csv" and values["compression"] in (None, Compression())
        if not text and sys.stdout.isatty():
            yield UsageError(
                "standard output is a terminal, and the output is not text",
                "send it to a file or another program: > FILE, | PROGRAM",
            )
    elif kind != "null":
        folder, template = pipe_template(place)
        if not template:
            raise UsageError(f"--to {place} names no pipe", "write pipe:DIR/NAME")
        if "{" in str(folder):
            yield UsageError(
                f"--to {place} has a field in the directory's name",
                "use fields in the last part only",
            )
        check_template(template, per_unit=False, parts=False, option="--to")
        for each in ("{unit}", "{partition}"):
            if each in template:
                yield UsageError(
                    f"--to {place} has the field {each}, but one pipe takes all work units",
                    f"leave {each} out, or give a directory to write a file for each work unit",
                )


def _table(values: Mapping[str, Any], given: frozenset[str], place: str) -> Iterator[UsageError]:
    """Check the options of a table of a lakehouse."""
    mode = values.get("save_mode")
    iceberg = lake_kind(place) == "iceberg"
    for name in ("replace_where", "branch", "partition_by") if not iceberg else ():
        if values.get(name):
            yield UsageError(f"{_flag(name)} is for Iceberg tables", "leave it out")
    if values.get("branch") is not None and mode in (None, "create"):
        yield UsageError(
            "--branch needs an existing table, and --save-mode is create",
            "give --save-mode append or overwrite, or leave --branch out",
        )
    if values.get("partition_by") and mode not in (None, "create"):
        yield UsageError(
            f"--partition-by is for a new table, and --save-mode is {mode}",
            "leave it out: an existing table has its own partitions",
        )
    if values["format"] != "parquet":
        yield UsageError(
            f"the files of a table are Parquet, and --format is {values['format']}",
            "give --format parquet",
        )
    if any(mark in place for mark in ("{}?" if iceberg else "{}")):
        yield UsageError(
            f"--to {place} has a field or an option, and the name of a table cannot have one",
            "write the name of the table",
        )
    if is_of_several(values) or values.get(ONE_OF_SEVERAL):
        yield UsageError(
            f"--to {place} is one table, and several tables need separate files",
            "run one table at a time",
        )
    if values.get("part") is not None:
        yield UsageError(
            f"--to {place} is committed once, and --part writes a part of it",
            "give a directory or an object store, or leave --part out",
        )
    if has_parquet_key(values.get("parquet_key_file")):
        yield UsageError(
            "readers of a table have no key for its files", "leave --parquet-key-file out"
        )
    yield from _out_of_place("tables", "a table", values, given)


ONE_OF_SEVERAL = "one_of_several"
"""Is among the options of an entry of a job file that has other entries."""


def table_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names and patterns of `--table`; some commands take only one."""
    given = values.get("table") or ()
    return (given,) if isinstance(given, str) else tuple(given)


def is_of_several(values: Mapping[str, Any]) -> bool:
    """Return whether options ask for a run over several tables, be it one table that matches.

    An unreadable name is a UsageError: advice on the options of several tables would not help.
    """
    names = table_names(values)
    if values["query"] is not None or "exclude_table" not in values:
        return False
    choosing = any(values[key] for key in ("schema", "exclude_table", "tables_from"))
    if len(names) == 1 and not choosing and not set("*?[") & set(names[0]):
        return False
    patterns = [parse_pattern(each) for each in names]
    return choosing or len(names) != 1 or patterns[0].table is None


_FAMILIES: Mapping[str, Family] = {
    "view": "view",
    "external": "external table",
    "temporary": "temporary table",
}
"""Words of `--table-kinds`."""


def choice_of(values: Mapping[str, Any]) -> TableChoice | None:
    """Return which tables options ask for; None where they have a query.

    Raises:
        UsageError: A pattern cannot be read, or the file of patterns.
    """
    if values["query"] is not None:
        return None
    listed, words = values["tables_from"], [word.lower() for word in values["table_kinds"]]
    if not _FAMILIES.keys() >= set(words):
        raise UsageError(
            "--table-kinds names an unknown kind of table", f"use {', '.join(_FAMILIES)}"
        )
    return TableChoice(
        tables=(
            *(parse_pattern(each, "--table") for each in table_names(values)),
            *(() if listed is None else read_patterns(Path(listed))),
        ),
        schemas=tuple(parse_schema(each, "--schema") for each in values["schema"]),
        exclude=tuple(parse_pattern(each, "--exclude-table") for each in values["exclude_table"]),
        families=(*STORED, *(_FAMILIES[word] for word in words)),
        allow_unmatched=values["allow_unmatched"],
    )


def validate_planned(written: frozenset[str], plan: str) -> None:
    """Raise UsageError if options on the command line would change a decision of a plan file."""
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


def validate_measuring(values: Mapping[str, Any], given: frozenset[str], source: str) -> None:
    """Raise UsageError if the options of `preflight` contradict each other; no source is ""."""
    if values["save"] is not None and not values["save"].strip():
        raise UsageError("--save is empty", "give it a file, or leave it out")
    for name in ("disk_seconds", "source_seconds"):
        if not 0 < values[name] <= 3600:
            raise UsageError(
                f"{_flag(name)} is {values[name]:g}",
                "give a number of seconds above 0, at most 3600",
            )
    if source:
        validate(values, given)
        return
    for name in ("table", "query", "columns", "exclude", "where", "partition", "levels"):
        if name in given:
            raise UsageError(
                f"--{name} needs a SOURCE", "write unloader preflight SOURCE, or leave it out"
            )
    if not values["to"]:
        raise UsageError(
            "there is nothing to measure", "give a SOURCE with --table, or --to, or both"
        )
    # All other rules are the rules of a run.
    validate({**values, "table": "T", "query": None}, given)


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
