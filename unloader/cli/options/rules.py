"""Rules between options: each broken rule is an error with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine. They are ignored where they do not apply.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.lakehouse.lake_formats import lake_kind
from unloader.redaction import PARQUET_KEY_VARIABLE
from unloader.request.locations import looks_like_source
from unloader.request.name_templates import (
    check_directory,
    check_template,
    home_template,
    is_dated,
    lob_template_parts,
)
from unloader.request.option import Circumstance
from unloader.request.options import options_of
from unloader.secrets.secret_places import USUAL_PARQUET_KEY, usual_credential
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
    from unloader.selection.choice import TableChoice
    from unloader.selection.listing import Family

ONE = "leave one of the two out"

_OWN_COLUMNS = ("which compares with the source's own columns", "use --verify full")
TRANSFORMING = ("expression", "constant", "cast", "mask", "rename", "output_columns")
_PART_OF_RUN = (
    "which writes a part of a run",
    "leave it out, and manage the directories after the merge",
)
_UNDATED = (
    "--to {to} is a different directory for each run",
    "use {date} in place of {run_id}, or leave --part and --skip-finished out",
)
_NO_TABLE = (
    "which is not a table",
    "give --to iceberg://CATALOG/NAMESPACE.TABLE, delta:PLACE or ducklake:CATALOG/SCHEMA.TABLE, "
    "or leave it out",
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
    **{f"--{name.replace('_', '-')} to --verify source": _OWN_COLUMNS for name in TRANSFORMING},
    "--lob-files to --verify source": _OWN_COLUMNS,
    "--lob-layout files without --lob-files": ("", "give --lob-files as well, or leave it out"),
    "--lob-name without --lob-layout files": ("", "give --lob-layout files as well"),
    "--lob-files to encrypted files": (
        "values in other files are not encrypted",
        "leave --lob-files out: values of any size are encrypted with their rows",
    ),
    "whole units to --query": (
        "--sample takes whole work units, and a query is one work unit",
        "give --sample-by as well",
    ),
    "whole units to --limit-rows": (
        "--sample takes whole work units, and --limit-rows a number of rows",
        f"{ONE}, or give --sample-by as well",
    ),
    "--part to {run_id}": _UNDATED,
    "--skip-finished to {run_id}": _UNDATED,
    "no end of line without --fixed": (
        "--eol is empty, and only records of fixed width have no end of line",
        "give it at least one character, or --fixed",
    ),
    "{unit} in --file-name to --file-per table": (
        "--file-name names a work unit, and --file-per table has one file",
        "leave {unit} and {partition} out",
    ),
    "open text to a Parquet key": (
        "a Parquet key is given, and text is not encrypted with it",
        "give --encrypt-to as well, or --format parquet, or no key",
    ),
    "--encrypt-to to Parquet without a key": (
        "--encrypt-to is for text, and Parquet is encrypted with a key",
        "give --parquet-key-file as well, or leave --encrypt-to out",
    ),
    "--parquet-key-name without a Parquet key": ("", "give --parquet-key-file"),
    **{
        f"--{name} to a table without branches": ("which is for Iceberg tables", "leave it out")
        for name in ("replace-where", "branch", "partition-by")
    },
    "--branch to a new table": (
        "--branch needs an existing table, and --save-mode is create",
        "give --save-mode append or overwrite, or leave --branch out",
    ),
    "--partition-by to an existing table": (
        "--partition-by is for a new table, and --save-mode is not create",
        "leave it out: an existing table has its own partitions",
    ),
    "--format csv to a table": ("whose files are Parquet", "give --format parquet"),
    "a field to a table": (
        "--to {to} has a field or an option, and the name of a table cannot have one",
        "write the name of the table",
    ),
    "several tables to a table": (
        "--to {to} is one table, and several tables need separate files",
        "run one table at a time",
    ),
    "--part to a table": (
        "--to {to} is committed once, and --part writes a part of it",
        "give a directory or an object store, or leave --part out",
    ),
    "a Parquet key to a table": (
        "readers of a table have no key for its files",
        "leave --parquet-key-file out",
    ),
    "--latest-link to several directories": (
        "which is one link",
        "give one directory, or leave --latest-link out",
    ),
    "--file-per table to several directories": (
        "which is one file",
        "give one directory, or leave --file-per out",
    ),
    "several tables to a stream": (
        "--to {to} is a stream, and several tables need separate files",
        "give a directory, --to '/extract/{schema}.{table}', or run one table",
    ),
    "--json to standard output": (
        "--json and --to - both write to standard output",
        "leave --json out; the exit status shows the result",
    ),
}
"""Options and circumstances that exclude or need each other, with the reason and the advice.

