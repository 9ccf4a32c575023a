"""A table of a run in which nothing is left to decide: what `plan` writes and `run` executes.

Frozen, complete and without a secret. The record of a run has its tables and what holds for all of
them. It is written to `_run/` of the destination before the first row is read. Its JSON is read
back as equal tables, and the manifest is made from them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert, to_builtins
from msgspec.json import Decoder, Encoder, decode, encode
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.model import Plan, PlanError
from partition_planner.planner import check_plan
from unloader.errors import ConfigError, OutputFailed, PlanFailed
from unloader.model import (
    Extract,
    OutputOptions,
    Projection,
    Request,
    SecretReference,
    SourceSpec,
    TablesOptions,
)
from unloader.placement.seating import Seating, SeatPlan
from unloader.redaction import holds_sql_password, redact
from unloader.secrets.keys import masking_keys
from unloader.secrets.secret_places import is_proof_of, proof_of
from unloader.selection.listing import TableProblem
from unloader.storage.place_names import (
    absolute,
    destination_kind,
    is_kept,
    path_of,
    real,
    relative,
)
from unloader.storage.storage_protocol import RUN_RECORD, Storage
from unloader.transforms.model import MaskingKey, OutputColumn, TransformOptions
from writers import built_library
from writers.model import Choice, Compression, OutputSpec, ParquetFormat, TextFormat
from writers.objects.location import is_location
from writers.registry import name_of
from writers.schema import read_schema, schema_text, selected

FORMAT_VERSION = 6

_AGAIN = "make the plan again: unloader plan SOURCE --output FILE"


class ResolvedOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    options: OutputOptions
    """The user's options, with the real places and the proofs of keys."""
    format: TextFormat | ParquetFormat
    """With the fields of records of fixed width, and columns named as the source names them."""
    compression: Compression
    choice: Choice | None
    """How a preset chose the codec; None if it was named."""
    transformed: Projection | None = None
    """The columns that a transform leaves, or that have the places of values in packed files;
    None without either."""
    origins: tuple[OutputColumn, ...] = ()
    """The columns that a transform leaves, each with its origin and its mask."""
    lobs: tuple[str, ...] = ()
    """Names of the columns whose values go to other files."""
    lob_name: tuple[str, ...] | None = None
    """How files with one value each are named (`LobColumn.template`); None is packed files."""

    def spec(self, directory: str) -> OutputSpec:
        return self.options.spec(directory, self.format, self.compression)


