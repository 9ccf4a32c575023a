"""Where rows go, and how they are written there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from msgspec import Struct, field

from unloader.model.source import SecretReference
from unloader.request.option import ONE_VALUE, PLANNING, READING, Circumstance, Option
from unloader.request.settings import PartitionBy
from unloader.request.value_types import (
    MODE,
    NAMES,
    OWNER_GROUP,
    PARTITION,
    SECONDS,
    SIZE,
    SIZE_FROM_1,
    Kind,
    whole,
)
from unloader.transforms.model import TransformOptions
from writers.model import (
    PLAIN,
    Checksum,
    Compression,
    EncoderChoice,
    Encryption,
    OutputSpec,
    ParquetFormat,
    Preset,
    SortColumn,
    TextFormat,
)

FilePer = Literal["unit", "table"]

LobLayout = Literal["packed", "files"]

SaveMode = Literal["create", "append", "overwrite"]
"""What becomes of a table of a lakehouse: it is new, it gets more rows, or others."""


class LakeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a lakehouse that the files become part of, as it was when the run began.

    The manifest has it, too: from that and the files alone the commit can be made.
    """

    kind: Literal["iceberg", "delta", "ducklake"]
    name: str
    """The name as in `--to`."""
    save_mode: SaveMode
    replace_where: str | None = None
    """Which rows are replaced; None is all of them."""
    branch: str | None = None
    """The branch that is committed to; None is what everybody reads."""
    location: str
    """Of the table, as its own records write it."""
    files: str
    """Where the run's files are, written in the same way."""
    table_id: str = ""
    """Tells the table from another one of its name; empty where it is made by the run."""
    base: str = ""
    """Its snapshot, or version, when the run began; empty where it had none."""
    field_ids: tuple[int, ...] = ()
    """The ids of the columns, in their order; empty for a format without ids."""
    partition_by: tuple[PartitionBy, ...] = ()
    """The partitions of a table that the run makes."""
    sorted_by: tuple[SortColumn, ...] = ()
    """The order that a table asks of its files which the run makes."""


class EncryptionOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How files are encrypted. It says where keys are found, and holds no private one."""

    recipients: tuple[str, ...] = ()
    """Public keys of age, for text."""
    key: SecretReference = field(default_factory=SecretReference)
    """Where the key of Parquet files is found; nowhere for text."""
    key_name: str = ""
    """Its name, which the user gave."""
    key_proof: str = ""
    """Shows whether a key is the same, without the key; empty until the run begins."""
    identity: SecretReference = field(default_factory=SecretReference)
    """Where the private keys of age are found that read the files again."""

    @property
    def keyed(self) -> bool:
        return self.key.kind != "none"

    def public(self) -> Encryption:
        """Return the part that writers need."""
        return Encryption(recipients=self.recipients, keyed=self.keyed)


_FILE_NAME = "{table}.{unit}{part}.{ext}"

_RUN = "unloader run duckdb:///data/sales.db --table ORDERS"
_LAKE = f"{_RUN} \\\n    --to iceberg://lake/sales.orders"
_LAKE_APPEND = f"{_LAKE} --save-mode append"
_LAKE_OVERWRITE = f"{_LAKE} --save-mode overwrite \\\n    --replace-where \"DAY = '2026-01-31'\""
_DAILY = f"{_RUN} \\\n    --to '/extract/{{table}}/{{date}}'"

_NO_DISK: Mapping[Circumstance, str] = dict.fromkeys(("streams", "objects"), "it has no disk")
_OWNED: Mapping[Circumstance, str] = {
    "streams": "it has its owner and rights already",
    "objects": "the bucket sets its owner and rights",
}
_output = partial(Option, group="Output", commands=PLANNING, effect="changes", scope="route")
_pause = partial(Option, group="Safety", commands=READING, effect="none", not_for=_NO_DISK)
_buffer = partial(_output, group="Speed", commands=READING, effect="none")
_file = partial(_output, commands=READING)
_cut = partial(_file, not_for={"streams": "it is not cut into files"})


class OutputOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the output is written."""

    destination: str
    """A directory, `-` for standard output, `pipe:` and the path of a named pipe, or `null:`;
    empty where nothing is written."""
    format: TextFormat | ParquetFormat
    """As the options say: names of columns as they were typed, and no fields of fixed width."""
    compression: Compression | Preset = field(default_factory=Compression)
    """A codec, or how one is to be chosen by measuring."""
    file_per: Annotated[FilePer, _cut()] = "unit"
    """Write a file for each work unit, or one file for the table."""
    file_name: Annotated[
        str,
        _file(
            Kind("TEMPLATE"),
            default_text=_FILE_NAME,
            not_for={"streams": "it has a name already"},
            example="'{table}-{unit}-{part}.{ext}'",
        ),
    ] = _FILE_NAME
    """Template of the file names, from {schema} {table} {partition} {unit} {part} {ext} {date}."""
    lob_files: Annotated[
        tuple[str, ...],
        _file(
            NAMES,
            empty=True,
            planned=True,
            not_for={
                "streams": "it has no place for other files",
                "tables": "its files hold all values",
            },
            example="PHOTO",
        ),
    ] = ()
    """Write the values of these columns to separate files. Each work unit has one file for each
    column. The row has the name of the file, the offset and the length of the value, such as
    ORDERS_0001_PHOTO.lob.1.2048/. SQL*Loader reads this form in an LLS field. Separate several with
    commas, or repeat the option."""
    lob_layout: Annotated[LobLayout, _file(planned=True)] = "packed"
    """With files, each value of --lob-files has a file, in a folder for each work unit and column.
    The row has the path of the file, such as ORDERS_0001_PHOTO/0000/00000001.lob. A value of NULL
    has no file. The folder has an index with the checksums."""
    lob_name: Annotated[
        str,
        _file(
            Kind("TEMPLATE"),
            default_text="a number",
            planned=True,
            empty=True,
            example="'{ORDER_ID}.jpg'",
        ),
    ] = ""
    """Template of the names for --lob-layout files, from the names of key columns in braces, such
    as '{CUSTOMER}/{ORDER_ID}.jpg'. Other characters than ASCII letters, digits and -_.~+,=@ in a
    value become %XX. Two rows with one name end the run."""
    file_size_bytes: Annotated[int, _cut(SIZE, name="file-size")] = 0
    """Start a new file after this many bytes, such as 64MiB or 1GB. 0 sets no limit. A Parquet file
    ends after a whole row group, so it may be larger by one row group (--row-group-bytes)."""
    overwrite: Annotated[
        bool,
        _output(
            kept=False,
            common=True,
            not_for={
                "streams": "it has no earlier run",
                "tables": "use --save-mode overwrite, which replaces the rows of the table",
            },
        ),
    ] = False
    """Replace an earlier run in DEST. When the new run is complete, the old manifest is removed,
    with the files in the manifest and the unpublished files of an interrupted run. All other files
    stay. If such a file has the name of a new file, the run fails."""
    others: tuple[str, ...] = ()
    """Further directories that the files are spread over."""
    keep: Annotated[
        int | None,
        _output(
            whole(1),
            default_text="all",
            not_for={
                "streams": "it keeps nothing",
                "objects": "give the bucket a lifecycle rule, or remove old prefixes yourself",
                "tables": "let the catalog expire snapshots",
            },
            example=f"{_DAILY} --keep 7",
        ),
    ] = None
    """Number of finished runs to keep, including the new one. --to needs {date} or {run_id}. Older
    runs of the same table are removed after the new run is verified. A run in which a file was
    changed or added stays."""
    latest_link: Annotated[
        str | None,
        _output(
            Kind("NAME"),
            default_text="none",
            not_for={
                "streams": "it has no directory",
                "objects": "it has no links; take the name of the run from --on-success or --json",
                "tables": "readers find its files through the catalog",
            },
            example=f"{_DAILY} --latest-link latest",
        ),
    ] = None
    """Name of a symbolic link beside the directory of the run. It leads to the newest run, and is
    switched atomically when that run is complete."""
    pipe_seconds: Annotated[
        float,
        _output(
            SECONDS,
            effect="none",
            name="pipe-timeout",
            example=f"{_RUN} \\\n    --to pipe:/tmp/orders --pipe-timeout 60",
        ),
    ] = 300.0
    """Longest wait in seconds for the reader of a pipe in --to. 0 sets no limit."""
    buffer_bytes: Annotated[
        int,
        _output(
            SIZE_FROM_1, group="Speed", commands=ONE_VALUE, effect="none", name="overlap-buffer"
        ),
    ] = 4 * 1024 * 1024
    """Size of one output buffer, in bytes."""
    buffers: Annotated[int, _buffer(whole(1), name="overlap-buffers")] = 4
    """Number of output buffers of one worker."""
    checksum: Annotated[Checksum, _file()] = "xxh3"
    """Checksum of each file in the manifest. Object stores use crc32c."""
    mode: Annotated[int | None, _output(MODE, default_text="set by the umask", not_for=_OWNED)] = (
        None
    )
    """Rights of the files and of the manifest, such as 640. The umask does not change them. For
    640, the directories of the run have the rights 750: every user who may read a file may also
    enter its directory."""
    owner_group: Annotated[
        str, _output(OWNER_GROUP, default_text="this user", not_for=_OWNED, example=":dba")
    ] = ""
    """Owner and group of the files, the manifest and the directories that the run creates. Write
    names or numbers. Either can be left out, as in :dba. Another owner needs root."""
    direct_io: Annotated[bool, _buffer(not_for=_NO_DISK)] = False
    """Bypass the page cache, if the file system supports it."""
    min_free_bytes: Annotated[int, _pause(SIZE, name="min-free")] = 0
    """Pause the run while the disk of a directory has less free space than this, in bytes. 0 does
    not check: a full disk then ends the run."""
    pause_seconds: Annotated[float, _pause(SECONDS, name="pause-timeout")] = 3600.0
    """End the run after a pause of this many seconds, and keep its finished units. 0 ends the run
    as soon as less than --min-free is free."""
    encoder: Annotated[EncoderChoice, _file(group="CSV", formats=("csv", "parquet"))] = "auto"
    """Use the compiled encoder (native), or the slower one (plain). Both write the same text, and
    in Parquet the same values. auto is the compiled encoder if it was built; see unloader
    formats."""
    encryption: EncryptionOptions | None = None
    """None is files that everybody can read who may open them."""
    transform: TransformOptions | None = None
    """Changes of the rows before they are written; None writes them as they are read."""
    filter: Annotated[
        str | None,
        _output(
            Kind("SQL"), group="Selection", effect="selects", planned=True, example="'AMOUNT > 100'"
        ),
    ] = None
    """Only the rows for which this condition is true, in the SQL of DuckDB. It sees the values as
    they were read from the source, and can name columns that are not written. If one condition
    serves all outputs, --where is faster: the database evaluates it."""
    save_mode: Annotated[SaveMode | None, _output(default_text="create", example=_LAKE_APPEND)] = (
        None
    )
    """How to change the table of --to. create makes a new table and refuses one that exists, append
    adds rows, and overwrite replaces the rows. The change is one commit after the run is
    verified."""
    replace_where: Annotated[
        str | None, _output(Kind("CONDITION"), default_text="all rows", example=_LAKE_OVERWRITE)
    ] = None
    """With --save-mode overwrite: replace only the rows that meet CONDITION, such as "DAY =
    '2026-01-31'". Whole files are replaced. A file that also holds other rows is refused."""
    branch: Annotated[
        str | None,
        _output(Kind("NAME"), default_text="main", example=f"{_LAKE_APPEND} --branch audit"),
    ] = None
    """Commit to this branch of an Iceberg table. A missing branch is created. You can check its
    rows before you publish the branch."""
    partition_by: Annotated[
        tuple[PartitionBy, ...],
        _output(PARTITION, example=f"{_LAKE} --partition-by 'day(CREATED)'"),
    ] = ()
    """Partition the new Iceberg table by a column, or by a function of it. The functions are year,
    month, day, hour and truncate, such as day(CREATED) or truncate(4, NAME). Rows are not moved:
    each file must hold rows of one partition. Can be repeated."""
    lake_table: LakeTable | None = None
    """The table that the files become part of; decided as the run begins, when the place becomes a
    real one. None without a table."""

    @property
    def destinations(self) -> tuple[str, ...]:
        """All directories, the one of the manifest first."""
        return (self.destination, *self.others)

    def spec(
        self, directory: str, shape: TextFormat | ParquetFormat, compression: Compression
    ) -> OutputSpec:
        """Return what a writer is given that writes into a directory in this way."""
        return OutputSpec(
            directory=directory,
            format=shape,
            compression=compression,
            file_size_bytes=self.file_size_bytes,
            buffer_bytes=self.buffer_bytes,
            buffers=self.buffers,
            checksum=self.checksum,
            direct_io=self.direct_io,
            encoder=self.encoder,
            encryption=self.encryption.public() if self.encryption else PLAIN,
            field_ids=self.lake_table.field_ids if self.lake_table else (),
            microseconds=self.lake_table is not None,
        )
