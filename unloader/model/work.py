"""The orders to a worker, and its answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from numa.model import BindReport, Seat
from partition_planner.model import WorkUnit
from unloader.model.output import EncryptionOptions
from unloader.model.source import Extract, SourceSpec
from unloader.transforms.model import TransformOptions
from writers.model import ContentSums, LobColumn, OutputSpec, WrittenFile


class OutputTask(Struct, frozen=True, kw_only=True):
    """One output of a unit: the files that its rows go to."""

    spec: OutputSpec
    stem: str
    """Start of the staging names, unique to the attempt."""
    header: bytes = b""
    """What an encoded file begins with; on the batch route the writer makes its own."""
    writes_header: bool = True
    """False for text files that will be joined behind one header."""
    encryption: EncryptionOptions | None = None
    """Says where the worker finds the key of Parquet files."""
    drops: Literal["nothing", "bytes", "rows"] = "nothing"
    """bytes: `spec.stream` keeps nothing; rows: they are dropped before they are encoded."""
    transform: TransformOptions | None = None
    """The transform of the rows before they are encoded; its keys have their proofs."""
    number: int = 0
    """The number of the output in the run."""
    filter: str | None = None
    """Only rows for which this condition holds; None is all that are read."""
    route: str = ""
    """The name of the output in errors, if the run has several."""
    lobs: tuple[LobColumn, ...] = ()
    """Columns whose values go to other files."""


class UnitTask(Struct, frozen=True, kw_only=True):
    """One attempt at one work unit: everything a worker needs."""

    unit: WorkUnit
    attempt: int
    """1 for the first."""
    extract: Extract
    outputs: tuple[OutputTask, ...]
    fetch_bytes: int
    """Memory of one array fetch."""
    checksums: bool = False
    """Compute checksums of the values as they are fetched."""
    drops_outputs: bool = False
    """An output that fails is given up, and the others go on."""
    name: str = ""
    """Tells the unit from all of the run, where its id alone does not: in a run over several tables
    many have the same. Empty where it does."""

    @property
    def run_unit(self) -> str:
        """The unit as the parent's orders name it."""
        return self.name or self.unit.id


Bundle = dict[int, UnitTask]
"""One attempt at a unit, or at several small ones in turn, by number.

Progress is pairs of number and event."""


class Preload(Struct, frozen=True, kw_only=True):
    """Asks a worker to load the modules that it will need; the worker answers None."""

    source_kind: str
    source: SourceSpec | None = None
    """What the fork server opens once for the workers that it forks, if the source allows that."""
    formats: tuple[str, ...] = ()
    """The formats of the files to write; other formats are loaded when they are needed."""
    stores: tuple[str, ...] = ()
    """The schemes of object stores that files go to, such as `s3`."""


class Release(Struct, frozen=True, kw_only=True):
    """Asks an idle worker to close its session; the worker answers None."""


class FetchOrder(Struct, frozen=True, kw_only=True):
    """Tells a worker at an attempt to hold up its fetch, or to go on with it."""

    unit: str
    attempt: int
    paused: bool


Waits = Literal["nothing", "source", "destination", "limit"]
"""What an attempt waits for."""


class StageLoad(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPU seconds of the threads of one unit's stages, and how long one waited for the other."""

    fetch_cpu_s: float
    encode_cpu_s: float
    """Parquet compresses while it encodes."""
    write_cpu_s: float
    """Checksums of files included."""
    process_cpu_s: float
    """Of the whole process in the time of the unit; the part outside the stages belongs to the
    driver's threads."""
    starved_s: float
    """Wall seconds that encoding waited for the source."""
    fetch_blocked_s: float
    """Wall seconds that fetching waited because encoding took nothing."""
    encode_blocked_s: float
    """The same of encoding, for compressing or writing."""
    compress_blocked_s: float
    """The same of compressing, for writing."""
    longest_blocked_s: float
    """The longest single one of the last three."""
    closing_s: float
    """Wall seconds that the unit waited until its files were written and synced, after its last
    row."""
    fetch_delay_s: float
    """Seconds that the thread of this stage was ready to run and no CPU was free; 0 where the
    system does not tell (`writers.cpu_delay`)."""
    encode_delay_s: float
    compress_delay_s: float
    write_delay_s: float


class Stages(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Wall seconds of one unit's stages; they overlap, so their sum may exceed the whole."""

    fetch_s: float
    encode_s: float
    """Parquet compresses while it encodes."""
    write_s: float
    compress_s: float
    compress_cpu_s: float
    """CPU seconds of the same."""
    uncompressed_bytes: int | None
    """Of the output before it was compressed; None where that is not counted."""
    load: StageLoad | None = None
    """For tuning, during the run. A manifest does not have it."""


class OutputResult(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What one of several outputs has of a finished unit."""

    number: int
    """The number of the output in the run."""
    rows: int
    """As its writer has counted them."""
    filtered: int | None
    """Rows that its filter left out; None without a filter."""
    files: tuple[WrittenFile, ...]
    stages: Stages
    """Shared stages, such as fetching, count all outputs together."""
    content: ContentSums | None = None
    """Checksums of the values of its rows, where they were asked for."""
    failure: AttemptFailure | None = None
    """Why it was given up; it has no files then."""


class UnitResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished unit: its staged files and its costs."""

    unit: str = field(name="id")
    attempt: int = field(name="attempts")
    """The number of the attempt, from 1."""
    rows: int
    files: tuple[WrittenFile, ...]
    stages: Stages
    seconds: float
    cpu_seconds: float
    """Of the worker's process since its last result, its start-up being part of the first."""
    peak_rss_bytes: int
    """Of the worker's process so far."""
    content: ContentSums | None = None
    """Checksums of the values, where they were asked for: as they were fetched, or as a transform
    left them."""
    filtered: int | None = None
    """Rows that a filter left out after the source; None without a filter."""
    outputs: tuple[OutputResult, ...] | None = None
    """The results of each output, if the run has several: then the rows above are the read rows."""
    witnessed_rows: int = 0
    """Rows that the database's driver has decoded, too, to equal values."""
    refused: str = ""
    """Why the native fetch was given up, and the driver read the unit from its start."""

    @property
    def scanned(self) -> int:
        return self.rows + (self.filtered or 0)


class BoundSeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of a worker on its machine, with the memory policy that the kernel took."""

    node: int
    cpus: tuple[int, ...]
    memory_node: int | None
    memory_policy: str | None

    @classmethod
    def of(cls, seat: Seat, bound: BindReport | None) -> BoundSeat:
        """Return a seat with the worker's report of its binding; None without a report."""
        return cls(
            node=seat.node,
            cpus=seat.cpus,
            memory_node=seat.memory_node,
            memory_policy=None if bound is None else bound.memory_policy,
        )


class FinishedUnit(UnitResult, frozen=True, kw_only=True):
    """A unit's result and its worker, as in the journal (staged files) and the manifest."""

    partition: str | None
    """The partition, if the unit read exactly one."""
    partitions: tuple[str, ...]
    """The partitions that it read; empty if it was not read by partition."""
    seat: BoundSeat
    worker: int | None
    """The number of the worker; None in the manifest of several runs that were merged."""
    started_s: float | None
    """When its attempt began, from the begin of the run; None if that was in an earlier process."""


class AttemptFailure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an attempt at a task failed, as data: made and read by `unloader.errors` alone."""

    error: str
    """Name of the class in `unloader.errors`."""
    message: str
    hint: str
    retryable: bool
    """Another attempt may do better."""
    traceback: str = ""
