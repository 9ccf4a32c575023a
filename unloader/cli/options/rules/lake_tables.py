"""Rules on tables of a lakehouse that the files become part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unloader.cli.options.encryption import has_parquet_key
from unloader.cli.options.rules.files import out_of_place
from unloader.cli.options.rules.flags import flag
from unloader.cli.options.tables import ONE_OF_SEVERAL, is_of_several
from unloader.errors import UsageError
from unloader.lakehouse.lake_formats import lake_kind

_OF_TABLES = ("save_mode", "replace_where", "branch", "partition_by")


def check_table(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check what is asked of a table, or that nothing is where there is none."""
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
