"""A first job file for the tables of a schema, with comments on what to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.errors import ConfigError, OutputFailed
from unloader.nouns import counted
from unloader.request.name_templates import DirectoryValues, directory_name

if TYPE_CHECKING:
    from unloader.api import SchemaTable

_HEAD = """\
# A job file of unloader. Each key is an option of `unloader run`.
#
#   unloader check FILE      check it without reading rows
#   unloader run FILE        unload its tables
#
# Values may use environment variables, "${NAME}" or "${NAME:-default}". List them in a line
# shown-variables = ["NAME"], because their contents are shown and recorded.
# Editors with taplo complete the keys and check the values. They need this line, with the path of
# the file in the docs of unloader:
#   #:schema /path/to/job.schema.json
"""

_OPTIONS = """\
# Keys that are shared with other files. The keys of this file override them.
# include = ["base.toml"]

# format = "parquet"          # the default is csv
# compression = "zstd"        # the default: none for csv, zstd for parquet
# parallelism = 8             # the default is the number of usable cores
# verify = "full"             # the default is count
"""

_TO = "# A directory for each day, and in it one for each table. {run_id} makes one for each run."


def draft(url: str, settings: Mapping[str, str], tables: Sequence[SchemaTable]) -> str:
    """Return the text of a job file for the tables of one schema; settings are about the source."""
    views = [each for each in tables if each.is_view]
    if len(views) == len(tables):
        views = []
    chosen = [each for each in tables if each not in views]
    rows = sum(each.summary.rows or 0 for each in chosen)
    about = f", about {counted(rows, 'row')}" if rows else ""
    more = f"; {counted(len(views), 'view is', 'views are')} commented out" if views else ""
    lines = [_HEAD, f"source = {quoted(url)}"]
    lines += [f"{key} = {quoted(value)}" for key, value in settings.items()]
    lines += ["", _TO, f"to = {quoted(_usual(tables))}", "", _OPTIONS]
    lines.append(f"# {counted(len(chosen), 'table')}{about}{more}. Estimates of the source.")
    for table, to in zip(tables, _destinations(tables), strict=True):
        summary = table.summary
        size = [summary.kind]  # The word of the source.
        if summary.rows is not None:
            size.append(f"about {counted(summary.rows, 'row')}")
        if summary.bytes is not None:
            size.append(render.size(summary.bytes))
        if summary.partitions:
            size.append(counted(summary.partitions, "partition"))
        keys = [f"# {', '.join(size)}", f"table = {quoted(table.typed)}"]
        keys += [f"to = {quoted(to)}"] if to else []
        entry = ["", "[[table]]", *keys] if len(tables) > 1 else keys
        lines += [f"# {line}" if line and table in views else line for line in entry]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a text as TOML has it, and so that no variable begins in it."""
    written = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return written.replace("\x7f", "\\u007f")


def _usual(tables: Sequence[SchemaTable]) -> str:
    has_schema = all(each.summary.schema for each in tables)
    return "extract/{date}/{schema}.{table}" if has_schema else "extract/{date}/{table}"


def _destinations(tables: Sequence[SchemaTable]) -> Iterator[str]:
    """Yield a directory for each table that would share the usual one, or lacks one; else nothing.

    Two names may give the same directory, since a directory's name cannot hold every character.
    """
    seen: set[str] = set()
    for number, each in enumerate(tables, 1):
        summary = each.summary
        values = DirectoryValues(
            schema=summary.schema or "", table=summary.name, date="20260131", run_id=""
        )
        try:
            usual = directory_name(_usual(tables), values)
        except (ConfigError, OutputFailed):
            usual = ""
        yield "" if usual and usual not in seen else f"extract/{{date}}/table-{number}"
        seen.add(usual)
