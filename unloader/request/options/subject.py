"""Options on the rows to unload, and on the password of the source."""

from __future__ import annotations

from msgspec.structs import replace

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
WHAT = "Selection"

_QUERY = "unloader run duckdb:///data/sales.db --query 'SELECT ID FROM ORDERS' \\\n   "
_QUERY_NAME = f"{_QUERY} --query-name ids --to '/extract/{{table}}'"
_PARTITION = (
    "unloader run oracle://etl@db01/SALES --table ORDERS --to /extract \\\n    --partition 'P2026*'"
)

PASSWORD_FILE = Option(
    name="password-file",
    kind=PathText("FILE", only="file"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    help=(
        "Read the password from FILE. The password is its first line. FILE must not be "
        "readable for other users. This option takes precedence over UNLOADER_PASSWORD."
    ),
    common=True,
    example="~/.secrets/db01",
)

PASSWORD_KEYRING = Option(
    name="password-keyring",
    kind=Kind("SERVICE[/USER]"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    empty=False,
    help=(
        "Read the password from the keyring of the system, where it is stored for SERVICE and "
        "USER. The default USER is the user in the URL."
    ),
    example="unloader/etl",
)

PASSWORD_CREDENTIAL = Option(
    name="password-credential",
    kind=Kind("NAME"),
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    empty=False,
    help=(
        "Read the password from the systemd credential NAME. The credential unloader-password "
        "is used without this option."
    ),
    example="db01-password",
)

PASSWORD_PROMPT = Option(
    name="password-prompt",
    kind=FLAG,
    section=SOURCE,
    commands=PASSWORDS,
    effect="unrecorded",
    kept=False,
    help="Ask for the password. This needs a terminal.",
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
    help="Table or view: NAME or SCHEMA.NAME. Put double quotes around a name that is not plain.",
    common=True,
    example="ORDERS",
)

TABLE = replace(
    ONE_TABLE,
    kind=TABLES,
    multiple=True,
    commands=("plan", "run"),
    help=(
        "Table, view or pattern such as 'SALES.*'. Write NAME or SCHEMA.NAME, with double "
        "quotes around a name that is not plain. Repeat the option for several tables. All "
        "tables are read at one snapshot."
    ),
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
        help="Unload the result of this query. It is used instead of --table.",
        common=True,
        example=f"{_QUERY} --to ids",
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
        help=(
            "Name for the result of --query. It replaces {table} in names of directories and "
            "files. The default is query."
        ),
        example=_QUERY_NAME,
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
        help=(
            "Only these columns, in this order. A pattern such as addr_* selects all columns that "
            "match. A text in double quotes is a name, and not a pattern. Separate several with "
            "commas, or repeat the option."
        ),
        example="ID,AMOUNT",
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
        help=(
            "All columns except these names or patterns. Separate several with commas, or repeat "
            "the option."
        ),
        example="'ADDR_*'",
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
        help="Only the rows that meet this condition. The database evaluates it.",
        common=True,
        example="'AMOUNT > 100'",
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
        help=(
            "Only the partitions that match one of these patterns. Each pattern must match a "
            "partition. A partition includes its subpartitions: YEAR, YEAR/MONTH. Separate several "
            "with commas, or repeat the option."
        ),
        example=_PARTITION,
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
        help=(
            "Only a sample of about this size, such as 1%. The sample is the same each time. "
            "Without --sample-by it consists of whole work units. With --sample-by it has, for "
            "some values of the column, all rows with these values. 100% is everything."
        ),
        example="1%",
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
        help=(
            "Sample by the values of this column. Every table and source that has the column gives "
            "the same values, so that samples of several tables can be joined."
        ),
        example="CUSTOMER_ID --sample 1%",
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
        help="At most this many rows: the first that the database returns. One worker reads them.",
        example="1000",
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
        help=(
            "Read only part K of N of the work units in a plan file, at the snapshot of the plan. "
            "The other parts run elsewhere, and `unloader merge` combines the parts. auto/N takes "
            "K from a job array of Slurm (numbered from 1), Kubernetes or AWS Batch."
        ),
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
        help=(
            "Write the columns that match one of these patterns as exact text. Separate several "
            "with commas, or repeat the option."
        ),
        example="'*_CODE'",
    ),
)

OPTIONS = (
    PASSWORD_FILE,
    PASSWORD_KEYRING,
    PASSWORD_CREDENTIAL,
    PASSWORD_PROMPT,
    *SELECTION,
)
