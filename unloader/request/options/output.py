"""Options on where the output goes, and on its files: format, compression, names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unloader.model import OutputOptions, PartitionBy
from unloader.request.options.kinds import (
    FLAG,
    PARTITION,
    PLACES,
    RECIPIENTS,
    SECONDS,
    SIZE,
    SIZE_FROM_1,
    Choice,
    Kind,
    PathText,
    Whole,
)
from unloader.request.options.option import ONE_VALUE, READING, Option, default_of
from unloader.request.options.parsing import COMPRESSION, MODE, OWNER_GROUP
from unloader.request.settings import parse_partition
from writers.model import ParquetFormat, TextFormat

OUTPUT = "Output"


def _partitions(items: Sequence[str]) -> tuple[PartitionBy, ...]:
    return tuple(PartitionBy(**parse_partition(item)) for item in items)


FORMAT = "output.format"
"""Path of the files' format in a request."""

TO = Option(
    name="to",
    scope="route",
    kind=PLACES,
    multiple=True,
    required=True,
    section=OUTPUT,
    commands=("run",),
    effect="changes",
    empty=False,
    help="Output directory, created if it is missing; files are spread over several directories. "
    "Its name may have the fields {schema} {table} {date} {run_id}. "
    "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX and az://CONTAINER/PREFIX are object stores "
    "(pip install 'unloader[cloud]'), with options behind a question mark: ?endpoint=URL. "
    "iceberg://CATALOG/NAMESPACE.TABLE, delta:PLACE and ducklake:CATALOG/SCHEMA.TABLE are tables "
    "that the files become part of (pip install 'unloader[iceberg]', 'unloader[delta]' or "
    "'unloader[duckdb]'). "
    "- is standard output, pipe:PATH a named pipe, pipe:DIR/{unit}.csv one named pipe for "
    "each work unit; null: drops everything, to measure a run without its destination, and "
    "null:rows drops the rows before they are encoded. Separated by commas, or repeated.",
)

