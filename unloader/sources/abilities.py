"""Abilities that only some sources have; `Capabilities` declares which ones a source has.

A request for an ability that the source lacks is refused here, before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from unloader.errors import SourceError, UsageError
from unloader.sources.statement import not_accepted

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.model import Extract
    from unloader.sources.base import Catalog
    from writers.model import TextFormat


class QueryCatalog(Protocol):
    """What a catalog has besides where `capabilities.queries` is true."""

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of a query as a table named `query` without partitions.

        Raises:
            SourceError: The query is not valid, or columns share a name.
        """


class ConditionCatalog(Protocol):
    """What a catalog has besides where `capabilities.conditions` is true.

    Its readers read, and its `count` counts, only the rows for which `extract.where` holds.
    """

    def check_where(self, extract: Extract) -> None:
        """Check the user's condition, if there is one, before any worker sees it.

        Raises:
            SourceError: The database does not take it as one condition.
        """


class TextCatalog(Protocol):
    """What a catalog has besides where `capabilities.encoded_text` is true."""

    def encodes(self, text: TextFormat) -> bool:
        """Return whether readings for the use `encoded` give this dialect to the byte."""


class SessionCatalog(Protocol):
    """What a catalog has besides where `capabilities.sessions` is true."""

    def end_sessions_sql(self) -> str:
        """Return the statement with which an administrator ends only the run's sessions.

        Empty where the run has no name in the list of sessions.
        """


class ConnectedCatalog(Protocol):
    """What a catalog has besides where `capabilities.connects` is true."""

    def ping(self) -> None:
        """Send the database something small and wait for its answer.

        Raises:
            SourceError: The connection is lost.
        """


class AddressedCatalog(Protocol):
    """What a catalog has besides where `capabilities.addresses_are_values` is true."""

    def address_column(self, table: TableInfo) -> str | None:
        """Return the column whose values the addresses of a table's extents are; None if none's."""


class KeepingCatalog(Protocol):
    """What a catalog has besides where `capabilities.keeping` is true.

    A snapshot that ends with the process which took it cannot serve a resumed run.
    Another process keeps it if the user asks for that; otherwise nothing is done here.
    """

    def keep_until_gone(self, marks: tuple[str, ...]) -> None:
        """Keep the snapshot beyond the death of the run; before this it ends with the run.

        Args:
            marks: Absolute paths of files that hold the run's id while it can be continued.

        Raises:
            SourceError: The snapshot is gone.
        """

    def kept_until(self) -> str:
        """Return until when it is kept, in ISO 8601; empty if it is not. Never raises."""

    def end_keeping(self) -> None:
        """Stop keeping the snapshot, because the run is complete.

        Raises:
            ConfigError: The process that keeps the snapshot cannot be reached.
        """


class LoadReader(Protocol):
    """A separate session that counts active sessions; used by one thread at a time."""

    def others(self) -> int:
        """Return how many sessions are active that are not this run's, its own left out.

        Raises:
            SourceError: The database refused, or the session is lost.
        """

    def close(self) -> None:
        """Close the session; never raises."""


class LoadCatalog(Protocol):
    """What a catalog has besides where `capabilities.loads` is true."""

    def open_load(self) -> LoadReader:
        """Open a session that counts active sessions; may be called from any thread.

        Raises:
            ConfigError: The user may not see the sessions of others; the hint names the grant.
            SourceError: The database refused.
        """


def open_load(catalog: Catalog) -> LoadReader:
    """Open a session that counts active sessions.

    Raises:
        UsageError: The source cannot tell.
        ConfigError: The user may not see the sessions of others.
        SourceError: The database refused.
    """
    if not catalog.capabilities.loads:
        raise UsageError(
            "--max-db-load does not apply to this source, which does not report active sessions",
            "leave it out",
        )
    return cast(LoadCatalog, catalog).open_load()


def describe_query(catalog: Catalog, query: str) -> TableInfo:
    """Return the columns of a query.

    Raises:
        UsageError: The source knows no queries.
        SourceError: The query is not valid, or columns share a name; the message has the database's
            own words.
    """
    if not catalog.capabilities.queries:
        raise UsageError(
            "--query does not apply to this source, which does not have queries", "give --table"
        )
    try:
        return cast(QueryCatalog, catalog).describe_query(query)
    except SourceError as error:
        raise not_accepted(
            "--query", error, "give --query one SELECT, in the SQL of the database"
        ) from error


def check_where(catalog: Catalog, extract: Extract) -> None:
    """Check the user's condition, if there is one.

    Raises:
        UsageError: The source knows no conditions.
        SourceError: The database does not take it as one condition.
    """
    if catalog.capabilities.conditions:
        cast(ConditionCatalog, catalog).check_where(extract)
    elif extract.where is not None:
        raise UsageError(
            "--where does not apply to this source, which does not have conditions", "leave it out"
        )


def end_sessions_sql(catalog: Catalog) -> str:
    """Return the statement that ends the run's sessions, empty for a source without it."""
    if not catalog.capabilities.sessions:
        return ""
    return cast(SessionCatalog, catalog).end_sessions_sql()


def round_trip(catalog: Catalog) -> bool:
    """Send the database a small request and wait for its answer; False without a connection.

    Raises:
        SourceError: The connection is lost.
    """
    if not catalog.capabilities.connects:
        return False
    cast(ConnectedCatalog, catalog).ping()
    return True


def keep_until_gone(catalog: Catalog, marks: tuple[str, ...]) -> str:
    """Keep the snapshot beyond the death of the run, if that was asked for; return until when.

    Args:
        catalog: It has taken the snapshot.
        marks: Files that hold the run's id for as long as it can be continued; without any the
            snapshot ends with the run.

    Raises:
        SourceError: The snapshot is gone.
    """
    if not catalog.capabilities.keeping or not marks:
        return ""
    keeping = cast(KeepingCatalog, catalog)
    keeping.keep_until_gone(marks)
    return keeping.kept_until()


def address_column(catalog: Catalog, table: TableInfo) -> str | None:
    """Return the column whose values the addresses of a table's extents are; None if none's."""
    if not catalog.capabilities.addresses_are_values:
        return None
    return cast(AddressedCatalog, catalog).address_column(table)


def kept_until(catalog: Catalog) -> str:
    """Return until when the snapshot is kept beyond the run, in ISO 8601; empty if it is not."""
    return cast(KeepingCatalog, catalog).kept_until() if catalog.capabilities.keeping else ""


def end_keeping(catalog: Catalog) -> None:
    """Stop keeping the snapshot, because the run is complete.

    Raises:
        ConfigError: The process that keeps the snapshot cannot be reached.
    """
    if catalog.capabilities.keeping:
        cast(KeepingCatalog, catalog).end_keeping()
