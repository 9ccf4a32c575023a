"""Options on where the output goes, and on its files: format, compression, names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

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

_RUN = "unloader run duckdb:///data/sales.db --table ORDERS"
_LAKE = f"{_RUN} \\\n    --to iceberg://lake/sales.orders"
_LAKE_APPEND = f"{_LAKE} --save-mode append"
_LAKE_OVERWRITE = f"{_LAKE} --save-mode overwrite \\\n    --replace-where \"DAY = '2026-01-31'\""
_DAILY = f"{_RUN} \\\n    --to '/extract/{{table}}/{{date}}'"
_PARQUET_KEY = f"{_RUN} \\\n    --to orders --format parquet --parquet-key-file parquet.key"
_DECRYPT = f"{_RUN} --to orders \\\n    --encrypt-to @recipients.txt --decrypt-with identity.txt"


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
    help=(
        "Output directory, object store or table. A missing directory is created. Files are "
        "spread over several directories. The name may have the fields {schema} {table} {date} "
        "{run_id}. Object stores are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX and "
        "az://CONTAINER/PREFIX (pip install 'unloader[cloud]'). Their options follow a "
        "question mark: ?endpoint=URL. Tables are iceberg://CATALOG/NAMESPACE.TABLE, "
        "delta:PLACE and ducklake:CATALOG/SCHEMA.TABLE (pip install 'unloader[iceberg]', "
        "'unloader[delta]' or 'unloader[duckdb]'). - is standard output. pipe:PATH is a named "
        "pipe. null: drops all output, to measure a run without its destination. null:rows "
        "drops the rows before they are encoded. Separate several with commas, or repeat the "
        "option."
    ),
    common=True,
)

DESTINATION = (
    Option(
        name="output",
        kind=PathText("FILE", only="file"),
        section=OUTPUT,
        commands=("plan",),
        effect="unrecorded",
        kept=False,
        help="Write the plan to FILE. Unload it with `unloader run FILE`.",
        common=True,
        example="plan.json",
    ),
    TO,
    replace(
        TO,
        commands=("plan",),
        required=False,
        help="Show where each work unit would go. The values are the same as for run.",
    ),
    replace(
        TO,
        commands=("codecs",),
        required=False,
        default_text="the current directory",
        help="Destination of the run. The speed of its disk is measured. No file remains there.",
    ),
    replace(
        TO,
        commands=("sweep",),
        required=False,
        default_text="none",
        help=(
            "Directory for the files of the sweep. Each point has a separate directory below it, "
            "which is removed. A directory that holds a run is refused. null: and null:rows drop "
            "the output."
        ),
    ),
    replace(
        TO,
        commands=("preflight",),
        required=False,
        help=(
            "Directories of the run. Each is measured separately, and then all together. No file "
            "remains there. A missing directory is not created: the directory above it is measured."
        ),
    ),
    Option(
        name="sample",
        kind=SIZE_FROM_1,
        section=OUTPUT,
        commands=("codecs", "preflight"),
        effect="unrecorded",
        default=32 * 1024 * 1024,
        help="Size of the sample in memory, in bytes. It is read from at most five work units.",
        example="64MiB",
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
            "streams": "it has no earlier run",
            "tables": "use --save-mode overwrite, which replaces the rows of the table",
        },
        help=(
            "Replace an earlier run in DEST. When the new run is complete, the old manifest is "
            "removed, with the files in the manifest and the unpublished files of an interrupted "
            "run. All other files stay. If such a file has the name of a new file, the run fails."
        ),
        common=True,
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
        help=(
            "How to change the table of --to. create makes a new table and refuses one that "
            "exists, append adds rows, and overwrite replaces the rows. The change is one commit "
            "after the run is verified."
        ),
        example=_LAKE_APPEND,
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
        help="With --save-mode overwrite: replace only the rows that meet CONDITION, such as "
        "\"DAY = '2026-01-31'\". Whole files are replaced. A file that also holds other rows is "
        "refused.",
        example=_LAKE_OVERWRITE,
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
        default_text="main",
        empty=False,
        help=(
            "Commit to this branch of an Iceberg table. A missing branch is created. You can check "
            "its rows before you publish the branch."
        ),
        example=f"{_LAKE_APPEND} --branch audit",
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
        help=(
            "Partition the new Iceberg table by a column, or by a function of it. The functions "
            "are year, month, day, hour and truncate, such as day(CREATED) or truncate(4, NAME). "
            "Rows are not moved: each file must hold rows of one partition. Can be repeated."
        ),
        example=f"{_LAKE} --partition-by 'day(CREATED)'",
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
        help=(
            "Number of finished runs to keep, including the new one. --to needs {date} or "
            "{run_id}. Older runs of the same table are removed after the new run is verified. A "
            "run in which a file was changed or added stays."
        ),
        example=f"{_DAILY} --keep 7",
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
            "objects": "it has no links; take the name of the run from --on-success or --json",
            "tables": "readers find its files through the catalog",
        },
        help=(
            "Name of a symbolic link beside the directory of the run. It leads to the newest run, "
            "and is switched atomically when that run is complete."
        ),
        example=f"{_DAILY} --latest-link latest",
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
        help="Longest wait in seconds for the reader of a pipe in --to. 0 sets no limit.",
        example=f"{_RUN} \\\n    --to pipe:/tmp/orders --pipe-timeout 60",
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
        common=True,
        example="parquet",
    ),
    Option(
        name="compression",
        scope="route",
        kind=COMPRESSION,
        section=OUTPUT,
        commands=ONE_VALUE,
        effect="changes",
        default_text="none for csv, zstd for parquet",
        help=(
            "Codec, such as zstd, zstd:3 or gzip. All codecs: none, gzip, zstd, lz4, snappy "
            "(Parquet only). fastest, balanced and smallest measure a sample of the rows and "
            "choose."
        ),
        common=True,
        example="zstd:3",
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
        help="Start a new file after this many bytes, such as 64MiB or 1GB. 0 sets no limit.",
        example="1GB",
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
        not_for={"streams": "it is not cut into files"},
        help="Write a file for each work unit, or one file for the table.",
        example="table",
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
        help=(
            "Template of the file names, from {schema} {table} {partition} {unit} {part} {ext} "
            "{date}."
        ),
        example="'{table}-{unit}-{part}.{ext}'",
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
        help="Checksum of each file in the manifest. Object stores use crc32c.",
        example="sha256",
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
        default_text="set by the umask",
        not_for={
            "streams": "it has its rights already",
            "objects": "the bucket sets its rights",
        },
        help=(
            "Rights of the files and of the manifest, such as 640. The umask does not change them. "
            "For 640, the directories of the run have the rights 750: every user who may read a "
            "file may also enter its directory."
        ),
        example="640",
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
        help=(
            "Owner and group of the files, the manifest and the directories that the run creates. "
            "Write names or numbers. Either can be left out, as in :dba. Another owner needs root."
        ),
        example=":dba",
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
    help=(
        "Encrypt and read Parquet files with the key in FILE. The key is 16, "
        "24 or 32 bytes in base64. FILE must not be readable for other users. Without this "
        "option, the key comes from UNLOADER_PARQUET_KEY or from the systemd credential "
        "unloader-parquet-key."
    ),
    example=_PARQUET_KEY,
)

DECRYPT_WITH = Option(
    name="decrypt-with",
    scope="route",
    kind=PathText("FILE", only="file"),
    section=ENCRYPTION,
    commands=("plan", "resume", "run", "sweep", "verify"),
    effect="unrecorded",
    empty=False,
    help=(
        "Read encrypted text with the private keys in FILE, which age-keygen makes. FILE must "
        "not be readable for other users. Only a check of the values needs it (full, source)."
    ),
    example=_DECRYPT,
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
        help=(
            "Encrypt text with age for this recipient: a public key age1..., or @FILE with a key "
            "on each line. Separate several with commas, or repeat the option."
        ),
        example="@recipients.txt",
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
        help="Name of the Parquet key. The manifest records it for the readers of the files.",
        example=f"{_PARQUET_KEY} \\\n    --parquet-key-name orders-2026",
    ),
    DECRYPT_WITH,
)

OPTIONS = (*DESTINATION, *FILES, *RIGHTS, *ENCRYPTING)