class ResolvedTable(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format_version",
    tag=FORMAT_VERSION,
):
    """One table or query of a run: its extract, its work units, its outputs, and the seats."""

    run_id: str
    request: Request
    """The user's request, unchanged. Limits, retries and checks are only here."""
    server_version: str
    extract: Extract
    """The data to read: source, snapshot, table or query, and how each column is read."""
    plan: Plan
    outputs: tuple[ResolvedOutput, ...]
    topology: Topology
    seating: Seating
    session_sql_proof: str = ""
    """Shows whether statements that are given again are the same, without the statements. Empty if
    none is left out; a statement that may contain a password must be given again."""

    @property
    def output(self) -> ResolvedOutput:
        return self.outputs[0]

    @property
    def written(self) -> Projection:
        """The columns that the first output writes, out of the columns of the scan."""
        if self.output.transformed is not None:
            return self.output.transformed
        read = self.extract.projection
        return read if self.request.routes is None else projection_of_output(read, 0)

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(
            place
            for output in self.outputs
            for place in output.options.destinations
            if is_kept((place,))
        )

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> ResolvedTable:
        """Return the run with what its record does not contain; without `secret` with its own."""

        def now(source: SourceSpec) -> SourceSpec:
            session = replace(source.session, session_sql=session_sql)
            return replace(source, secret=secret or source.secret, session=session)

        asked = replace(self.request, source=now(self.request.source))
        read = replace(self.extract, source=now(self.extract.source))
        return replace(self, request=asked, extract=read)

    def with_options(self, now: Callable[[int, OutputOptions], OutputOptions]) -> ResolvedTable:
        """Return the run with changed options of its outputs, which `now` gets by their numbers."""
        asked, routes = self.request, self.request.routes
        if routes is not None:
            routes = tuple(
                replace(each, output=now(at, each.output)) for at, each in enumerate(routes)
            )
        outputs = tuple(
            replace(each, options=now(at, each.options)) for at, each in enumerate(self.outputs)
        )
        output = routes[0].output if routes else now(0, asked.output)
        return replace(self, request=replace(asked, output=output, routes=routes), outputs=outputs)

    def seated(self, seats: SeatPlan) -> ResolvedTable:
        """Return the run with the seats of its workers on the machine as it is now."""
        workers = min(seats.parallelism, len(self.plan.units))
        return replace(self, topology=seats.topology, seating=seats.first(workers))

    def is_session_sql(self, statements: tuple[str, ...]) -> bool:
        """Return whether these are the statements that the run's sessions had."""
        return is_proof_of(_encoded(statements), self.session_sql_proof)

    def without_secrets(self, *, keeps_statements: bool = True) -> ResolvedTable:
        """Return the run as a plan file may contain it, or without all statements of a session."""
        had = self.request.source.session.session_sql
        kept = tuple(each for each in had if keeps_statements and not holds_sql_password(each))
        if kept == had:
            return self
        return replace(self.with_source(None, kept), session_sql_proof=proof_of(_encoded(had)))

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON-able values, with the digest by which an edit is found."""
        return {**to_builtins(self), "run_digest": sha256(_encoded(self)).hexdigest()}

    @classmethod
    def from_json(cls, value: object) -> ResolvedTable:
        """Return the run that `to_json` wrote.

        Raises PlanFailed if it is of another format version, is incomplete, has a key or a value
        that does not belong there, or was changed after it was made.
        """
        parts = checked_version(value)
        digest = parts.pop("run_digest", None)
        try:
            run = convert(parts, cls)
            check_plan(run.plan)
        except PlanError as error:
            raise PlanFailed(error.message, error.hint or _AGAIN) from error
        except ValidationError as error:
            raise PlanFailed(
                f"the plan cannot be used: its JSON is not as expected: {error}", _AGAIN
            ) from error
        # The digest of the text: it may have a whole number for a float.
        if sha256(_encoded(parts)).hexdigest() != digest:
            raise PlanFailed(
                "the plan was edited after it was made: its digest does not match", _AGAIN
            )
        return run


def checked_version(document: object) -> dict[str, Any]:
    """Return a copy of a document of this format version; PlanFailed if it is of another."""
    if not isinstance(document, dict) or type(document.get("format_version")) is not int:
        raise PlanFailed("this is not a plan: it has no format version", _AGAIN)
    version = document["format_version"]
    if version != FORMAT_VERSION:
        raise PlanFailed(
            f"the plan has format version {version}, but this version of unloader reads "
            f"{FORMAT_VERSION}",
            f"{_AGAIN}; or use the version of unloader that made it",
        )
    return dict(document)


_encoded = Encoder(order="sorted").encode


def projection_of_output(projection: Projection, number: int) -> Projection:
    """Return the columns of one output out of the columns of the scan, in its order."""
    taken = projection.outputs[number]
    schema = projection.schema
    if schema:
        schema = schema_text(selected(read_schema(schema), taken))
    return replace(
        projection,
        columns=tuple(projection.columns[index] for index in taken),
        schema=schema,
        outputs=(tuple(range(len(taken))),),
        filters=None,
    )


_GUARDED = "with --guard-formulas, a text that begins like a formula gets a leading quote"


def marked(projection: Projection, output: TextFormat | ParquetFormat) -> Projection:
    """Return the projection with a note on the columns that `--guard-formulas` may change."""
    if not (isinstance(output, TextFormat) and output.guard_formulas):
        return projection
    from writers.text.enclosing import is_guarded

    columns = tuple(
        replace(column, lossless=False, note="; ".join(filter(None, (column.note, _GUARDED))))
        if is_guarded(field)
        else column
        for column, field in zip(projection.columns, read_schema(projection.schema), strict=True)
    )
    return replace(projection, columns=columns)


def of_output(run: ResolvedTable, number: int) -> ResolvedTable:
    """Return the run as if one of its outputs were the only one; without routes it is that."""
    if run.request.routes is None:
        return run
    output = run.outputs[number]
    projection = marked(projection_of_output(run.extract.projection, number), output.format)
    return replace(
        run,
        request=run.request.of_outputs()[number],
        extract=replace(run.extract, projection=projection),
        outputs=(output,),
    )


def of_route(run: ResolvedTable, name: str) -> ResolvedTable:
    """Return the run of the output of a route; "" is the only output."""
    names = [each.name for each in run.request.routes or ()]
    return of_output(run, names.index(name) if name else 0)


def with_key_places(options: TransformOptions, keys: Iterable[MaskingKey]) -> TransformOptions:
    """Return a transform with other places of its keys, by their names; proofs stay."""
    now = {key.name: key for key in keys}
    return replace(
        options,
        keys=tuple(
            replace(now[key.name], proof=key.proof) if key.name in now else key
            for key in options.keys
        ),
    )


def has_same_keys(had: TransformOptions, asked: TransformOptions) -> bool:
    now = masking_keys(asked.keys)
    return all(is_proof_of(now.get(key.name, b""), key.proof) for key in had.keys)


_library = cache(built_library.find)
_FILE_NAME = re.compile(r"\.(csv|tsv|txt|parquet)(\.(gz|zst|lz4))?$", re.IGNORECASE)


def output_notices(run: ResolvedTable) -> tuple[str, ...]:
    """Return lines of outputs that may surprise: a directory named like a file, empty lines."""
    found = []
    for number, output in enumerate(run.outputs):
        found += [
            f"{place} is a directory that contains the output files; for one file use --to DIR "
            "--file-per table --file-name NAME"
            for place in output.options.destinations
            if _FILE_NAME.search(place) and destination_kind((place,)) in ("directories", "objects")
        ]
        text = output.format
        if not isinstance(text, TextFormat) or text.null or text.fixed or text.trailing_delimiter:
            continue
        columns = of_output(run, number).written.columns
        if len(columns) == 1 and columns[0].nullable:
            found.append(
                f"NULL of the only column {columns[0].name} is written as an empty line, which "
                r"many programs skip; --null '\N' writes another text"
            )
    return tuple(found)


def routes_json(run: ResolvedTable) -> list[dict[str, Any]]:
    """Return the form of each output, for the reader of a plan."""
    found = []
    shown = ("name", "source_type", "output_type", "lossless", "note")
    for number, route in enumerate(run.request.routes or ()):
        own = of_output(run, number)
        options = own.output.options
        found.append(
            {
                "name": route.name,
                "to": list(options.destinations) if options.destination else [],
                "format": name_of(own.output.format),
                "compression": own.output.compression.codec,
                "filter": options.filter,
                "columns": [
                    {name: getattr(column, name) for name in shown}
                    for column in own.written.columns
                ],
            }
        )
    return found


_NATIVE = "UNLOADER_NATIVE_"
NATIVE_LIBRARIES: dict[str, tuple[str, str, str, float]] = {
    "text": ("text encoder", "writers.native._encoder", f"{_NATIVE}LIBRARY", 6),
    "pages": ("Parquet encoder", "writers.parquet.native._pages", f"{_NATIVE}PAGES_LIBRARY", 1.4),
    "sums": ("checksums", "writers.content._sums", f"{_NATIVE}SUMS_LIBRARY", 1.2),
    "fetch": (
        *("fetch from Oracle", "unloader.sources.oracle.native._fetch"),
        *(f"{_NATIVE}FETCH_LIBRARY", 3),
    ),
    "postgresql": (
        *("reader of COPY data", "unloader.sources.postgres.libpq._copy"),
        *(f"{_NATIVE}COPY_LIBRARY", 4),
    ),
    "mysql": ("reader of MySQL rows", "unloader.sources.mysql._rows", f"{_NATIVE}ROWS_LIBRARY", 8),
}
"""Of each library, by output and kind of source: its name for users, its module, the environment
variable that names another file, and how many times the CPU a run without it takes at most. That is
measured with tables of 2 to 3 million rows and 2 to 6 columns on two processors.
The fetch from Oracle reports its reasons itself."""


def missing_libraries(run: ResolvedTable) -> tuple[str, ...]:
    """Return one line if libraries are missing, with what that costs and how to get them."""
    wanted = [run.extract.source.kind]
    for output in run.outputs:
        is_native = output.options.encoder != "plain"
        if isinstance(output.format, ParquetFormat):
            wanted += ["pages", "sums"] if is_native else ["sums"]
        elif is_native:
            wanted.append("text")
    missing = []
    for each in dict.fromkeys(name for name in wanted if name in NATIVE_LIBRARIES):
        title, module, variable, times = NATIVE_LIBRARIES[each]
        if _library(module, variable) is None:
            missing.append(f"{title} (up to {times:g} times the CPU without it)")
    if not missing:
        return ()
    return (f"native libraries are not built: {', '.join(missing)}; {built_library.advice()}",)


class UnusableRecord(OutputFailed):
    """The record of an interrupted run cannot be read by this version of the program."""


class RecordedTable(Struct, frozen=True, kw_only=True):
    """The part of a resolved table that is read without a check of the rest."""

    name: str
    """With its schema; empty for a query."""
    directories: tuple[str, ...]
    """The directories of each output, the directory of the manifest first."""
    homes: tuple[str, ...]
    """The directories of manifests: one for each output."""
    units: int
    run_id: str
    """The run that wrote the record. A later run that died early may have taken the home since."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """The `RUN_RECORD` of a run, `_run/run.json`, written before the first row is read.

    `resume` reads all of it. `status`, `clean` and `verify` read only where the tables are.
    """

    format_version: int
    listed: tuple[RecordedTable, ...]
    tables: tuple[Raw, ...]
    """Resolved tables. Each has the format version, too."""
    home: str
    options: TablesOptions
    is_single: bool
    left_out: tuple[tuple[str, str, str], ...] = ()
    """Requested tables that could not be unloaded when the run began: name, kind of error, why."""


# Made in the thread that imports: msgspec 0.22 crashes the process if two threads decode a type for
# the first time at the same time.
_RECORD = Decoder(RunRecord)
_RUN = Decoder(ResolvedTable)
"""Never called: `ResolvedTable.from_json` converts to the type that it prepares."""


def record_of(
    runs: Sequence[ResolvedTable],
    home: str,
    options: TablesOptions,
    problems: Sequence[TableProblem] = (),
    *,
    is_single: bool,
) -> bytes:
    """Return the record of a run, without a statement of a session: any may have a password."""
    tables = []
    for run in runs:
        try:
            text = _encoded(run.without_secrets(keeps_statements=False))
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{error.object!r} is not text in UTF-8, so no record of the run can be written",
                "rename it, or run the command in another directory",
            ) from error
        tables.append(
            Raw(b'%b,"run_digest":"%b"}' % (text[:-1], sha256(text).hexdigest().encode()))
        )
    record = RunRecord(
        listed=tuple(
            RecordedTable(
                name="" if run.extract.query is not None else run.extract.table.label,
                directories=tuple(
                    place for output in run.outputs for place in output.options.destinations
                ),
                homes=tuple(output.options.destination for output in run.outputs),
                units=len(run.plan.units),
                run_id=run.run_id,
            )
            for run in runs
        ),
        tables=tuple(tables),
        home=home,
        format_version=FORMAT_VERSION,
        options=options,
        is_single=is_single,
        left_out=tuple(
            (each.table, type(each.error).__name__, redact(each.error.message)) for each in problems
        ),
    )
    return encode(record) + b"\n"


def single_record(run: ResolvedTable) -> bytes:
    output = run.request.output
    options = TablesOptions(destination=output.destination, overwrite=output.overwrite)
    return record_of((run,), run.output.options.destination, options, is_single=True)


def read_record(record: bytes, place: str) -> RunRecord:
    """Return a record; UnusableRecord if it is damaged, or another version has written it."""
    try:
        version = decode(record, type=dict[str, Raw]).get("format_version", b"null")
        checked_version({"format_version": decode(version)})
        found = _RECORD.decode(record)
    except PlanFailed as error:
        raise _unusable(place, error.message) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(place, str(error)) from error
    if not found.tables:
        raise _unusable(place, "it has no table")
    return found


def read_table(table: Raw, place: str) -> ResolvedTable:
    """Return a resolved table of a record; UnusableRecord as `read_record`, or if it was edited."""
    try:
        return ResolvedTable.from_json(decode(table))
    except PlanFailed as error:
        raise _unusable(place, error.message) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(place, str(error)) from error


def first_of(record: bytes, place: str) -> ResolvedTable:
    return read_table(read_record(record, place).tables[0], place)


def _unusable(place: str, why: str) -> UnusableRecord:
    return UnusableRecord(
        f"the record of the run that was interrupted in {place} cannot be used: {why}",
        "start again with the command of the run; if another version of unloader began it, that "
        "version can resume it",
    )


def _known(record: bytes) -> RunRecord | None:
    """Return a record without a check of its tables; None if it cannot be read."""
    with suppress(ValueError, RecursionError):
        return _RECORD.decode(record)
    return None


def options_of(record: bytes) -> TablesOptions:
    found = _known(record)
    return found.options if found else TablesOptions(destination="")


def is_of_tables(record: bytes) -> bool:
    """Return whether a `RUN_RECORD` is the record of a run over several tables."""
    found = _known(record)
    return found is not None and not found.is_single


def recorded_tables(record: bytes, home: str, *, single: bool = False) -> tuple[RecordedTable, ...]:
    """Return the tables of a run over several tables, and with `single` a single table, too."""
    found = _known(record)
    if found is None or (found.is_single and not single):
        return ()
    recorded = found.home

    def now(places: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(directory_now(place, recorded, home) for place in places)

    return tuple(
        replace(each, directories=now(each.directories), homes=now(each.homes))
        for each in found.listed
    )


def recorded_left_out(record: bytes) -> tuple[str, ...]:
    """Return the names of the tables that a run left out before the first row, by its record."""
    found = _known(record)
    return tuple(name for name, _, _ in found.left_out) if found else ()


def table_in(storage: Storage, home: str, place: str) -> RecordedTable | None:
    """Return the table of a run whose directory a place is; None if that is not known."""
    here, tables = real(place), recorded_tables(storage.record(home, RUN_RECORD), home)
    return next((each for each in tables if here in map(real, each.directories)), None)


def directory_now(directory: str, recorded: str, home: str) -> str:
    """Return where a directory of a table is now, whose home was `recorded` and may have moved."""
    within = relative(directory, recorded)
    if is_location(home):
        return str(path_of(home) / within) if within != "." else home
    return os.path.join(absolute(home), within)
