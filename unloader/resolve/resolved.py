"""A table of a run in which nothing is left to decide: what `plan` writes and `run` executes.

Frozen, complete and without a secret. It is written to `_run/` of the destination before the first
row is read, and the manifest is made from it. Its JSON is read back as an equal run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.json import Encoder
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.model import Plan, PlanError
from partition_planner.planner import check_plan
from unloader.errors import ConfigError, PlanFailed
from unloader.model import (
    Extract,
    OutputOptions,
    Projection,
    Request,
    SecretReference,
    SourceSpec,
)
from unloader.placement.seating import Seating, SeatPlan
from unloader.redaction import holds_sql_password
from unloader.secrets.secret_places import is_proof_of, proof_of
from unloader.storage.place_names import destination_kind, is_kept
from unloader.transforms.masking_keys import masking_keys
from unloader.transforms.model import MaskingKey, OutputColumn, TransformOptions
from writers import built_library
from writers.model import Choice, Compression, OutputSpec, ParquetFormat, TextFormat
from writers.registry import name_of
from writers.schema import read_schema, schema_text, selected

FORMAT_VERSION = 5

_AGAIN = "make the plan again: unloader plan SOURCE --output FILE"


class ResolvedTransform(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The transform of one output, with nothing left to be decided. It holds no key."""

    options: TransformOptions
    written: Projection
    columns: tuple[OutputColumn, ...]
    """The same columns, each with its origin and its mask."""

    @property
    def declared(self) -> Projection:
        """The columns that are written; changed values have no type of the source."""
        known = zip(self.written.columns, self.columns, strict=True)
        return replace(
            self.written,
            columns=tuple(
                replace(read, source_type="") if column.changes or column.masked else read
                for read, column in known
            ),
        )


class ResolvedOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One output of a run."""

    options: OutputOptions
    """The user's options: the place, the names of files, their size, how they are written."""
    format: TextFormat | ParquetFormat
    """With the fields of records of fixed width, and columns named as the source names them."""
    compression: Compression
    choice: Choice | None
    """How a preset chose the codec; None if it was named."""
    transform: ResolvedTransform | None = None

    def written(self, read: Projection) -> Projection:
        """Return the columns that are written, out of the columns that are read for the output."""
        return read if self.transform is None else self.transform.written

    @property
    def task_transform(self) -> TransformOptions | None:
        return None if self.transform is None else self.transform.options

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
    withheld: tuple[str, ...] = ()
    """Options whose value may contain a password. They are not stored, and must be given again."""
    session_sql_proof: str = ""
    """Shows whether statements that are given again are the same, without the statements."""

    @property
    def output(self) -> ResolvedOutput:
        return self.outputs[0]

    @property
    def format(self) -> TextFormat | ParquetFormat:
        return self.output.format

    @property
    def task_transform(self) -> TransformOptions | None:
        return self.output.task_transform

    @property
    def written(self) -> Projection:
        """The columns that the first output writes, out of the columns of the scan."""
        if self.request.routes is None:
            return self.output.written(self.extract.projection)
        return self.output.written(projection_of_output(self.extract.projection, 0))

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(
            place
            for output in self.outputs
            for place in output.options.destinations
            if is_kept((place,))
        )

    def without_secrets(self) -> ResolvedTable:
        """Return the run as a plan file may contain it."""
        statements = self.request.source.session.session_sql
        return self._with_session_sql(
            tuple(each for each in statements if not holds_sql_password(each))
        )

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> ResolvedTable:
        """Return the run with what its record does not contain.

        Args:
            secret: Where the password is found now; None is where it was.
        """

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
        asked = replace(asked, output=now(0, asked.output), routes=routes)
        return replace(self, request=asked, outputs=outputs)

    def seated(self, seats: SeatPlan) -> ResolvedTable:
        """Return the run with the seats of its workers on the machine as it is now."""
        workers = min(seats.parallelism, len(self.plan.units))
        return replace(self, topology=seats.topology, seating=seats.first(workers))

    def is_session_sql(self, statements: tuple[str, ...]) -> bool:
        """Return whether these are the statements that the run's sessions had."""
        return is_proof_of(_encoded(statements), self.session_sql_proof)

    def _with_session_sql(self, kept: tuple[str, ...]) -> ResolvedTable:
        had = self.request.source.session.session_sql
        if kept == had:
            return self
        return replace(
            self.with_source(None, kept),
            withheld=(*self.withheld, "session-sql"),
            session_sql_proof=proof_of(_encoded(had)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON-able values, with the digest by which an edit is found."""
        return {**to_builtins(self), "run_digest": _digest(_encoded(self))}

    def record(self) -> bytes:
        """Return the text of the file in `_run/` from which the run can be resumed.

        The user did not ask for that file, so it has no session statement: any may have a password.

        Raises:
            ConfigError: A name, such as the current directory's, is not text in UTF-8.
        """
        try:
            text = _encoded(self._with_session_sql(()))
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{error.object!r} is not text in UTF-8, so no record of the run can be written",
                "rename it, or run the command in another directory",
            ) from error
        return b'%b,"run_digest":"%b"}\n' % (text[:-1], _digest(text).encode())

    @classmethod
    def from_json(cls, value: object) -> ResolvedTable:
        """Return the run that `to_json` wrote.

        Raises:
            PlanFailed: It is of another format version, is incomplete, has a key or a value that
                does not belong there, or was changed after it was made.
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
        if _digest(_encoded(parts)) != digest:
            raise PlanFailed(
                "the plan was edited after it was made: its digest does not match", _AGAIN
            )
        return run


def checked_version(document: object) -> dict[str, Any]:
    """Return a copy of a document that is of the format version of this program.

    Raises:
        PlanFailed: It is of another one, or no plan at all.
    """
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


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


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
    """Return whether a request has the masking keys of a run, by their proofs.

    Raises:
        ConfigError: A key is missing or invalid.
    """

    now = masking_keys(asked.keys)
    return all(is_proof_of(now.get(key.name, b""), key.proof) for key in had.keys)


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
                "format": name_of(own.format),
                "compression": own.output.compression.codec,
                "filter": options.filter,
                "columns": [
                    {name: getattr(column, name) for name in shown}
                    for column in own.written.columns
                ],
            }
        )
    return found


