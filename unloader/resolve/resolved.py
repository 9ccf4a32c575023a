"""A run in which nothing is left to decide: what `plan` writes and `run` executes.

Frozen, complete and without a secret. It is written to `_run/` of the destination before the first
row is read, and the manifest is made from it. Its JSON is read back as an equal run.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.json import Encoder
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.errors import PlanError
from partition_planner.model import Plan
from unloader.errors import ConfigError, PlanFailed
from unloader.model import (
    EncryptionOptions,
    Extract,
    OutputOptions,
    Projection,
    Request,
    SecretReference,
)
from unloader.placement.seating import Seating, SeatPlan
from unloader.redaction import holds_sql_password
from unloader.resolve.outputs.transforming import ResolvedTransform
from unloader.secrets.secret_places import is_proof_of, proof_of
from unloader.storage.place_names import is_kept
from unloader.transforms.model import MaskingKey, TransformOptions
from writers.codecs.choice import Choice
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat

FORMAT_VERSION = 4

_AGAIN = "make the plan again: unloader plan SOURCE --output FILE"


class ResolvedOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One output of a run."""

    options: OutputOptions
    """What was asked for: the place, the names of files, their size, how they are written."""
    format: TextFormat | ParquetFormat
    """With the fields of records of fixed width, and columns named as the source names them."""
    compression: Compression
    choice: Choice | None
    """How a preset chose the codec; None if it was named."""
    transform: ResolvedTransform | None = None
    """What is done to the rows; None writes them as they are read."""

    def written(self, read: Projection) -> Projection:
        """Return the columns that are written.

        Args:
            read: Those that are read for this output.
        """
        return read if self.transform is None else self.transform.written

    @property
    def task_transform(self) -> TransformOptions | None:
        """What a worker is told to do to the rows."""
        return None if self.transform is None else self.transform.options

    def spec(self, directory: str) -> OutputSpec:
        """Return what a writer is given that writes into a directory."""
        return self.options.spec(directory, self.format, self.compression)


class ResolvedRun(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format_version",
    tag=FORMAT_VERSION,
):
    """One run, from the source that it reads to the seats of its workers."""

    run_id: str
    request: Request
    """What was asked, as it was asked. Limits, retries and checks, of which nothing was left to be
    decided, stand here alone."""
    server_version: str
    extract: Extract
    """What is read: source, snapshot, table or query, and how each column is read."""
    plan: Plan
    outputs: tuple[ResolvedOutput, ...]
    topology: Topology
    """The machine that the seats are on."""
    seating: Seating
    withheld: tuple[str, ...] = ()
    """Options whose value holds a password, so that they are not kept and must be given again."""
    session_sql_proof: str = ""
    """Tells whether statements given again are the same, without telling what they are."""

    @property
    def output(self) -> ResolvedOutput:
        """The first output."""
        return self.outputs[0]

    @property
    def written(self) -> Projection:
        """The columns that the first output writes; others are read for the others, or a filter."""
        if self.request.routes is None:
            return self.output.written(self.extract.projection)
        from unloader.resolve.outputs.columns import projection_of_output

        return self.output.written(projection_of_output(self.extract.projection, 0))

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories of all outputs."""
        return tuple(
            place
            for output in self.outputs
            for place in output.options.destinations
            if is_kept((place,))
        )

    def without_secrets(self) -> ResolvedRun:
        """Return the run as it may be written where the user asks for it."""
        statements = self.request.source.session.session_sql
        return self._with_session_sql(
            tuple(each for each in statements if not holds_sql_password(each))
        )

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> ResolvedRun:
        """Return the run with what its record does not hold.

        Args:
            secret: Where the password is found now; None is where it was.
            session_sql: The statements that `is_session_sql` takes.
        """
        run = self
        if secret is not None:
            asked = replace(self.request, source=replace(self.request.source, secret=secret))
            read = replace(self.extract, source=replace(self.extract.source, secret=secret))
            run = replace(self, request=asked, extract=read)
        return run._with_statements(session_sql)

    def with_encryption(self, encryption: EncryptionOptions, number: int = 0) -> ResolvedRun:
        """Return the run with other places where the keys of the files of an output are found."""
        outputs = list(self.outputs)
        options = replace(outputs[number].options, encryption=encryption)
        outputs[number] = replace(outputs[number], options=options)
        asked, key = self.request, replace(encryption, key_proof="")
        if not number:
            asked = replace(asked, output=replace(asked.output, encryption=key))
        if asked.routes is not None:
            routes = list(asked.routes)
            own = replace(routes[number].output, encryption=key)
            routes[number] = replace(routes[number], output=own)
            asked = replace(asked, routes=tuple(routes))
        return replace(self, outputs=tuple(outputs), request=asked)

    def with_masking_keys(self, keys: tuple[MaskingKey, ...]) -> ResolvedRun:
        """Return the run with other places where the keys of masks are found."""
        if all(output.transform is None for output in self.outputs):
            return self
        from unloader.resolve.outputs.transforming import with_key_places

        def moved(options: OutputOptions) -> OutputOptions:
            known = options.transform
            if known is None:
                return options
            return replace(options, transform=with_key_places(known, keys))

        asked = replace(self.request, output=moved(self.request.output))
        if asked.routes is not None:
            routes = (replace(each, output=moved(each.output)) for each in asked.routes)
            asked = replace(asked, routes=tuple(routes))
        outputs = (
            output
            if output.transform is None
            else replace(
                output,
                options=moved(output.options),
                transform=replace(
                    output.transform, options=with_key_places(output.transform.options, keys)
                ),
            )
            for output in self.outputs
        )
        return replace(self, outputs=tuple(outputs), request=asked)

    def seated(self, seats: SeatPlan) -> ResolvedRun:
        """Return the run with the seats of its workers on the machine as it is now.

        Args:
            seats: All that it may have.
        """
        workers = min(seats.parallelism, len(self.plan.units))
        return replace(self, topology=seats.topology, seating=seats.first(workers))

    def is_session_sql(self, statements: tuple[str, ...]) -> bool:
        """Return whether these are the statements that the run's sessions had."""
        return is_proof_of(_encoded(statements), self.session_sql_proof)

    def _with_session_sql(self, kept: tuple[str, ...]) -> ResolvedRun:
        had = self.request.source.session.session_sql
        if kept == had:
            return self
        withheld = (*self.withheld, "session-sql")
        run = replace(self._with_statements(kept), withheld=withheld)
        return replace(run, session_sql_proof=proof_of(_encoded(had)))

    def _with_statements(self, kept: tuple[str, ...]) -> ResolvedRun:
        source = self.request.source
        asked = replace(source, session=replace(source.session, session_sql=kept))
        used = self.extract.source
        read = replace(used, session=replace(used.session, session_sql=kept))
        return replace(
            self,
            request=replace(self.request, source=asked),
            extract=replace(self.extract, source=read),
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
    def from_json(cls, value: object) -> ResolvedRun:
        """Return the run that `to_json` wrote.

        Raises:
            PlanFailed: It is of another format version, is incomplete, has a key or a value that
                does not belong there, or was changed after it was made.
        """
        parts = checked_version(value)
        digest = parts.pop("run_digest", None)
        try:
            run = convert(parts, cls)
            run.plan.check()
        except PlanError as error:
            message, _, hint = str(error).partition(" Next: ")
            raise PlanFailed(message, hint or _AGAIN) from error
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
