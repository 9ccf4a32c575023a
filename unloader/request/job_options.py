"""Options of a run that are not fields of its request, and the options of the file formats."""

from __future__ import annotations

from functools import partial

from unloader.model.request import TWO_ROUTES
from unloader.request import value_types as kinds
from unloader.request.option import (
    ANSWERING,
    ONE_VALUE,
    PASSWORDS,
    PLANNING,
    READING,
    WATCHED,
    Option,
)
from writers.model import ParquetFormat, TextFormat

DIALECTS = ("rfc4180", "tsv", "excel", "mysql", "postgres", "sqlldr-var")
"""The dialects of `writers.text.dialects`, repeated so that a help page need not import it."""

_RUN = "unloader run duckdb:///data/sales.db --table ORDERS"
_BY_SCHEMA = (
    "unloader run oracle://etl@db01:1521/SALES --schema SALES \\\n"
    "    --to '/extract/{schema}.{table}'"
)
_FROM_FILE = (
    "unloader run oracle://etl@db01:1521/SALES --tables-from tables.txt \\\n"
    "    --to '/extract/{schema}.{table}'"
)
_PARQUET_KEY = f"{_RUN} \\\n    --to orders --format parquet --parquet-key-file parquet.key"
_DECRYPT = f"{_RUN} --to orders \\\n    --encrypt-to @recipients.txt --decrypt-with identity.txt"
_MASK_KEY = f"{_RUN} --to orders \\\n    --mask EMAIL=hmac --mask-key file:mask.key"

_passwords = partial(Option, group="Source", commands=PASSWORDS, effect="unrecorded", kept=False)
_tables = partial(
    Option, group="Tables", commands=PLANNING, effect="changes", scope="table", planned=True
)
_whole = partial(Option, group="Tables", commands=PLANNING, effect="none")
_destination = partial(Option, group="Output", commands=("plan",), effect="changes", scope="route")
_to = partial(_destination, kind=kinds.PLACES, common=True)
_encryption = partial(
    Option, group="Encryption", commands=("plan", "run", "sweep"), effect="changes", scope="route"
)
_key = partial(
    _encryption, commands=("plan", "resume", "run", "sweep", "verify"), effect="unrecorded"
)
_transforms = partial(
    Option,
    group="Transforms",
    commands=READING,
    effect="changes",
    scope="route",
    planned=True,
    empty=True,
)
_text = partial(
    Option, group="CSV", commands=READING, effect="changes", scope="route", formats=("csv",)
)
_routes = partial(
    Option, group="Routes", commands=PLANNING, effect="changes", kept=False, empty=True
)
_restart = partial(Option, group="Safety", commands=("run",), effect="unrecorded")
_operations = partial(Option, group="Operations", commands=("run", "resume"), effect="unrecorded")
_by_dialect = partial(_text, empty=True, default_text="by dialect")
_marked = partial(_by_dialect, not_for={"fixed": "such records hold values alone"})
_parquet = partial(
    Option, group="Parquet", commands=READING, effect="changes", scope="route", formats=("parquet",)
)
_program = partial(Option, group="Options", commands=("",))
_resume = partial(Option, group="Resume", commands=("resume",))
_display = partial(Option, group="Display", commands=WATCHED)


