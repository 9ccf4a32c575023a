"""Where the rows are, and as of when they are read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Consistency = Literal["snapshot", "none"]

Fetch = Literal["auto", "arrow", "tuples", "native"]


class SecretReference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the password is found, so that parent and children each look there themselves."""

    kind: Literal["none", "environment", "file", "keyring"] = "none"
    name: str = ""
    """The environment variable, the absolute path of the file, or `SERVICE/USER` in a keyring."""


class SessionOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the sessions of a run are opened and kept; a source uses what it knows of.

    `Source.options` names the fields a source knows; others must keep their defaults.
    """

    fetch: Fetch = "auto"
    """arrow: the driver builds the batches; tuples: rows of Python values, which we convert;
    native: rows are taken out of the server's responses."""
    confirm_fetch: bool = False
    """Compare the native fetch with the driver's before the run, and remember who agreed."""
    scn: int | None = None
    """The system change number to read at, instead of the present one."""
    session_sql: tuple[str, ...] = ()
    """Statements that each new session runs before anything else."""
    parallel_query: bool = False
    """The database may use parallel servers of its own for our statements."""
    direct_read: bool = True
    """Ask for reads that go past the database's buffer cache."""
    call_timeout_seconds: float = 0.0
    """Longest wait for one answer of the database; 0 is none of its own."""
    client_library: str | None = None
    """Directory of the vendor's client library, "" for where it is usually found, None for none."""
    enable_row_security: bool = False
    """Policies of row level security may choose the rows; without it they are an error."""
    lock_timeout_seconds: float = 30.0
    """Longest wait for a lock that another session holds; 0 is as the server is set."""
    keep_snapshot_seconds: float = 0.0
    """How long the snapshot of a run that died is kept, from when it was taken; 0 is not at all."""
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
    """The source's own word for what it is, such as scn; `none` where there is none."""
    value: str
    """What a worker needs to enter it."""
    taken_at: str
    """ISO 8601, UTC."""

    def is_same(self, other: Snapshot | None) -> bool:
        """Return whether another one is of the same state, whenever it was taken."""
        return other is not None and (self.kind, self.value) == (other.kind, other.value)
