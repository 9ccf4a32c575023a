"""Locks many tables for one snapshot: all together, or each by itself where one is in the way.

A run that waits for a lock keeps all that it has locked so far from being altered, and all its
tables from being read. So the wait is short at first. Only the tables that others have locked are
waited for, at the end, and all of them no longer than one would be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from unloader.errors import SnapshotGone, SourceError
from unloader.sources.postgres.dictionary import SHORT_SECONDS
from unloader.sources.postgres.errors import LOCK_NOT_AVAILABLE, state_of
from unloader.sources.postgres.session import Session
from unloader.sources.several import Held


def held_tables(
    session: Session,
    tables: Sequence[Held],
    *,
    alone: Callable[[Held], bool],
    together: Callable[[Sequence[Held]], bool],
    one: Callable[[Held], None],
    patience_seconds: float,
) -> tuple[SourceError | None, ...]:
    """Hold tables; return what keeps each from being held.

    Args:
        session: Within the transaction of the snapshot.
        tables: What is to be held.
        alone: Tells of one that can only be held by itself.
        together: Holds the others, and returns whether they are as they were at the snapshot.
        one: Holds one, or raises.
        patience_seconds: How long all the locks of others may be waited for; 0 is as the server is
            set.

    Raises:
        SourceError: The connection is lost.
    """
    short = min(SHORT_SECONDS, patience_seconds or SHORT_SECONDS)
    several = [number for number, table in enumerate(tables) if not alone(table)]
    found: list[SourceError | None] = [None] * len(tables)
    try:
        with session.waiting(short), session.apart():
            if not together([tables[number] for number in several]):
                raise SourceError("a table has changed")
    except SourceError:
        _check_alive(session)
        several = []
    for number in sorted(set(range(len(tables))) - set(several)):
        with session.waiting(short):
            found[number] = _error_of(session, one, tables[number])
    end = time.monotonic() + patience_seconds
    for at, error in enumerate(found):
        if error is None or state_of(error.__cause__) != LOCK_NOT_AVAILABLE:
            continue
        if not patience_seconds:
            found[at] = _error_of(session, one, tables[at])
            continue
        with session.waiting(max(end - time.monotonic(), SHORT_SECONDS)):
            found[at] = _error_of(session, one, tables[at])
    return tuple(found)


def _error_of(session: Session, one: Callable[[Held], None], table: Held) -> SourceError | None:
    try:
        one(table)
    except SourceError as error:
        _check_alive(session, error)
        return error
    return None


def _check_alive(session: Session, error: SourceError | None = None) -> None:
    if session.alive:
        return
    if error is not None:
        raise error
    # The statement fails with the words of a lost connection.
    session.value("SELECT 1")
    raise SnapshotGone("the connection that holds the snapshot is lost", "run again")