class JobOptions:
    """Options that are not fields of a record, in the order of the help pages."""

    debug = _program()
    """Show tracebacks and debug messages."""

    new_snapshot = _resume(common=True)
    """Unload everything again at a new snapshot. Finished work units are dropped."""
    parallelism = _resume(
        kinds.PARALLELISM, planned=True, default_text="as in the run", common=True
    )
    """Number of workers for the rest of the run. auto is the number of usable cores. Only the
    command line sets it, and not a variable."""
    cluster = _resume(kinds.CLUSTER, default_text="as in the run", example="tcp://scheduler:8786")
    """Cluster for the rest of the run: tcp://HOST:PORT, tls://HOST:PORT, local:N or none. none
    reads the rest on this machine."""
    cluster_security = _resume(
        kinds.path("PATH"),
        default_text="as in the run",
        example="certificates --cluster tls://scheduler:8786",
    )
    """Certificates for a tls:// cluster. PATH is a directory with ca.pem, cert.pem and key.pem, or
    a TOML file with the paths ca, cert and key."""

    password_file = _passwords(kinds.FILE, empty=True, common=True, example="~/.secrets/db01")
    """Read the password from FILE. The password is its first line. FILE must not be readable for
    other users. This option takes precedence over UNLOADER_PASSWORD."""
    password_keyring = _passwords(kinds.Kind("SERVICE[/USER]"), example="unloader/etl")
    """Read the password from the keyring of the system, where it is stored for SERVICE and USER.
    The default USER is the user in the URL."""
    password_credential = _passwords(kinds.Kind("NAME"), example="db01-password")
    """Read the password from the systemd credential NAME. The credential unloader-password is used
    without this option."""
    password_prompt = _passwords()
    """Ask for the password. This needs a terminal."""

    schema = _tables(kinds.SCHEMAS, example=_BY_SCHEMA)
    """Schema, or a pattern of schemas. Tables without a schema are searched there. Without --table,
    all its tables are unloaded. Can be repeated."""
    exclude_table = _tables(kinds.TABLES, example=f"{_BY_SCHEMA} --exclude-table 'TMP_*'")
    """Exclude the tables that match this name or pattern. Can be repeated."""
    tables_from = _tables(kinds.FILE, example=_FROM_FILE)
    """Also read tables from FILE, with a name or a pattern on each line."""
    table_kinds = _tables(kinds.GLOBS, example=f"{_BY_SCHEMA} --table-kinds view")
    """Kinds that a pattern also matches: view, external, temporary. A pattern always matches tables
    and materialized views. A full name can be of any kind. Separate several with commas, or repeat
    the option."""
    allow_unmatched = _tables(example=f"{_BY_SCHEMA} --allow-unmatched")
    """Log a pattern, a schema or an exclusion that matches nothing. Without this option, that is an
    error."""
    publish = _whole(
        kinds.choice("table", "run"), example=f"{_BY_SCHEMA} --publish run", default="table"
    )
    """Give the files of each table their final names when that table is complete (table), or when
    all tables are complete (run)."""
    on_table_failure = _whole(
        kinds.choice("stop", "continue"),
        example=f"{_BY_SCHEMA} --on-table-failure continue",
        default="stop",
    )
    """When a table fails: end the run (stop), or unload the other tables (continue). In both cases
    the exit status is not 0."""

    output = Option(
        kinds.FILE,
        group="Output",
        commands=("plan",),
        kept=False,
        empty=True,
        common=True,
        example="plan.json",
    )
    """Write the plan to FILE. Unload it with `unloader run FILE`."""
    to = (
        _to(
            commands=("run",),
            required=True,
            text="Output directory, object store or table. A missing directory is created. Files "
            "are spread over several directories. The name may have the fields {schema} {table} "
            "{date} {run_id}. Object stores are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX and "
            "az://CONTAINER/PREFIX (pip install 'unloader[cloud]'). Their options follow a "
            "question mark: ?endpoint=URL. Tables are iceberg://CATALOG/NAMESPACE.TABLE, "
            "delta:PLACE and ducklake:CATALOG/SCHEMA.TABLE (pip install 'unloader[iceberg]', "
            "'unloader[delta]' or 'unloader[duckdb]'). - is standard output. pipe:PATH is a "
            "named pipe. null: drops all output, to measure a run without its destination. "
            "null:rows drops the rows before they are encoded. Separate several with commas, or "
            "repeat the option.",
        ),
        _to(text="Show where each work unit would go. The values are the same as for run."),
        _to(
            commands=("codecs",),
            default_text="the current directory",
            text="Destination of the run. The speed of its disk is measured. No file remains "
            "there.",
        ),
        _to(
            commands=("sweep",),
            default_text="none",
            text="Directory for the files of the sweep. Each point has a separate directory below "
            "it, which is removed. A directory that holds a run is refused. null: and null:rows "
            "drop the output.",
        ),
        _to(
            commands=("preflight",),
            text="Directories of the run. Each is measured separately, and then all together. No "
            "file remains there. A missing directory is not created: the directory above it is "
            "measured.",
        ),
    )
    format = _destination(
        kinds.choice("csv", "parquet"), commands=ONE_VALUE, common=True, default="csv"
    )
    """Format of the output files."""
    compression = _destination(
        kinds.COMPRESSION,
        commands=ONE_VALUE,
        default_text="none for csv, zstd for parquet",
        common=True,
        example="zstd:3",
    )
    """Codec, such as zstd, zstd:3 or gzip. All codecs: none, gzip, zstd, lz4, snappy (Parquet
    only). fastest, balanced and smallest measure a sample of the rows and choose."""

    encrypt_to = _encryption(kinds.RECIPIENTS, example="@recipients.txt")
    """Encrypt text with age for this recipient: a public key age1..., or @FILE with a key on each
    line. Separate several with commas, or repeat the option."""
    parquet_key_file = _key(kinds.FILE, example=_PARQUET_KEY)
    """Encrypt and read Parquet files with the key in FILE. The key is 16, 24 or 32 bytes in base64.
    FILE must not be readable for other users. Without this option, the key comes from
    UNLOADER_PARQUET_KEY or from the systemd credential unloader-parquet-key."""
    parquet_key_name = _encryption(
        kinds.Kind("NAME"),
        default_text="none",
        example=f"{_PARQUET_KEY} \\\n    --parquet-key-name orders-2026",
    )
    """Name of the Parquet key. The manifest records it for the readers of the files."""
    decrypt_with = _key(kinds.FILE, example=_DECRYPT)
    """Read encrypted text with the private keys in FILE, which age-keygen makes. FILE must not be
    readable for other users. Only a check of the values needs it (full, source)."""

    expression = _transforms(kinds.EXPRESSIONS, example="'TOTAL=AMOUNT * 1.19'")
    """Set a column to an expression over the row, in the SQL of DuckDB. A new column is added after
    the last one. Repeat the option for more columns. An expression can also use the columns that
    earlier expressions have set."""
    constant = _transforms(kinds.CONSTANTS, example="SITE=berlin")
    """Set a column to one text in every row. --cast changes its type. Can be repeated."""
    cast = _transforms(kinds.CASTS, example="'AMOUNT=decimal(12,2)'")
    """Change the type of a column, such as int64, decimal(12,2), date, timestamp[us] or string. A
    value that the type cannot hold exactly stops the run. Can be repeated."""
    mask = _transforms(kinds.MASKS, example="EMAIL=hmac")
    """Mask a column, such as EMAIL=hmac or 'CARD=ff1,others=keep'. Methods with their parameters:
    hmac (key, encoding, length), tokenize (key, form, domain), redact (value), truncate
    (characters), truncate-date (to), shift-date (by, days, key, domain), ff1 (key, alphabet,
    digits, others, tweak). Can be repeated."""
    rename = _transforms(kinds.RENAMES, example="CUST=CUSTOMER_ID")
    """Change the name of a column in the files. All options above use the old name. Can be
    repeated."""
    output_columns = _transforms(kinds.NAMES, effect="selects", example="ID,AMOUNT")
    """Write only these columns, in this order, by their names in the files. The options above can
    still use the other columns. Separate several with commas, or repeat the option."""
    mask_key = _transforms(
        kinds.KEY_PLACES,
        commands=(*READING, "resume"),
        effect="unrecorded",
        planned=False,
        default_text="UNLOADER_MASKING_KEY_NAME, or the systemd credential "
        "unloader-masking-key-NAME",
        example=_MASK_KEY,
    )
    """Place of the key of masks: file:PATH, env:VARIABLE, keyring:SERVICE/USER or credential:NAME.
    NAME=PLACE is the key for masks with key=NAME. PLACE alone is the key for masks without key=.
    Can be repeated."""

    dialect = _text(kinds.choice(*DIALECTS), default=DIALECTS[0])
    """Named set of the options below. Single options override it."""
    fixed = _text()
    """Write records of fixed width. Each column has a fixed number of bytes, padded with blanks."""
    width = _text(
        kinds.WIDTHS, empty=True, default_text="by the column's type", example="NAME=40 --fixed"
    )
    """With --fixed: width of the field of a column in bytes. In a job file it can also be a table.
    Separate several with commas, or repeat the option."""

    route = _routes(kinds.ROUTES, in_files=False, example=TWO_ROUTES)
    """One of several outputs of one scan, with separate options, such as
    'lake:to=/lake/orders,format=parquet,columns="ID,NAME"'. Put double quotes around a value with a
    comma; "" is a quote in it. Options that a route does not set are the same for all routes.
    Repeat the option for each output."""

    resume_or_start = _restart(common=True, not_for={"streams": "its output is not kept"})
    """Resume a run in DEST, or start a new one. Only an interrupted run of the same job is resumed.
    A new run starts if DEST has no such run, or if its snapshot cannot be read any more."""
    skip_finished = _restart(
        not_for={"streams": "its output is not kept"}, example="--resume-or-start"
    )
    """With --resume-or-start: do nothing if the run of the same job in DEST is finished. The exit
    status is 0. The files are not checked. For a lakehouse table, the run must have been committed
    today (UTC). Refused with --overwrite, with --part, and with {run_id} in --to."""

    report = _operations(kinds.FILE, example="run.html")
    """Write an HTML page on the run to FILE when the run is complete. It shows speed, timelines,
    stages and load, and needs no network. If it cannot be written, the exit status is 10."""
    metrics_file = _operations(kinds.FILE, example="/var/lib/node_exporter/orders.prom")
    """Write the figures of the run to FILE during the run and at its end, for the textfile
    collector of Prometheus. The name must end with .prom."""
    trace = _operations(kinds.choice("none", "otlp"), default="none")
    """Send OpenTelemetry traces by OTLP over HTTP. The variables OTEL_* set the destination. The
    run has a span, and so does each attempt at a work unit."""
    on_success = _operations(kinds.Kind("CMD"), expands=False, example="./load.sh")
    """Run this command with /bin/sh when the run is complete. The variables UNLOADER_RUN_* describe
    the run. If the command fails, the exit status is 10."""
    on_failure = _operations(kinds.Kind("CMD"), expands=False, example="./alert.sh")
    """Run this command with /bin/sh when the run has failed or was stopped. The exit status of the
    run does not change."""
    hook_timeout = _operations(kinds.SECONDS, example="60 --on-success ./load.sh", default=300.0)
    """Seconds after which the command of --on-success or --on-failure is ended. 0 sets no limit."""
    hook_env = _operations(kinds.VARIABLES, empty=True, example="PGHOST --on-success ./load.sh")
    """Pass this environment variable to the command of --on-success or --on-failure. Without this
    option, the command gets PATH, HOME, the locale and similar variables, and the variables
    UNLOADER_RUN_*. Separate several with commas, or repeat the option."""

    units = _display(commands=("plan",), kept=False)
    """Show all work units with their statements."""
    progress = _display(kinds.choice("auto", "bar", "log", "none"), example="log", default="auto")
    """Progress on stderr. auto is a bar on a terminal, and a log elsewhere."""
    log_format = _display(kinds.choice("text", "json"), default="text")
    """Write the log as text, or as a JSON object on each line."""
    log_interval = _display(kinds.SECONDS, default=30.0)
    """Seconds between two lines of progress in the log."""
    json = _display(commands=ANSWERING, kept=False)
    """Write the result to stdout as one JSON object."""
    quiet = _display(commands=ANSWERING, kept=False)
    """Write only errors, and the result with --json."""


