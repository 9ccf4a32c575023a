"""Where the rows are, as of when they are read, and which columns in which form."""

from __future__ import annotations

import pickle
from collections import deque
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from partition_planner.model import TableInfo
from unloader.request.option import CONNECTING, PLANNING, REACHING, READING, Option
from unloader.request.value_types import (
    KEEPING,
    NUMBER_FORM,
    SECONDS,
    SIZE_FROM_1,
    STATEMENTS,
    Kind,
    choice,
    path,
    whole,
)

Consistency = Literal["snapshot", "none"]

Fetch = Literal["auto", "arrow", "tuples", "native"]


class SecretReference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the password is found, so that parent and children each look there themselves."""

    kind: Literal["none", "environment", "file", "keyring"] = "none"
    name: str = ""
    """The environment variable, the absolute path of the file, or `SERVICE/USER` in a keyring."""


_session = partial(Option, group="Session", commands=READING, effect="none")
_value = partial(
    Option,
    group="Selection",
    commands=READING,
    effect="changes",
    scope="table",
    formats=("parquet",),
)


class SessionOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How sessions are opened and kept; `Source.options` names the fields that a source knows."""

    fetch: Annotated[Fetch, _session(example="tuples")] = "auto"
    """Let the driver build columns (arrow), build columns from rows of values (tuples), or decode
    the server's responses in C++ (native). auto is native where the driver decodes the first 20,000
    rows of each table, and later responses, to equal values. Only Oracle."""
    fetch_witness: Annotated[int, _session(whole(0), example="16")] = 64
    """With --fetch auto: the driver also decodes one response in N after the first 20,000 rows, and
    all values are compared. 0 compares only the first 20,000 rows. Only Oracle."""
    scn: Annotated[int | None, _session(whole(1), effect="selects")] = None
    """Read at this system change number instead of the current one. Only Oracle."""
    # Statements that each new session runs before anything else.
    session_sql: Annotated[
        tuple[str, ...],
        _session(
            STATEMENTS,
            commands=REACHING,
            effect="selects",
            empty=True,
            secret=True,
            example="\"ALTER SESSION SET TIME_ZONE = 'UTC'\"",
        ),
    ] = ()
    """Run this statement in every session before it reads. Repeat it for more statements. Only
    Oracle."""
    parallel_query: Annotated[bool, _session()] = False
    """Let the database use parallel query for the statements of the run. Only Oracle."""
    direct_read: Annotated[bool, _session(opposite=True)] = True
    """Ask for direct path reads, which bypass the buffer cache. Only Oracle."""
    call_timeout_seconds: Annotated[
        float, _session(SECONDS, commands=CONNECTING, name="call-timeout")
    ] = 0.0
    """Longest wait in seconds for an answer from the database; 0 sets no limit. Only Oracle."""
    # Directory of the vendor's client library, "" for where it is usually found, None for none.
    client_library: Annotated[
        str | None,
        _session(
            path("DIR"),
            commands=CONNECTING,
            empty=True,
            shape=lambda directory: "" if directory == "auto" else directory,
            example="/opt/oracle/instantclient",
        ),
    ] = None
    """Connect through Oracle's client library in DIR (thick mode); auto searches the usual places.
    Only Oracle."""
    enable_row_security: Annotated[bool, _session(commands=CONNECTING, effect="selects")] = False
    """Unload only the rows that policies of row-level security show to the user. Without this
    option, a policy that may hide rows is an error. PostgreSQL."""
    lock_timeout_seconds: Annotated[
        float, _session(SECONDS, commands=CONNECTING, name="lock-timeout")
    ] = 30.0
    """Longest wait in seconds for a lock that another session has; 0 keeps the limit of the server.
    PostgreSQL and MySQL."""
    keep_snapshot_seconds: Annotated[
        float,
        _session(
            KEEPING,
            commands=PLANNING,
            kept=False,
            name="keep-snapshot",
            not_for={"streams": "output to a stream cannot be resumed"},
        ),
    ] = 0.0
    """Keep the snapshot for this time from its start, such as 12h, so that a run that dies can be
    resumed. The snapshot of a plan is kept while the plan's file exists, so that its parts can be
    run. Meanwhile the server keeps old row versions. 0 keeps no snapshot. PostgreSQL."""
    split_by: Annotated[
        str | None, _session(Kind("COLUMN"), example="ORDER_ID --consistency none")
    ] = None
    """Divide each table into ranges of this column, which holds numbers, dates or texts. An index
    on the column makes the ranges fast. ADBC and ODBC."""
    odbc_dialect: Annotated[
        Literal["postgresql", "mariadb", "sqlite", "generic"] | None,
        _session(
            choice("postgresql", "mariadb", "sqlite", "generic"),
            commands=CONNECTING,
            effect="changes",
            default_text="found",
            example="generic",
        ),
    ] = None
    """The kind of the database. Values of postgresql, mariadb and sqlite are exact. generic reads
    values as the driver returns them, and marks columns as not proved. Without the option, the
    database is asked for its kind. ODBC."""
    odbc_value_bytes: Annotated[int, _session(SIZE_FROM_1)] = 16 * 1024 * 1024
    """Bytes of the longest value. A value longer than this fails the run, with the name of its
    column. Buffers grow to this length only if values need it. ODBC."""
    snapshot: str | None = None
    """The value of the snapshot that the parent enters; None takes a new one. Set for one process,
    by `Source.at_snapshot`, and never part of a run."""
    run_id: str = ""
    """Names the run in the database's list of sessions; empty outside a run."""


class SourceSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One database: its kind (a key of the source registry) and where it is."""

    kind: str
    location: str
    """The URL as the user gave it; it never holds a password."""
    secret: SecretReference = field(
        default_factory=SecretReference,
        # What follows the word "secret" is taken for one, and hidden.
        name="credential",
    )
    session: SessionOptions = field(default_factory=SessionOptions)


class NamePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a table or column name as the user wrote it."""

    text: str
    quoted: bool = False
    """Quoted names match exactly; plain ones as the database folds them."""


class TableName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`NAME` or `SCHEMA.NAME` as the user wrote it; a source resolves it."""

    schema: NamePart | None
    name: NamePart

    def __str__(self) -> str:
        """Return the name as typed, without its quotes."""
        return f"{self.schema.text}.{self.name.text}" if self.schema else self.name.text


class TableSummary(Struct, frozen=True, kw_only=True):
    """One line of the list of tables."""

    schema: str | None
    name: str
    kind: str
    """table, partitioned table, view, ... as the source calls it."""
    rows: int | None
    bytes: int | None
    partitions: int


class Snapshot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one consistent point that every worker reads at."""

    kind: str
    """The source's word for the kind of snapshot, such as scn; `none` without a snapshot."""
    value: str
    """What a worker needs to enter it."""
    taken_at: str
    """ISO 8601, UTC."""

    def is_same(self, other: Snapshot | None) -> bool:
        """Return whether another one is of the same state, whenever it was taken."""
        return other is not None and (self.kind, self.value) == (other.kind, other.value)


Nanoseconds = Literal["string", "timestamp"]

Lossless = bool | Literal["masked", "changed"]
"""Whether a column has the source's values. masked, changed: it has others on purpose."""


class ReadColumn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of the output: how it is read and what becomes of it."""

    name: str
    source_type: str
    expression: str
    """SQL of the select list, without the alias."""
    output_type: str
    """The Arrow type in Parquet, `text` where the database itself renders the value."""
    nullable: bool | None
    lossless: Lossless
    note: str = ""


class Projection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of a run, fixed once by the parent for all workers."""

    columns: tuple[ReadColumn, ...]
    route: Literal["arrow", "encoded"]
    """arrow: record batches; encoded: the source renders the very text asked for."""
    schema: str
    """The Arrow schema of the batches, as `writers.schema.schema_text` writes it; empty on the
    encoded route."""
    outputs: tuple[tuple[int, ...], ...] = ()
    """Which of the columns each output takes, by index; empty where there is one output, of all."""
    filters: tuple[tuple[int, ...], ...] | None = None
    """Which of the columns the filter of each output looks at; None where no output has one."""


class ValueOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of values that the usual Arrow types cannot hold; see `Source.options`."""

    number_without_precision: Annotated[str, _value(NUMBER_FORM, example="'decimal(38,10)'")] = (
        "string"
    )
    """In Parquet, write a NUMBER without precision as exact text, as a decimal(p,s) that must fit
    every value, or as a double, which may round. Only Oracle."""
    nanoseconds: Annotated[Nanoseconds, _value()] = "string"
    """In Parquet, write timestamps with 7 to 9 digits as exact text, or as nanoseconds, which end
    in 2262. Only Oracle."""
    zone_columns: Annotated[bool, _value()] = False
    """In Parquet, add a column with the zone of each timestamp with time zone. Only Oracle."""


class SampledKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Only rows whose key is in a sample are read; see `unloader.sources.statement`."""

    column: str
    """The column that holds the key."""
    share: float
    """Of all keys that there may be, above 0 and below 1."""
    text: str
    """SQL for the key's text; NULL or empty where a row has no key."""
    condition: str
    """SQL that is true for the rows of the sample; empty where readers choose the rows."""


class Extract(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data to read, apart from the cut into units; the same for every worker."""

    source: SourceSpec
    snapshot: Snapshot | None
    table: TableInfo
    query: str | None
    where: str | None
    partitions: tuple[str, ...] = ()
    """Patterns of the partitions asked for; empty is all. They determine the expected rows: the
    units' selectors hold the read partitions."""
    keys: SampledKeys | None = None
    """None is the rows of all keys."""
    limit_rows: int | None = None
    """At most this number of rows is read, in any order; one unit reads them."""
    projection: Projection

    @property
    def is_plain(self) -> bool:
        """Whether a table is read, or its rows for which `where` holds, and nothing else."""
        return not (self.query or self.partitions or self.keys or self.limit_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled as bytes that are made once.

        Every task of a run holds its extract. Where they are read again, one object serves all of
        them, so data derived from it can be kept, too.
        """
        for known, made in tuple(_pickled):  # Agents of several runs may be in one process.
            if known is self:
                return _read_again, (made,)
        made = pickle.dumps(asdict(self), protocol=pickle.HIGHEST_PROTOCOL)
        _pickled.append((self, made))
        return _read_again, (made,)


_FEW = 4
"""The number of extracts whose bytes, or objects, are kept: a run has one for each table."""

_pickled: deque[tuple[Extract, bytes]] = deque(maxlen=_FEW)


@lru_cache(maxsize=_FEW)
def _read_again(made: bytes) -> Extract:
    return Extract(**pickle.loads(made))
