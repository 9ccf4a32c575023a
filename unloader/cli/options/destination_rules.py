"""Rules between options on the destination: directories, object stores, tables, streams."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from unloader.cli.options.tables import ONE_OF_SEVERAL, check_of_each_table, is_of_several
from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.lakehouse.lake_formats import lake_kind
from unloader.redaction import PARQUET_KEY_VARIABLE
from unloader.request.directory_names import check_directory, home_template, is_dated
from unloader.request.file_names import check_template
from unloader.request.locations import looks_like_source
from unloader.request.option import Circumstance, Option
from unloader.request.options import options_of
from unloader.request.settings import ADAPTIVE
from unloader.secrets.secret_places import USUAL_PARQUET_KEY, usual_credential
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


def flag(name: str) -> str:
    """Return an option as it is typed."""
    return "--" + name.replace("_", "-")


def out_of_place(where: Circumstance, given: frozenset[str]) -> Iterator[Option]:
    """Yield the given options that do not apply somewhere."""
    for option in options_of("run"):
        if option.key in given and where in option.not_for:
            yield option


def has_parquet_key(path: str | None) -> bool:
    """Return whether a Parquet key is given: in a file, in the variable or by systemd."""
    given = path is not None or PARQUET_KEY_VARIABLE in os.environ
    return given or usual_credential(USUAL_PARQUET_KEY) is not None


def check_variables() -> None:
    """Refuse variables that are set and empty, as a script leaves them whose own source failed.

    Raises:
        UsageError: Names the variable.
    """
    for name in (PARQUET_KEY_VARIABLE, "UNLOADER_PARQUET_KEY_FILE", "UNLOADER_ENCRYPT_TO"):
        if not os.environ.get(name, "set").strip():
            raise UsageError(
                f"{name} is set and empty, so the files would not be encrypted",
                "give it a value, or unset it",
            )


def check_destination(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that the rows can go where they are to go."""
    places = values.get("to") or ()
    check_table(values, given)
    for place in places:
        if lake_kind(place) is None and looks_like_source(place, KINDS):
            raise UsageError(
                "--to looks like a URL or a login and not like a directory; it is not shown",
                "give a directory; write ./NAME if this is its name",
            )
    if not is_kept(places):
        _stream(values, given, places)
    else:
        _kept(values, given, places)


def _kept(values: Mapping[str, Any], given: frozenset[str], places: tuple[str, ...]) -> None:
    kind = destination_kind(places)
    if any(destination_kind((place,)) != kind for place in places):
        raise _alone(places)
    for place in places if kind != "table" else ():
        check_directory(place)
        if kind == "objects":
            _object_place(place)
    for option in out_of_place("objects", given) if kind == "objects" else ():
        if values[option.key] not in (False, 0):
            raise UsageError(
                f"--{option.name} does not apply to an object store: {option.not_for['objects']}",
                "leave it out",
            )
    if places and is_of_several(values):
        check_of_each_table(places)
    _earlier_runs(values, places)
    if overlapping(paths := [_compared(place) for place in places]):
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


def _object_place(place: str) -> None:
    try:
        Location.parse(place)
    except FormatError as error:
        raise UsageError(f"--to: {error.message}", error.hint) from None


def _compared(place: str) -> PurePath:
    """Return a place as it is written, options of an object store left out."""
    return comparable(place) if is_location(place) else PurePath(place)


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
                f"{flag(name)} needs a separate directory for each run of a table, below one "
                "directory that is the same for all runs",
                "write {date} or {run_id} only into the last part of --to, such as "
                "--to '/extract/{table}/{date}'"
                + (
                    ", or only into the part before {table}: --to '/extract/{date}/{table}'"
                    if several
                    else ""
                ),
            )
    if values.get("keep") is not None and values["verify"] == "none":
        raise UsageError(
            "--keep does not apply to --verify none: it removes earlier runs after a verified run",
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
            f"--to {places[0]} is not a destination",
            f"write {NULL} to drop the output, or {NULL_ROWS} to drop the rows before they are "
            f"encoded; a directory of that name is ./{places[0]}",
        )
    what = "standard output" if kind == "stdout" else places[0]
    if kind != "null" and is_of_several(values):
        raise UsageError(
            f"--to {places[0]} is a stream, and several tables need separate files",
            "give a directory, --to '/extract/{schema}.{table}', or run one table",
        )
    for option in out_of_place("streams", given):
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
            f"--verify full cannot read back the output to {what}", "use --verify count"
        )
    parallelism = values["parallelism"]
    if is_one_stream(kind) and "parallelism" in given and parallelism not in (0, 1):
        asked = "adaptive" if parallelism == ADAPTIVE else parallelism
        raise UsageError(
            f"--parallelism {asked} does not apply to {what}: it has one writer",
            "leave it out, or give a directory",
        )
    if kind == "stdout":
        _standard_output(values)
    elif kind != "null":
        _pipe(values, places[0])


