"""Where rows go, and how they are written there."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from unloader.model.source import SecretReference
from unloader.transforms.model import TransformOptions
from writers.codecs.choice import Preset
from writers.model import (
    PLAIN,
    Checksum,
    Compression,
    EncoderChoice,
    Encryption,
    OutputSpec,
    ParquetFormat,
    SortColumn,
    TextFormat,
)

FilePer = Literal["unit", "table"]

SaveMode = Literal["create", "append", "overwrite"]
"""What becomes of a table of a lakehouse: it is new, it gets more rows, or others."""


class PartitionBy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the values that rows of a table share who are in one partition."""

    column: str
    transform: str = "identity"
    """How the value is made of the column's, as Iceberg writes it: `day`, `truncate[4]`."""


class LakeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a lakehouse that the files become part of, as it was when the run began.

    The manifest has it, too: from that and the files alone the commit can be made.
    """

    kind: Literal["iceberg", "delta", "ducklake"]
    name: str
    """As `--to` has it."""
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
    """Of the columns, in their order; empty where the format has none."""
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
    """What the user calls it."""
    key_proof: str = ""
    """Tells whether a key is the same, without telling what it is; empty until the run begins."""
    identity: SecretReference = field(default_factory=SecretReference)
    """Where the private keys of age are found that read the files again."""

    @property
    def keyed(self) -> bool:
        """Whether Parquet is encrypted with a key."""
        return self.key.kind != "none"

    def public(self) -> Encryption:
        """Return the part that writers are told of."""
        return Encryption(recipients=self.recipients, keyed=self.keyed)


class OutputOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the output is written."""

    destination: str
    """A directory, `-` for standard output, `pipe:` and the path of a named pipe, or `null:`;
    empty where nothing is written."""
    format: TextFormat | ParquetFormat
    """As the options say: names of columns as they were typed, and no fields of fixed width."""
    compression: Compression | Preset = field(default_factory=Compression)
    """A codec, or how one is to be chosen by measuring."""
    file_per: FilePer = "unit"
    file_name: str = "{table}.{unit}{part}.{ext}"
    file_size_bytes: int = 0
    """Start a new file once this many bytes are written; 0 is never."""
    overwrite: bool = False
    others: tuple[str, ...] = ()
    """Further directories that the files are spread over."""
    keep: int | None = None
    """Finished runs that stay in the directories beside this one, itself included; None is all."""
    latest_link: str | None = None
    """Name of a symbolic link, beside the directory, that is to lead to the newest run."""
    pipe_seconds: float = 300.0
    """Longest wait for the reader of a pipe; 0 is for ever."""
    buffer_bytes: int = 4 * 1024 * 1024
    buffers: int = 4
    """Output buffers in flight between encoder and I/O thread."""
    checksum: Checksum = "xxh3"
    mode: int | None = None
    """Rights of files; None is as the umask has it."""
    owner_group: str = ""
    """`[USER][:GROUP]` of files and directories."""
    direct_io: bool = False
    min_free_bytes: int = 0
    """What must stay free on the disk of each directory: the run waits for it. 0 does not look."""
    pause_seconds: float = 3600.0
    """Longest such wait."""
    encoder: EncoderChoice = "auto"
    encryption: EncryptionOptions | None = None
    """None is files that everybody can read who may open them."""
    transform: TransformOptions | None = None
    """What is done to the rows before they are written; None writes them as they are read."""
    filter: str | None = None
    """A condition in DuckDB's SQL on the rows that are read; None takes all of them."""
    save_mode: SaveMode | None = None
    """Of a table of a lakehouse; None is create."""
    replace_where: str | None = None
    branch: str | None = None
    partition_by: tuple[PartitionBy, ...] = ()
    """Of a table that is made; names of columns as they were typed."""
    lake_table: LakeTable | None = None
    """What the files become part of; decided as the run begins, when the place becomes a real one.
    None is no table."""

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
