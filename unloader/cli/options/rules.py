"""Rules between options: what contradicts what, each told with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine and are let pass where they do not apply.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.redaction import holds_sql_password
from unloader.request.file_names import check_template
from unloader.request.locations import looks_like_source
from unloader.storage.kinds import (
    destination_kind,
    is_one_stream,
    overlapping,
    pipe_template,
    two_are_one,
)
from writers.model import Compression

TEXT_OPTIONS = (
    "dialect",
    "delimiter",
    "enclosure",
    "enclose",
    "escape",
    "null",
    "eol",
    "header",
    "trailing_delimiter",
    "record_length",
    "encoding",
    "substitute",
    "fixed",
    "width",
    "date_format",
    "timestamp_format",
    "timestamp_tz_format",
    "decimal_separator",
    "boolean_format",
    "binary_format",
    "encoder",
)
PARQUET_OPTIONS = (
    "row_group_rows",
    "row_group_bytes",
    "parquet_version",
    "data_page_version",
    "dictionary",
    "byte_stream_split",
    "statistics",
    "bloom_filter",
    "sorted_by",
    "number_without_precision",
    "nanoseconds",
    "zone_columns",
)

SOURCE_OPTIONS = frozenset(
    (
        "session_sql",
        "call_timeout",
        "client_library",
        "scn",
        "fetch",
        "parallel_query",
        "direct_read",
        "enable_row_security",
        "number_without_precision",
        "nanoseconds",
        "zone_columns",
    )
)
"""Options that only some sources know."""

SOURCE_FIELDS = {"call_timeout": "call_timeout_seconds"}
"""Option to field of SessionOptions, where the names differ."""

NOT_EMPTY = ("table", "query", "where", "to", "file_name")
"""Options whose empty text means nothing, or not what was meant."""

SELECTING = ("table", "query", "columns", "exclude", "where", "partition", "as_text")
PLANNED = (*SELECTING, "split", "unit_bytes", "parallelism")
"""What a plan file has decided."""


def validate(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError if the options of a job contradict each other or lack one another.

    Args:
        values: Every option by its name with underscores.
        given: The names of those set on the command line or in the job file.
    """
    for rule in _RULES:
        rule(values, given)


def validate_planned(written: frozenset[str], plan: str) -> None:
    """Raise UsageError if options on the command line would change what a plan has decided.

    Args:
        written: The names of those on the command line.
        plan: The plan's file.
    """
    for name in PLANNED:
        if name in written:
            raise UsageError(
                f"{_flag(name)} cannot change the finished plan {plan}",
                f"make a new plan with {_flag(name)}, or leave it out",
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


def unknown_to(kind: str) -> frozenset[str]:
    """Return the options that say nothing to this kind of source."""
    from unloader.sources.registry import source_of

    source = source_of(kind)
    known = source.session_options | source.value_options
    return frozenset(name for name in SOURCE_OPTIONS if SOURCE_FIELDS.get(name, name) not in known)


def _subject(values: Mapping[str, Any], given: frozenset[str]) -> None:
    table, query = values["table"], values["query"]
    if table is None and query is None:
        raise UsageError("nothing says what to unload", "give --table or --query")
    if table is not None and query is not None:
        raise UsageError("--table and --query exclude each other", "leave one of the two out")


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


def _formats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    parquet = values["format"] == "parquet"
    for name in TEXT_OPTIONS if parquet else PARQUET_OPTIONS:
        if name in given:
            other = "csv" if parquet else "parquet"
            raise UsageError(
                f"{_flag(name)} does not apply to --format {values['format']}",
                f"leave it out, or use --format {other}",
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
    for name, what in _NOT_FOR_FIXED.items():
        if name in given and values[name] not in (False, 0):
            raise UsageError(
                f"{_flag(name)} does not apply to --fixed: such records have no {what}",
                "leave one of the two out",
            )


_NOT_FOR_FIXED = {
    "delimiter": "delimiter",
    "enclosure": "enclosure",
    "enclose": "enclosure",
    "escape": "enclosure",
    "header": "header",
    "trailing_delimiter": "delimiter",
    "record_length": "length in front of them",
}
"""Options that say something about delimited text only, and what they are about."""


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
        if looks_like_source(place):
            raise UsageError(
                "--to looks like a URL or a login, which is not shown, and output goes to a "
                "directory",
                "give a directory; one of such a name is written ./NAME",
            )
    if destination_kind(places) != "directories":
        _stream(values, given, places)
    elif any(destination_kind((place,)) != "directories" for place in places):
        raise _alone(places)
    elif overlapping(paths := [PurePath(place) for place in places]):
        first, second = (paths[at] for at in overlapping(paths) or ())
        raise UsageError(
            two_are_one(str(first), str(second), same=first == second),
            "name directories that lie apart",
        )
    elif len(places) > 1 and values["file_per"] == "table":
        raise UsageError(
            f"--file-per table is one file, and --to names {len(places)} directories",
            "give one directory, or leave --file-per out",
        )


def _stream(values: Mapping[str, Any], given: frozenset[str], places: tuple[str, ...]) -> None:
    kind = destination_kind(places)
    if len(places) > 1:
        raise _alone(places)
    what = "standard output" if kind == "stdout" else places[0]
    for name, why in _NOT_FOR_STREAMS.items():
        if name in given and values[name] not in (False, 0, "unit"):
            if name == "file_per" and is_one_stream(kind):
                continue
            raise UsageError(f"{_flag(name)} does not apply to {what}: {why}", "leave it out")
    if "verify" in given and values["verify"] == "full":
        raise UsageError(
            f"--verify full cannot read back what went to {what}", "use --verify count"
        )
    if is_one_stream(kind) and "parallelism" in given and values["parallelism"] > 1:
        raise UsageError(
            f"--parallelism {values['parallelism']} does not apply to {what}: it has one writer",
            "leave it out, or use a pipe a work unit: --to pipe:DIR/{unit}.csv",
        )
    if kind == "stdout":
        _standard_output(values)
    else:
        _pipe(values, places[0])


_NOT_FOR_STREAMS = {
    "overwrite": "there is nothing to replace",
    "direct_io": "it has no page cache",
    "file_size": "it is not cut into files",
    "file_name": "it has a name already",
    "file_per": "it is a pipe for each work unit",
}
"""Options that say something about files only, and why."""


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
    for name in NOT_EMPTY:
        value = values.get(name)
        texts = value if isinstance(value, tuple) else (value,)
        nothing = value == () and name in given
        if nothing or any(text is not None and not text.strip() for text in texts):
            raise UsageError(f"{_flag(name)} is empty", "give it a value, or leave it out")


_RULES: tuple[Callable[[Mapping[str, Any], frozenset[str]], None], ...] = (
    _empty,
    _subject,
    _query,
    _formats,
    _fixed,
    _file_sizes,
    _file_names,
    _destination,
    _snapshot,
    validate_seats,
)
