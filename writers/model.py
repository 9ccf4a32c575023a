"""The input of a writer and its reports: plain data, picklable, JSON-able.

Everything here crosses the process boundary, so nothing holds a file, a thread or an Arrow object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

Enclose = Literal["minimal", "strings", "all", "none"]
Escape = Literal["double", "backslash", "none"]
BinaryForm = Literal["prefixed-hex", "hex", "base64"]
BooleanForm = Literal["true/false", "t/f", "1/0"]
Checksum = Literal["xxh3", "crc32c", "sha256"]
EncoderChoice = Literal["auto", "native", "plain"]


class FixedField(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of a column in records of fixed width."""

    start: int
    """Of its first byte in the record, from 0."""
    width: int
    right: bool = False
    """Numbers are at the right end of their field, everything else at the left."""
    padded: bool = False
    """The database pads the column with blanks itself (CHAR), so blanks at a value's end mean
    nothing; in other columns a value that ends in a blank is refused."""


class TextFormat(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"
):
    """One dialect of delimited text.

    NULL is the bare `null` text. A value that would read as NULL is enclosed, or refused if
    `enclose` is `none`.
    """

    delimiter: str = ","
    enclosure: str = '"'
    """One or more characters; empty only together with `enclose="none"`."""
    enclose: Enclose = "minimal"
    """minimal: where needed; strings: text, dates and timestamps; all: every value but NULL."""
    escape: Escape = "double"
    """How an enclosure inside a value is written; none refuses such a value."""
    null: str = ""
    eol: str = "\n"
    header: bool = True
    trailing_delimiter: bool = False
    record_length_digits: int = 0
    """Width of the record length before each record, 0 for none. It counts bytes after the prefix,
    with the end of line, in the output encoding (SQL*Loader's `"var n"`)."""
    encoding: str = "utf-8"
    date_format: str | None = None
    """An Oracle mask, or None for ISO 8601 (`2024-01-31`)."""
    timestamp_format: str | None = None
    """An Oracle mask, or None for ISO 8601 with a blank (`2024-01-31 23:59:59[.ffffff]`)."""
    timestamp_tz_format: str | None = None
    """An Oracle mask, or None for the same with the offset after it (`...+00:00`)."""
    utc: bool = False
    """Without `timestamp_tz_format`, timestamps with a zone are in UTC and have no offset."""
    fractions: Literal["mask", "keep"] = "mask"
    """Of a fraction of a second that a mask leaves out: mask cuts it, as the mask's author asked;
    keep refuses the value."""
    decimal_separator: str = "."
    boolean: BooleanForm = "true/false"
    binary: BinaryForm = "prefixed-hex"
    r"""prefixed-hex is `\x6869`, the form PostgreSQL reads back."""
    substitute: str | None = None
    """The substitute for a character that the encoding lacks; None refuses the value."""
    guard_formulas: bool = False
    """A quote before texts that a spreadsheet takes for formulas (`writers.text.enclosing`)."""
    refused: str = ""
    """Characters that no value may hold, because the program that loads the files cannot."""
    eol_ends_always: bool = False
    """The program that loads the files ends a record at `eol` inside enclosures, too."""
    fixed: tuple[FixedField, ...] = ()
    """One a column for records of fixed width, which have neither delimiter nor enclosure; empty
    for delimited text."""

    @property
    def moves_to_utc(self) -> bool:
        """Whether timestamps with a zone are written in UTC and without an offset."""
        return self.utc and self.timestamp_tz_format is None


class SortColumn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    descending: bool = False
    nulls_first: bool = False


