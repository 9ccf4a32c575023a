"""The SCN that all workers read at, and the right to read other users' tables as of it.

Nothing holds it: the database keeps what a reader needs for as long as its undo reaches back. So a
later process can read at it, too, and a standby that is open for reading gives one as well.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from msgspec import Struct

from unloader.errors import SnapshotGone, SourceError
from unloader.model import Consistency, Snapshot
from unloader.sources.oracle.connection.session import Session

SCN = "scn"
"""The kind of a snapshot here."""

logger = logging.getLogger(__name__)


class ScnQuery(Struct, frozen=True, kw_only=True):
    """One way to learn the present SCN."""

    name: str
    sql: str
    grant: str
    """What makes it possible, apart from the user's name; empty if everybody may."""


SCN_QUERIES = (
    ScnQuery(
        name="V$DATABASE",
        sql="SELECT CURRENT_SCN FROM V$DATABASE",
        grant="GRANT SELECT ON SYS.V_$DATABASE",
    ),
    ScnQuery(
        name="DBMS_FLASHBACK",
        sql="SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER FROM DUAL",
        grant="GRANT EXECUTE ON SYS.DBMS_FLASHBACK",
    ),
    ScnQuery(
        name="TIMESTAMP_TO_SCN",
        sql="SELECT TIMESTAMP_TO_SCN(SYSTIMESTAMP) FROM DUAL",
        grant="",
    ),
)
"""In the order they are tried, exact ones first. The last may lie up to three seconds back, the
grain of the database's table of times; that is as consistent, but a table made or altered within
them cannot be read."""


def current_scn(session: Session) -> tuple[int, ScnQuery] | None:
    """Return the present SCN and how it was learnt, None if the user may not know it."""
    for query in SCN_QUERIES:
        try:
            found = session.value(query.sql)
        except SourceError as error:
            if not session.alive:
                raise
            logger.info("%s does not give the SCN: %s", query.name, error.message)
            continue
        if found is not None:
            return int(found), query
    return None


def take_snapshot(
    session: Session, user: str, consistency: Consistency, wanted: int | None
) -> Snapshot:
    """Return the SCN to read at.

    Args:
        session: Of the parent.
        user: Who is connected, for the grant.
        consistency: none: no SCN at all.
        wanted: An SCN that was asked for; whether undo reaches back to it turns out on reading.

    Raises:
        SourceError: The user may not know the SCN.
        SnapshotGone: The one asked for lies in the future.
    """
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    if consistency == "none":
        return Snapshot(kind="none", value="", taken_at=taken_at)
    found = current_scn(session)
    if wanted is not None:
        if found is not None and found[1].grant and wanted > found[0]:
            # That of an earlier run does where the database was set back since.
            raise SnapshotGone(
                f"SCN {wanted} is in the future: the database is at {found[0]}",
                "give --scn a number that the database has reached, or leave --scn out",
            )
        return Snapshot(kind=SCN, value=str(wanted), taken_at=taken_at)
    if found is None:
        raise SourceError(
            f"{user} may not read the current SCN, so the workers cannot share one snapshot",
            f"ask a DBA to run {SCN_QUERIES[0].grant} TO {user}, or run with --consistency none",
        )
    return Snapshot(kind=SCN, value=str(found[0]), taken_at=taken_at)


def check_readable(session: Session, user: str, relation: str, at: str, owner_hint: str) -> None:
    """Return if the user may read a relation as of the snapshot; no row is read.

    Args:
        session: Of the parent.
        user: Who is connected, for the grant.
        relation: Table or query as SQL.
        at: The AS OF clause with a blank before it, empty without a snapshot.
        owner_hint: The table as it stands in a grant; empty for a query.

    Raises:
        SourceError: The right to select or to look back is missing, or the snapshot is gone.
    """
    try:
        session.run(f"SELECT 1 FROM {relation}{at} WHERE 1 = 0")
    except SourceError as error:
        if not at or not session.alive or not _is_refusal(error):
            raise
        session.run(f"SELECT 1 FROM {relation} WHERE 1 = 0")
        grant = (
            f"ask its owner to run GRANT FLASHBACK ON {owner_hint} TO {user}"
            if owner_hint
            else f"GRANT FLASHBACK to {user} on each of its tables that belongs to another user"
        )
        raise SourceError(
            f"{user} may not read {owner_hint or 'the query'} as of an SCN: {error.message}",
            f"{grant}, or run with --consistency none",
        ) from error


def _is_refusal(error: SourceError) -> bool:
    return any(code in error.message for code in ("ORA-01031", "ORA-41900", "ORA-00942"))