DESTINATION = (
    Option(
        name="output",
        kind=PathText("FILE", only="file"),
        section=OUTPUT,
        commands=("plan",),
        effect="unrecorded",
        kept=False,
        help="Write the plan to FILE, for `unloader run FILE`.",
    ),
    TO,
    replace(
        TO,
        commands=("plan",),
        required=False,
        help="Show where each work unit would go. Takes the same values as for run.",
    ),
    replace(
        TO,
        commands=("codecs",),
        required=False,
        default_text="the current directory",
        help="Destination of the run. The speed of its disk is measured; nothing stays there.",
    ),
    replace(
        TO,
        commands=("sweep",),
        required=False,
        default_text="none",
        help="Where the points write. Each has a directory of its own below it, which is removed. "
        "A directory that holds a run is refused. null: and null:rows drop the output.",
    ),
    replace(
        TO,
        commands=("preflight",),
        required=False,
        help="Directories of the run. Each is measured by itself, and all together. Nothing stays "
        "there. A directory that is missing is not made: the one above it is measured.",
    ),
    Option(
        name="sample",
        kind=SIZE_FROM_1,
        section=OUTPUT,
        commands=("codecs", "preflight"),
        effect="unrecorded",
        default=32 * 1024 * 1024,
        help="Size of the sample in memory, in bytes. It is read from up to five work units.",
    ),
    Option(
        name="overwrite",
        scope="route",
        kind=FLAG,
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.overwrite",
        owner=OutputOptions,
        kept=False,
        record="overwrite",
        not_for={
            "streams": "there is nothing to replace",
            "tables": "use --save-mode overwrite, which replaces the rows of the table",
        },
        help="Replace an earlier run in the destination as soon as the new run is complete. This "
        "removes its manifest, the files listed in the manifest, and what a broken run left "
        "in _run. Other files are never touched; if one has a name of the new run, the run "
        "fails.",
    ),
    Option(
        name="save-mode",
        scope="route",
        kind=Choice("create", "append", "overwrite"),
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.save_mode",
        owner=OutputOptions,
        default_text="create",
        help="What becomes of the table of --to: create makes it and refuses one that is there, "
        "append adds rows to it, overwrite replaces its rows. All of it is one commit, once the "
        "run is verified.",
    ),
    Option(
        name="replace-where",
        scope="route",
        kind=Kind("CONDITION"),
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.replace_where",
        owner=OutputOptions,
        default_text="all rows",
        empty=False,
        help="With --save-mode overwrite: replace the rows that meet CONDITION, such as "
        "\"DAY = '2026-01-31'\". Whole files are replaced; one that holds other rows as well is "
        "refused.",
    ),
    Option(
        name="branch",
        scope="route",
        kind=Kind("NAME"),
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.branch",
        owner=OutputOptions,
        default_text="what everybody reads",
        empty=False,
        help="Commit to this branch of an Iceberg table. It is made if it is missing. Its rows can "
        "be checked before the branch is published.",
    ),
    Option(
        name="partition-by",
        scope="route",
        kind=PARTITION,
        multiple=True,
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.partition_by",
        shape=_partitions,
        owner=OutputOptions,
        empty=False,
        help="Partition the Iceberg table that is made: a column, or year, month, day or hour of "
        "one, such as day(CREATED), or truncate(4, NAME). No row is moved for that: each file has "
        "to hold rows of one partition. May be repeated.",
    ),
    Option(
        name="keep",
        scope="route",
        kind=Whole(1),
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.keep",
        owner=OutputOptions,
        default_text="all",
        not_for={
            "streams": "it keeps nothing",
            "objects": "give the bucket a lifecycle rule, or remove old prefixes yourself",
            "tables": "let the catalog expire snapshots",
        },
        help="Number of finished runs that stay, the new one included. --to needs {date} or "
        "{run_id}. Once the new run is verified, older runs of the same table are removed, unless "
        "somebody has changed or added a file there.",
    ),
    Option(
        name="latest-link",
        scope="route",
        kind=Kind("NAME"),
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.latest_link",
        owner=OutputOptions,
        default_text="none",
        empty=False,
        not_for={
            "streams": "it has no directory",
            "objects": "it has no links; read the name of the run from --on-success or --json",
            "tables": "readers find its files through the catalog",
        },
        help="Name of a symbolic link beside the directory of the run. It leads to the newest run, "
        "and is switched atomically once that run is complete.",
    ),
    Option(
        name="pipe-timeout",
        scope="route",
        kind=SECONDS,
        section=OUTPUT,
        commands=("plan", "run"),
        effect="none",
        field="output.pipe_seconds",
        owner=OutputOptions,
        help="Longest wait in seconds for the reader of a pipe of --to; 0 sets no limit.",
    ),
)


def _layout(name: str) -> TextFormat | ParquetFormat:
    return ParquetFormat() if name == "parquet" else TextFormat()


FILES = (
    Option(
        name="format",
        scope="route",
        kind=Choice("csv", "parquet"),
        section=OUTPUT,
        commands=ONE_VALUE,
        effect="changes",
        field=FORMAT,
        shape=_layout,
        default="csv",
        help="Format of the output files.",
    ),
    Option(
        name="compression",
        scope="route",
        kind=COMPRESSION,
        section=OUTPUT,
        commands=ONE_VALUE,
        effect="changes",
        default_text="none for csv, zstd for parquet",
        help="Codec none, gzip, zstd, lz4 or snappy (Parquet only), with a level if it has one; or "
        "fastest, balanced or smallest, which measure a sample of the rows and choose.",
    ),
    Option(
        name="file-size",
        scope="route",
        kind=SIZE,
        section=OUTPUT,
        commands=READING,
        effect="changes",
        field="output.file_size_bytes",
        owner=OutputOptions,
        record="file_size",
        not_for={"streams": "it is not cut into files"},
        help="Start a new file after this many bytes (64MiB, 1GB). 0 never does.",
    ),
    Option(
        name="file-per",
        scope="route",
        kind=Choice("unit", "table"),
        section=OUTPUT,
        commands=READING,
        effect="changes",
        field="output.file_per",
        owner=OutputOptions,
        record="file_per",
        not_for={"streams": "it is a pipe for each work unit"},
        help="One file for each work unit, or one for the table.",
    ),
    Option(
        name="file-name",
        scope="route",
        kind=Kind("TEMPLATE"),
        section=OUTPUT,
        commands=READING,
        effect="changes",
        field="output.file_name",
        owner=OutputOptions,
        default_text=str(default_of(OutputOptions, "file_name")),
        empty=False,
        record="file_name",
        not_for={"streams": "it has a name already"},
        help="Names of the files, from {schema} {table} {partition} {unit} {part} {ext} {date}.",
    ),
    Option(
        name="checksum",
        scope="route",
        kind=Choice("xxh3", "crc32c", "sha256"),
        section=OUTPUT,
        commands=READING,
        effect="changes",
        field="output.checksum",
        owner=OutputOptions,
        record="checksum",
        help="Checksum of each file in the manifest. crc32c is that of object stores.",
    ),
)