class ParquetFormat(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="parquet"
):
    """How Parquet files are laid out; the defaults are measured ones."""

    row_group_rows: int = 1024 * 1024
    row_group_bytes: int = 32 * 1024 * 1024
    """A row group ends with the row that brings it to this number of bytes in memory."""
    version: str = "2.6"
    data_page_version: str = "1.0"
    dictionary: bool = True
    """Dictionary pages for columns whose first values repeat; False is for none."""
    byte_stream_split: bool = False
    """Whether numbers may be written byte by byte where that is smaller."""
    statistics: bool = True
    bloom_filters: tuple[str, ...] = ()
    """The columns that get one in each row group."""
    sorted_by: tuple[SortColumn, ...] = ()
    """The declared order of the rows; it is checked, and recorded in the file."""


Codec = Literal["none", "gzip", "zstd", "lz4", "snappy"]


class Compression(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A codec and its level (None: the codec's own default)."""

    codec: Codec = "none"
    level: int | None = None

    @property
    def label(self) -> str:
        """Return it as the command line takes it: `zstd:3`, `none`."""
        return self.codec if self.level is None else f"{self.codec}:{self.level}"


Preset = Literal["fastest", "balanced", "smallest"]


class Candidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What 10^9 bytes before compression take with a codec, as a manifest records it."""

    codec: Codec
    level: int | None
    library: str | None
    sample_bytes: int
    ratio: float
    bytes_per_cpu_second: int | None
    """None without compression."""
    compress_cpu_seconds_per_gb: float
    predicted_cpu_seconds: float
    predicted_bytes: int
    predicted_seconds: float
    limit: str
    """What takes longest: processors, source, encoder, codec or disk."""

    @property
    def compression(self) -> Compression:
        return Compression(codec=self.codec, level=self.level)


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a preset chose and why, as a manifest records it."""

    preset: Preset
    codec: Codec
    level: int | None
    reason: str
    disk_bytes_per_second: int | None
    candidates: tuple[Candidate, ...]
    """Every one that was measured, lightest first; empty where nothing was."""

    @property
    def compression(self) -> Compression:
        return Compression(codec=self.codec, level=self.level)


class Encryption(Struct, frozen=True, kw_only=True):
    """The keys that files are encrypted for, and private keys: they never travel."""

    recipients: tuple[str, ...] = ()
    """Public keys of age, for text; empty is text that is not encrypted."""
    keyed: bool = False
    """Parquet is encrypted with a key."""
    key: bytes | None = None
    identities: tuple[str, ...] = ()
    """Private keys of age, to read text again."""

    def __repr__(self) -> str:
        return f"Encryption(recipients={self.recipients!r}, keyed={self.keyed!r})"

    @property
    def is_readable(self) -> bool:
        """Whether files can be read again: they are not encrypted, or the keys are there."""
        return (not self.keyed or self.key is not None) and (
            not self.recipients or bool(self.identities)
        )


PLAIN = Encryption()


class OutputSpec(Struct, frozen=True, kw_only=True):
    """Everything a writer must know but the schema."""

    directory: str
    """Where staged files are created: a directory that exists, or a place in an object store as
    `writers.objects.location` writes it."""
    format: TextFormat | ParquetFormat
    compression: Compression
    file_size_bytes: int = 0
    """Start a new file once this many bytes are written; 0 is never. A record or row group is
    never cut, so a file exceeds it by at most one of those."""
    buffer_bytes: int = 4 * 1024 * 1024
    buffers: int = 4
    """Output buffers in flight between encoder and I/O thread."""
    checksum: Checksum = "xxh3"
    direct_io: bool = False
    """Write past the page cache, where the file system can; file contents are the same."""
    stream: str | None = None
    """Path of a pipe or device that takes the bytes as they come, in place of a staged file; the
    file size is ignored then."""
    encoder: EncoderChoice = "auto"
    """Which text encoder: auto is the native one where it was built, and the plain one else."""
    min_free_bytes: int = 0
    """What must stay free on the disk: writing waits until there is more. 0 does not look."""
    encryption: Encryption = PLAIN
    synced_from_bytes: int = 0
    """Smaller files are closed without being synced: that is left to the caller."""
    stays_cached: bool = False
    """Files are read again soon. Others leave the page cache once they are on their device."""
    finals: FinalNames | None = None
    """Where given, the parts of each file are uploaded to its final name, and nothing is staged."""
    field_ids: tuple[int, ...] = ()
    """Parquet's own numbers of the columns, in their order; empty writes none."""
    microseconds: bool = False
    """Timestamps in seconds or milliseconds become microseconds in Parquet, of the same value."""


class FinalNames(Struct, frozen=True, kw_only=True):
    """The final names of a unit's files, in an object store that shows only completed uploads."""

    place: str
    """In the form of `writers.objects.location`."""
    name: Callable[[int], str]
    """Returns the name of a file by its number, from 0; picklable."""


class LobColumn(Struct, frozen=True, kw_only=True):
    """A column whose values go to other files, see `writers.lob_files`."""

    name: str
    file: str
    """The final name of the packed file, or of the folder."""
    template: tuple[str, ...] | None = None
    """Of the names of files with one value each: texts and names of key columns in turn, a text
    first and last. Empty numbers the files, and None is a packed file."""


class UploadedPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    etag: str
    checksum: str
    """In base64; empty where none was sent."""
    bytes: int


class UncompletedUpload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object whose parts are all in the store; it is invisible until the upload is completed."""

    name: str
    id: str
    algorithm: str
    """Of the parts' checksums; empty where none were sent."""
    parts: tuple[UploadedPart, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class WrittenFile(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A closed, synced file; see `OutputSpec.synced_from_bytes`."""

    path: str
    """Relative to its directory."""
    rows: int
    bytes: int
    checksum: str
    """Name of the algorithm, a colon and lower-case hex digits, over the bytes of the file."""
    directory: int = 0
    """The number of its directory, where there are several."""
    column: str = ""
    """The column whose values the file holds (`writers.lob_files`); empty for a file of rows. Of
    files with one value each it is the index."""
    values: int = 0
    """Files that it lists, if it is an index."""
    value_bytes: int = 0
    """Bytes of these files."""
    upload: UncompletedUpload | None = None
    """What makes an object of it, before it is published."""


class ContentSums(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checksums of the values of all columns of some rows, see `writers.content.sums`."""

    rows: int
    nulls: tuple[int, ...]
    sums: tuple[str, ...]
    """Of each column: 16 hexadecimal digits."""

    @classmethod
    def total(cls, parts: Sequence[ContentSums]) -> ContentSums:
        """Return the checksums of the rows of all parts together; at least one."""
        return cls(
            rows=sum(part.rows for part in parts),
            nulls=tuple(map(sum, zip(*(part.nulls for part in parts), strict=True))),
            sums=tuple(
                hexadecimal(sum(int(each, 16) for each in column))
                for column in zip(*(part.sums for part in parts), strict=True)
            ),
        )


def hexadecimal(number: int) -> str:
    """Return a sum of `ContentSums`, of any size and sign, as it is written."""
    return f"{number % 2**64:016x}"


class StageSeconds(Struct, frozen=True, kw_only=True):
    """Wall seconds a writer spent in its stages, and what went through them."""

    encode_s: float = 0.0
    """Without compressing, except for Parquet, which compresses while it encodes."""
    write_s: float = 0.0
    compress_s: float = 0.0
    compress_cpu_s: float = 0.0
    uncompressed_bytes: int | None = None
    """Of the output before it was compressed; None where that is not counted (Parquet)."""
    write_cpu_s: float = 0.0
    """CPU seconds of writing, checksums included; of the files that are closed."""
    own_cpu_s: float = 0.0
    """The encoding thread's part of both: it writes the smallest files itself."""
    write_delay_s: float = 0.0
    """Seconds that writing was ready and had no CPU; 0 where the system does not tell."""
    compress_delay_s: float = 0.0
    encode_blocked_s: float = 0.0
    """Wall seconds that encoding waited because its output was not taken."""
    compress_blocked_s: float = 0.0
    longest_blocked_s: float = 0.0
    """The longest single one of these waits."""