def _standard_output(values: Mapping[str, Any]) -> None:
    if values.get("json"):
        raise UsageError(
            "--json and --to - both write to standard output",
            "leave --json out; the exit status shows the result",
        )
    if was_closed(1):
        raise UsageError(
            "--to - needs standard output, and it is closed", "give it a reader or a file"
        )
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
    check_template(template, per_unit=False, parts=False, option="--to")
    for each in ("{unit}", "{partition}"):
        if each in template:
            raise UsageError(
                f"--to {place} has the field {each}, but one pipe takes all work units",
                f"leave {each} out, or give a directory to write a file for each work unit",
            )


def _alone(places: tuple[str, ...]) -> UsageError:
    kinds = {destination_kind((place,)) for place in places}
    if kinds == {"directories", "objects"}:
        return UsageError(
            "--to names directories and an object store, and one output goes to one kind of place",
            "give places of one kind, or two routes",
        )
    return UsageError(
        f"--to {','.join(places)} mixes directories and streams",
        "give directories only, or one stream",
    )


_OF_TABLES = ("save_mode", "replace_where", "branch", "partition_by")


def check_table(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check the options of a lakehouse table, or that they are missing for other destinations."""
    places = values.get("to") or ()
    kinds = {lake_kind(place) for place in places}
    if not places or kinds == {None}:
        for name in _OF_TABLES:
            if places and values.get(name) not in (None, ()) and name in given:
                raise UsageError(
                    f"{flag(name)} is for a table, and --to {', '.join(places)} is not a table",
                    "give --to iceberg://CATALOG/NAMESPACE.TABLE, delta:PLACE or "
                    "ducklake:CATALOG/SCHEMA.TABLE, or leave it out",
                )
        return
    if len(places) > 1:
        raise UsageError(f"--to {places[0]} is a table, and all files go into it", "give it alone")
    _check_modes(values, places[0])
    _check_partitions(values, places[0])
    _check_others(values, given, places[0])


def _check_modes(values: Mapping[str, Any], place: str) -> None:
    if values.get("replace_where") is not None and values.get("save_mode") != "overwrite":
        raise UsageError(
            "--replace-where selects the rows to replace, and no rows are replaced",
            "give --save-mode overwrite, or leave it out",
        )
    if values.get("branch") is not None and lake_kind(place) != "iceberg":
        raise UsageError("--branch is for Iceberg tables", "leave it out")
    if values.get("replace_where") is not None and lake_kind(place) != "iceberg":
        raise UsageError(
            "--replace-where is for Iceberg tables",
            "leave it out: --save-mode overwrite replaces all rows",
        )
    if values.get("branch") is not None and values.get("save_mode") in (None, "create"):
        raise UsageError(
            "--branch needs an existing table, and --save-mode is create",
            "give --save-mode append or overwrite, or leave --branch out",
        )


def _check_partitions(values: Mapping[str, Any], place: str) -> None:
    if not values.get("partition_by"):
        return
    if lake_kind(place) != "iceberg":
        raise UsageError("--partition-by is for Iceberg tables", "leave it out")
    if values.get("save_mode") not in (None, "create"):
        raise UsageError(
            f"--partition-by is for a new table, and --save-mode is {values['save_mode']}",
            "leave it out: an existing table has its own partitions",
        )


def _check_others(values: Mapping[str, Any], given: frozenset[str], place: str) -> None:
    if values["format"] != "parquet":
        raise UsageError(
            f"the files of a table are Parquet, and --format is {values['format']}",
            "give --format parquet",
        )
    if any(mark in place for mark in ("{}?" if lake_kind(place) == "iceberg" else "{}")):
        raise UsageError(
            f"--to {place} has a field or an option, and the name of a table cannot have one",
            "write the name of the table",
        )
    if is_of_several(values) or values.get(ONE_OF_SEVERAL):
        raise UsageError(
            f"--to {place} is one table, and several tables need separate files",
            "run one table at a time",
        )
    if values.get("part") is not None:
        raise UsageError(
            f"--to {place} is committed once, and --part writes a part of it",
            "give a directory or an object store, or leave --part out",
        )
    if has_parquet_key(values.get("parquet_key_file")):
        raise UsageError(
            "readers of a table have no key for its files", "leave --parquet-key-file out"
        )
    for option in out_of_place("tables", given):
        if values[option.key] not in (False, 0, None):
            raise UsageError(
                f"--{option.name} does not apply to a table: {option.not_for['tables']}",
                "leave it out",
            )