RIGHTS = (
    Option(
        name="mode",
        scope="route",
        kind=MODE,
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.mode",
        owner=OutputOptions,
        default_text="as the umask has it",
        not_for={
            "streams": "it has its rights already",
            "objects": "its rights are those of the bucket",
        },
        help="Rights of the files and of the manifest, such as 640, whatever the umask. "
        "Directories that the run makes can be entered by those who may read: 750.",
    ),
    Option(
        name="owner-group",
        scope="route",
        kind=OWNER_GROUP,
        section=OUTPUT,
        commands=("plan", "run"),
        effect="changes",
        field="output.owner_group",
        owner=OutputOptions,
        default_text="this user",
        empty=False,
        not_for={
            "streams": "it has an owner already",
            "objects": "its owner is the account of the bucket",
        },
        help="Owner and group of the files, the manifest and the directories that the run makes: "
        "names or numbers, either may be left out (:dba). Another owner needs root.",
    ),
)

ENCRYPTION = "Encryption"

PARQUET_KEY_FILE = Option(
    name="parquet-key-file",
    scope="route",
    kind=PathText("FILE", only="file"),
    section=ENCRYPTION,
    commands=("plan", "resume", "run", "sweep", "verify"),
    effect="unrecorded",
    empty=False,
    help="Encrypt Parquet files, and read encrypted ones, with the key in FILE: 16, 24 or 32 bytes "
    "in base64. No other user may read FILE. Without it the key in UNLOADER_PARQUET_KEY is used, "
    "or the systemd credential unloader-parquet-key.",
)

DECRYPT_WITH = Option(
    name="decrypt-with",
    scope="route",
    kind=PathText("FILE", only="file"),
    section=ENCRYPTION,
    commands=("plan", "resume", "run", "sweep", "verify"),
    effect="unrecorded",
    empty=False,
    help="Read encrypted text with the private keys in FILE, which age-keygen has made and no "
    "other user may read. Only a check of the values needs it (full, source).",
)

ENCRYPTING = (
    Option(
        name="encrypt-to",
        scope="route",
        kind=RECIPIENTS,
        multiple=True,
        section=ENCRYPTION,
        commands=("plan", "run", "sweep"),
        effect="changes",
        empty=False,
        help="Encrypt text with age for this recipient: a public key age1..., or @FILE with one on "
        "each line. Separated by commas, or repeated.",
    ),
    PARQUET_KEY_FILE,
    Option(
        name="parquet-key-name",
        scope="route",
        kind=Kind("NAME"),
        section=ENCRYPTION,
        commands=("plan", "run", "sweep"),
        effect="changes",
        empty=False,
        default_text="none",
        help="Name of the Parquet key. The manifest tells it to who reads the files.",
    ),
    DECRYPT_WITH,
)

OPTIONS = (*DESTINATION, *FILES, *RIGHTS, *ENCRYPTING)
