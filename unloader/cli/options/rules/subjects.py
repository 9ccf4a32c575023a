"""Rules on what is unloaded: tables, queries, and parts of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unloader.cli.options.rules.flags import flag
from unloader.cli.options.tables import CHOOSING, table_names
from unloader.errors import UsageError


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
