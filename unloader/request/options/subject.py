"""Options on what is unloaded, and on the password of its source."""

from __future__ import annotations

from dataclasses import replace

from unloader.model import Selection, TableName
from unloader.request.names import parse_table
from unloader.request.options.kinds import (
    COUNT,
    FLAG,
    GLOBS,
    NAMES,
    PART,
    TABLES,
    Kind,
    PathText,
)
from unloader.request.options.option import PASSWORDS, READING, Option
from unloader.request.options.sweeping import SHARE

SOURCE = "Source"
WHAT = "What to unload"

PASSWORD_FILE = Option(
    name="password-file",
    kind=PathText("FILE", only="file"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    help="Read the password from the first line of FILE, which no other user may read. It takes "
    "precedence over UNLOADER_PASSWORD.",
)

PASSWORD_KEYRING = Option(
    name="password-keyring",
    kind=Kind("SERVICE[/USER]"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    empty=False,
    help="Read the password from the system's keyring, where it is stored for SERVICE and USER; "
    "USER is that of the URL unless given.",
)

PASSWORD_CREDENTIAL = Option(
    name="password-credential",
    kind=Kind("NAME"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    empty=False,
    help="Read the password from the systemd credential NAME. A credential named "
    "unloader-password is used without this option.",
)

PASSWORD_PROMPT = Option(
    name="password-prompt",
    kind=FLAG,
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    help="Ask for the password; needs a terminal.",
)


def _one_table(value: str | tuple[str, ...]) -> TableName | None:
    """Return the table of an option that takes one; of several the choice is made elsewhere."""
    return parse_table(value) if isinstance(value, str) else None


ONE_TABLE = Option(
    name="table",
    scope="table",
    kind=Kind("T"),
    section=WHAT,
    commands=("describe", "codecs", "preflight", "sweep"),
    effect="changes",
    field="selection.table",
    owner=Selection,
    shape=_one_table,
    empty=False,
    planned=True,
    help="Table or view: NAME or SCHEMA.NAME, quoted if it is not plain.",
)

TABLE = replace(
    ONE_TABLE,
    kind=TABLES,
    multiple=True,
    commands=("plan", "run"),
    help="Table or view: NAME or SCHEMA.NAME, quoted if it is not plain. A pattern such as "
    "'SALES.*' stands for all tables that match, and the option may be repeated; all tables are "
    "read at one snapshot.",
)

SELECTION = (
    ONE_TABLE,
    TABLE,
    Option(
        name="query",
        scope="table",
        kind=Kind("SQL"),
        section=WHAT,
        commands=READING,
        effect="selects",
        field="selection.query",
        owner=Selection,
        empty=False,
        planned=True,
        help="Unload the result of this query instead of a table.",
    ),
    Option(
        name="query-name",
        scope="table",
        kind=Kind("NAME"),
        section=WHAT,
        commands=("plan", "run"),
        effect="none",
        field="selection.query_name",
        owner=Selection,
        empty=False,
        planned=True,
        help="What {table} stands for with --query, in directories and in names of files: query, "
        "unless this says otherwise.",
    ),
    Option(
        name="columns",
        scope="route",
        kind=NAMES,
        multiple=True,
        section=WHAT,
        commands=READING,
        effect="selects",
        field="selection.columns",
        owner=Selection,
        planned=True,
        record="columns",
        help="Only these columns, in this order. A pattern such as addr_* selects all columns "
        "that match; in double quotes it is a name. Separated by commas, or repeated.",
    ),
    Option(
        name="exclude",
        scope="route",
        kind=NAMES,
        multiple=True,
        section=WHAT,
        commands=READING,
        effect="selects",
        field="selection.exclude",
        owner=Selection,
        planned=True,
        record="exclude",
        help="All columns but these, by name or pattern. Separated by commas, or repeated.",
    ),
    Option(
        name="where",
        scope="route",
        kind=Kind("SQL"),
        section=WHAT,
        commands=READING,
        effect="selects",
        field="selection.where",
        owner=Selection,
        empty=False,
        planned=True,
        record="where",
        help="Only the rows for which this condition holds.",
    ),
    Option(
        name="partition",
        scope="table",
        kind=GLOBS,
        multiple=True,
        section=WHAT,
        commands=READING,
        effect="selects",
        field="selection.partitions",
        owner=Selection,
        planned=True,
        record="partition",
        help="Only partitions that match one of these patterns, each of which has to match one. "
        "The name of a level stands for all below it: YEAR, YEAR/MONTH. Separated by commas, or "
        "repeated.",
    ),
    Option(
        name="sample",
        scope="table",
        kind=SHARE,
        section=WHAT,
        commands=("plan", "run"),
        effect="selects",
        field="selection.sample",
        owner=Selection,
        planned=True,
        record="sample",
        help="Only a sample of about this size, for instance 1%, the same one each time: rows of "
        "some keys with --sample-by, else whole work units. 100% is everything.",
    ),
    Option(
        name="sample-by",
        scope="table",
        kind=Kind("COLUMN"),
        section=WHAT,
        commands=("plan", "run"),
        effect="selects",
        field="selection.sample_by",
        owner=Selection,
        empty=False,
        planned=True,
        record="sample_by",
        help="Sample by the values of this column: the same values on every table and source that "
        "has them, so that the samples of several tables join.",
    ),
    Option(
        name="limit-rows",
        scope="table",
        kind=COUNT,
        section=WHAT,
        commands=("plan", "run"),
        effect="selects",
        field="selection.limit_rows",
        owner=Selection,
        planned=True,
        record="limit_rows",
        help="At most this many rows, whichever come first. One worker reads them.",
    ),
    Option(
        name="part",
        kind=PART,
        in_files=False,
        section=WHAT,
        commands=("run",),
        effect="selects",
        field="selection.part",
        owner=Selection,
        help="Read only part K of N of the work units of a plan file, at the plan's snapshot; the "
        "other parts run elsewhere, and `unloader merge` puts the parts together. auto/N takes K "
        "from a job array of Slurm (numbered from 1), Kubernetes or AWS Batch.",
    ),
    Option(
        name="as-text",
        scope="table",
        kind=GLOBS,
        multiple=True,
        section=WHAT,
        commands=("describe", *READING),
        effect="changes",
        field="selection.as_text",
        owner=Selection,
        planned=True,
        record="as_text",
        help="Write the columns that match one of these patterns as exact text. Separated by "
        "commas, or repeated.",
    ),
)

OPTIONS = (
    PASSWORD_FILE,
    PASSWORD_KEYRING,
    PASSWORD_CREDENTIAL,
    PASSWORD_PROMPT,
    *SELECTION,
)