class TextFilesOptions:
    owner = TextFormat
    delimiter = _marked(kinds.TEXT, example="';'")
    r"""Text between two values. Escapes: \xHH \t \n \r \\."""
    enclosure = _marked(kinds.TEXT, example='"\'"')
    """One or more characters around a value. Escapes as for --delimiter."""
    enclose = _marked(example="strings")
    """Values to enclose: where needed, all text and dates, all except NULL, or none."""
    escape = _marked(example="backslash")
    """How an enclosure inside a value is written. none refuses such a value."""
    null = _by_dialect(kinds.TEXT, example="'\\N'")
    r"""Text for NULL, never enclosed. Escapes as for --delimiter. \N is kept as it is."""
    eol = _by_dialect(kinds.END_OF_LINE, example="crlf")
    """End of a record. Escapes as for --delimiter."""
    header = _marked(opposite=True)
    """Write the column names as the first record of each file."""
    trailing_delimiter = _marked(opposite=True)
    """Also write a delimiter after the last value."""
    record_length_digits = _marked(kinds.whole(0, 20), name="record-length", metavar="DIGITS")
    """Write the length of each record in bytes before the record, with this many digits. 0 writes
    no length."""
    encoding = _by_dialect(kinds.ENCODING, example="iso-8859-1")
    """Character encoding of the files, by the names of Python."""
    substitute = _text(
        kinds.TEXT,
        empty=True,
        default_text="the value is refused",
        example="'?' --encoding iso-8859-1",
    )
    """Text that replaces each character that --encoding does not have. Escapes as for
    --delimiter."""
    date_format = _by_dialect(kinds.Kind("FORMAT"), example="YYYYMMDDHH24MISS")
    """Format of dates, as in TO_CHAR of Oracle, such as YYYYMMDDHH24MISS."""
    timestamp_format = _by_dialect(kinds.Kind("FORMAT"), example="'YYYY-MM-DD HH24:MI:SS.FF6'")
    """Format of timestamps, such as YYYY-MM-DD"T"HH24:MI:SS.FF6."""
    timestamp_tz_format = _by_dialect(
        kinds.Kind("FORMAT"), example="'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM'"
    )
    """Format of timestamps with a time zone, such as YYYY-MM-DD HH24:MI:SS TZH:TZM."""
    decimal_separator = _by_dialect(kinds.Kind("TEXT"), example="',' --delimiter ';'")
    """Character between the integer and the fraction of a number."""
    boolean = _by_dialect(name="boolean-format")
    """Words for true and false."""
    binary = _by_dialect(name="binary-format")
    r"""Form of binary values. prefixed-hex is \x6869."""
    guard_formulas = _text()
    """Put ' before texts and column names that a spreadsheet takes for a formula. They begin with =
    + - @, a tab or an end of line. This changes values."""