The reason is a clause that begins with which, whose, as or since. Otherwise it is the whole text.
"""

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
    **{
        f"--{name} to --to {{to}}": _NO_TABLE
        for name in ("save-mode", "replace-where", "branch", "partition-by")
    },
    "--verify full to no files": (
        "--verify full cannot read back the output to {to}",
        "use --verify count",
    ),
    "--parallelism to one writer": (
        "--parallelism does not apply to --to {to}, which has one writer",
        "leave it out, or give a directory",
    ),
}
"""Pairs whose variables are ignored: they may be set for all jobs of a machine."""

_USUAL = {
    "split": ("auto", "none"),
    "bind": ("none",),
    "memory_policy": ("local",),
    "file_per": ("unit",),
    "lob_layout": ("packed",),
}
"""Words that change nothing."""


def validate(values: Mapping[str, Any], given: frozenset[str]) -> None:
    for error in broken(values, given):
        raise error


def broken(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Yield an error for each rule that the options of a job break.

    The command line or the job file sets the options in `given`.
    """
    for rule in (_single, conflicts, _destination):
        try:
            yield from rule(values, given)
        except UsageError as error:
            yield error


def _single(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Each option has a value, and is for the format; something is selected."""
    for option in options_of("run"):
        value = values.get(option.key)
        texts = value if isinstance(value, tuple) else (value,)
        nothing = value == () and option.key in given
        blank = any(isinstance(text, str) and not text.strip() for text in texts)
        if not option.empty and (nothing or blank):
            # What an unset variable of a script leaves: `--to "$DEST"` would be this directory.
            yield UsageError(f"--{option.name} is empty", "give it a value, or leave it out")
        if option.key in given and not option.knows(values["format"]):
            yield UsageError(
                f"--{option.name} does not apply to --format {values['format']}",
                f"leave it out, or use --format {option.formats[0]}",
            )
    for name in (PARQUET_KEY_VARIABLE, "UNLOADER_PARQUET_KEY_FILE", "UNLOADER_ENCRYPT_TO"):
        # A script leaves it empty whose own source failed. Unlike for other options, a variable is
        # an error here: an output that is to be encrypted must not be written in the open.
        if "encrypt_to" in values and not os.environ.get(name, "set").strip():
            yield UsageError(
                f"{name} is set and empty, so the files would not be encrypted",
                "give it a value, or unset it",
            )
    if values["query"] is None and not any(map(values.get, ("table", "schema", "tables_from"))):
        yield UsageError("no table or query is given", "give --table or --query")
    if values["fixed"]:
        yield from _out_of_place("fixed", "--fixed", values, given)
    template, per_unit = values["file_name"], values["file_per"] == "unit"
    if template is not None:
        check_template(template, per_unit=per_unit, parts=per_unit and bool(values["file_size"]))
    if values.get("lob_name"):
        lob_template_parts(values["lob_name"])


def _circumstances(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the circumstances that the options make together, in the words of the rules."""
    places: tuple[str, ...] = values.get("to") or ()
    place, kind = places[0] if places else "", destination_kind(places)
    several = values["query"] is None and "exclude_table" in values and is_of_several(values)
    mode, parquet = values.get("save_mode"), values["format"] == "parquet"
    keyed = has_parquet_key(values.get("parquet_key_file"))
    # A command that measures has another --sample, and no --limit-rows.
    share = values["sample"] if "limit_rows" in values else None
    encrypts, table, fields = "encrypt_to" in values, kind == "table", values["file_name"] or ""
    found = {
        "whole units": share is not None and share < 1 and values["sample_by"] is None,
        "{run_id}": any("{run_id}" in each for each in places),
        "no end of line": values["eol"] == "",
        "{unit} in --file-name": "{unit}" in fields or "{partition}" in fields,
        "a Parquet key": keyed and encrypts,
        "open text": encrypts and not parquet and not values["encrypt_to"],
        "Parquet without a key": encrypts and parquet and not keyed,
        "encrypted files": bool(encrypts and (keyed if parquet else values["encrypt_to"])),
        "a table": table,
        "a table without branches": table and lake_kind(place) != "iceberg",
        "a new table": table and mode in (None, "create"),
        "an existing table": table and mode not in (None, "create"),
        "a field": any(each in place for each in ("{}?" if "iceberg:" in place else "{}")),
        "--to {to}": bool(places) and not table,
        "several tables": several or bool(values.get(ONE_OF_SEVERAL)),
        "several directories": len(places) > 1,
        "a stream": is_one_stream(kind),
        "no files": not is_kept(places),
        "one writer": is_one_stream(kind) and values["parallelism"] not in (0, 1),
        "standard output": kind == "stdout",
    }
    return frozenset(name for name, holds in found.items() if holds)


def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """Yield an error for each pair of options that exclude or need each other."""
    known = _circumstances(values) if "format" in values else frozenset()
    to = ", ".join(values.get("to") or ())
    for pairs, every in ((_CONFLICTS, True), (_GIVEN_CONFLICTS, False)):
        for pair, (why, advice) in pairs.items():
            first, word, second = re.split(" (to|without) ", pair, maxsplit=1)
            if not every and first.partition(" ")[0][2:].replace("-", "_") not in given:
                continue
            if _holds(values, known, first) and _holds(values, known, second) == (word == "to"):
                text = f"{first} and {second} exclude each other"
                if why.startswith(("which ", "whose ", "as ", "since ")):
                    text = f"{first} does not apply {word} {second}, {why}"
                elif why:
                    text = why
                elif word == "without" or " " in second:
                    text = f"{first} does not apply {word} {second}"
                yield UsageError(text.replace("{to}", to), advice)


def _holds(values: Mapping[str, Any], circumstances: frozenset[str], words: str) -> bool:
    """Return whether an option is set, or has the value after its name; else a circumstance."""
    if not words.startswith("--") or words == "--to {to}":
        return words in circumstances
    name, _, value = words[2:].partition(" ")
    key = name.replace("-", "_")
    found = values.get(key)
    if value:
        return str(found) == value
    return found not in (None, False, 0, "", (), *_USUAL.get(key, ()))


def _out_of_place(
    where: Circumstance, what: str, values: Mapping[str, Any], given: frozenset[str], why: str = ""
) -> Iterator[UsageError]:
    """Yield an error for each given option that does not apply; `why` replaces its own reasons."""
    for option in options_of("run"):
        set_here = option.key in given and where in option.not_for
        if set_here and _holds(values, frozenset(), f"--{option.name}"):
            yield UsageError(
                f"--{option.name} does not apply to {what}{why or f': {option.not_for[where]}'}",
                "leave it out",
            )


def has_parquet_key(path: str | None) -> bool:
    """Return whether a Parquet key is given: in a file, in the variable or by systemd."""
    given = path is not None or PARQUET_KEY_VARIABLE in os.environ
    return given or usual_credential(USUAL_PARQUET_KEY) is not None


def _destination(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[UsageError]:
    """The rows can go to the places of --to."""
    places: tuple[str, ...] = values.get("to") or ()
    tables = [place for place in places if lake_kind(place) is not None]
    if tables and len(places) > 1:
        raise UsageError(f"--to {tables[0]} is a table, and all files go into it", "give it alone")
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
    if tables:
        yield from _out_of_place("tables", "a table", values, given)
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
            f"--{name.replace('_', '-')} needs a separate directory for each run of a table, below "
            "one directory that is the same for all runs",
            "write {date} or {run_id} only into the last part of --to, such as "
            f"--to '/extract/{{table}}/{{date}}'{before if several else ''}",
        )
    link = values.get("latest_link")
    if link is not None and (not link or set("/\\") & set(link) or link[0] in "._-"):
        yield UsageError(
            "--latest-link is not a plain file name",
            "leave out slashes, and begin with no dot, underscore or hyphen",
        )
    # Options of an object store are left out.
    paths = [comparable(place) if is_location(place) else PurePath(place) for place in places]
    if two := overlapping(paths):
        first, second = (paths[at] for at in two)
        yield UsageError(
            two_are_one(str(first), str(second), same=first == second), "name separate directories"
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
    # One stream is one file for the table.
    applies = {"file_per"} if is_one_stream(kind) else set()
    why = ", which keeps nothing" if kind == "null" else ""
    yield from _out_of_place("streams", what, values, given - applies, why)
    if kind == "stdout":
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
        if "{unit}" in template or "{partition}" in template:
            yield UsageError(
                f"--to {place} has a field of work units, but one pipe takes all work units",
                "leave the field out, or give a directory to write a file for each work unit",
            )


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
    from unloader.selection.choice import parse_pattern

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
    # Imported here: most runs are of one table.
    from unloader.selection.choice import TableChoice, parse_pattern, parse_schema, read_patterns

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
