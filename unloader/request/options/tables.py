"""Options on runs over several tables: which tables, and how the run handles all of them."""

from __future__ import annotations

from functools import partial

from unloader.request.options.kinds import FLAG, GLOBS, SCHEMAS, TABLES, Choice, PathText
from unloader.request.options.option import Option

_SEVERAL = "Tables"

_BY_SCHEMA = (
    "unloader run oracle://etl@db01:1521/SALES --schema SALES \\\n"
    "    --to '/extract/{schema}.{table}'"
)
_FROM_FILE = (
    "unloader run oracle://etl@db01:1521/SALES --tables-from tables.txt \\\n"
    "    --to '/extract/{schema}.{table}'"
)

_choosing = partial(
    Option, section=_SEVERAL, scope="table", commands=("plan", "run"), effect="changes", empty=False
)
_whole = partial(Option, section=_SEVERAL, commands=("plan", "run"), effect="none")

OPTIONS = (
    _choosing(
        name="schema",
        kind=SCHEMAS,
        multiple=True,
        planned=True,
        help=(
            "Schema, or a pattern of schemas. Tables without a schema are searched there. Without "
            "--table, all its tables are unloaded. Can be repeated."
        ),
        example=_BY_SCHEMA,
    ),
    _choosing(
        name="exclude-table",
        kind=TABLES,
        multiple=True,
        planned=True,
        help="Exclude the tables that match this name or pattern. Can be repeated.",
        example=f"{_BY_SCHEMA} --exclude-table 'TMP_*'",
    ),
    _choosing(
        name="tables-from",
        kind=PathText("FILE", only="file"),
        planned=True,
        help="Also read tables from FILE, with a name or a pattern on each line.",
        example=_FROM_FILE,
    ),
    _choosing(
        name="table-kinds",
        kind=GLOBS,
        multiple=True,
        planned=True,
        help=(
            "Kinds that a pattern also matches: view, external, temporary. A pattern always "
            "matches tables and materialized views. A full name can be of any kind. Separate "
            "several with commas, or repeat the option."
        ),
        example=f"{_BY_SCHEMA} --table-kinds view",
    ),
    _choosing(
        name="allow-unmatched",
        kind=FLAG,
        planned=True,
        empty=True,
        help=(
            "Log a pattern, a schema or an exclusion that matches nothing. Without this option, "
            "that is an error."
        ),
        example=f"{_BY_SCHEMA} --allow-unmatched",
    ),
    _whole(
        name="publish",
        kind=Choice("table", "run"),
        default="table",
        help=(
            "Give the files of each table their final names when that table is complete (table), "
            "or when all tables are complete (run)."
        ),
        example=f"{_BY_SCHEMA} --publish run",
    ),
    _whole(
        name="on-table-failure",
        kind=Choice("stop", "continue"),
        default="stop",
        help=(
            "When a table fails: end the run (stop), or unload the other tables (continue). In "
            "both cases the exit status is not 0."
        ),
        example=f"{_BY_SCHEMA} --on-table-failure continue",
    ),
)