class ParquetFilesOptions:
    owner = ParquetFormat
    row_group_rows = _parquet(kinds.COUNT, example="500k")
    """Maximum number of rows in a row group."""
    row_group_bytes = _parquet(kinds.SIZE_FROM_1)
    """Size in memory at which a row group ends, in bytes."""
    version = _parquet(kinds.choice("1.0", "2.4", "2.6"), name="parquet-version")
    """Version of the format. It decides which types can be used."""
    data_page_version = _parquet(kinds.choice("1.0", "2.0"))
    """Version of the data pages. All readers support 1.0."""
    dictionary = _parquet(opposite=True)
    """Write dictionary pages for columns whose values repeat."""
    statistics = _parquet(opposite=True)
    """Write the minimum and maximum of each column, for each row group and page."""
    byte_stream_split = _parquet(opposite=True)
    """Store floating-point numbers byte by byte. Store other numbers in this way where the file
    becomes smaller. Spark 3 and 4.0 cannot read that."""
    bloom_filters = _parquet(kinds.NAMES, empty=True, name="bloom-filter", example="ID")
    """Write a Bloom filter for these columns. This needs pyarrow 24. Separate several with commas,
    or repeat the option."""
    sorted_by = _parquet(kinds.ORDER, empty=True, example="'DAY,ID desc'")
    """Order of the rows in each file, such as DAY,ID desc. The file records it. If the rows come in
    another order, the run fails. Separate several with commas, or repeat the option."""