_LIBRARIES = {
    "text": ("text encoder", "writers.native._encoder", "UNLOADER_NATIVE_LIBRARY", "6"),
    "pages": (
        "Parquet encoder",
        "writers.parquet.native._pages",
        "UNLOADER_NATIVE_PAGES_LIBRARY",
        "1.4",
    ),
    "sums": ("checksums", "writers.content._sums", "UNLOADER_NATIVE_SUMS_LIBRARY", "1.2"),
    "postgresql": (
        "reader of COPY data",
        "unloader.sources.postgres.libpq._copy",
        "UNLOADER_NATIVE_COPY_LIBRARY",
        "4",
    ),
}
"""Of each library: its name for users, its module, the variable that names another file, and how
many times the CPU a run without it takes at most. Measured with tables of 2 to 3 million rows and
2 to 6 columns on two processors."""


def missing_libraries(run: ResolvedTable) -> tuple[str, ...]:
    """Return one line if libraries are missing, with what that costs and how to build them.

    A library that is there and cannot be loaded is reported by `unloader formats`.
    """
    wanted = [run.extract.source.kind]
    for output in run.outputs:
        is_native = output.options.encoder != "plain"
        if isinstance(output.format, ParquetFormat):
            wanted += ["pages", "sums"] if is_native else ["sums"]
        elif is_native:
            wanted.append("text")
    missing = []
    for library in dict.fromkeys(each for each in wanted if each in _LIBRARIES):
        title, name, override, times = _LIBRARIES[library]
        if not _is_built(name, override):
            missing.append(f"{title} (up to {times} times the CPU without it)")
    if not missing:
        return ()
    return (f"native libraries are not built: {', '.join(missing)}; {built_library.advice()}",)


@cache
def _is_built(name: str, override: str) -> bool:
    return built_library.find(name, override) is not None
