"""Options on runs over several tables: which tables, and what becomes of the run as a whole."""

from __future__ import annotations

from functools import partial

from unloader.request.options.kinds import FLAG, GLOBS, SCHEMAS, TABLES, Choice, PathText
from unloader.request.options.option import Option

_SEVERAL = "Several tables"

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
        help="Schema, or a pattern of schemas, in which tables without a schema are looked for; "
        "without --table, all tables of it. May be repeated.",
    ),
    _choosing(
        name="exclude-table",
        kind=TABLES,
        multiple=True,
        planned=True,
        help="Leave out the tables that this name or pattern matches. May be repeated.",
    ),
    _choosing(
        name="tables-from",
        kind=PathText("FILE", only="file"),
        planned=True,
        help="Take the tables from FILE, too: a name or a pattern on each line.",
    ),
    _choosing(
        name="table-kinds",
        kind=GLOBS,
        multiple=True,
        planned=True,
        help="Kinds that a pattern matches besides tables and materialized views: view, external, "
        "temporary. A name in full stands for a table of any kind. Separated by commas, or "
        "repeated.",
    ),
    _choosing(
        name="allow-unmatched",
        kind=FLAG,
        planned=True,
        empty=True,
        help="A pattern, a schema or an exclusion that matches nothing is told in the log, and is "
        "no error.",
    ),
    _whole(
        name="publish",
        kind=Choice("table", "run"),
        default="table",
        help="Give the files of each table their final names as soon as it is complete (table), or "
        "those of all tables at the end (run).",
    ),
    _whole(
        name="on-table-failure",
        kind=Choice("stop", "continue"),
        default="stop",
        help="When a table fails: end the run (stop), or unload the others (continue). Either way "
        "the exit status is not 0.",
    ),
)
