"""Locks for the tables of a run, and for what functions read.

A run that waits for a lock keeps all that it has locked so far from being altered, and all its
tables from being read. So the wait is short at first. Only the tables that others have locked are
waited for, at the end, and all of them no longer than one would be.

The lock of a SELECT is on the relations that the server plans. It does not plan what a function
reads when it is called, unless it is SQL that is taken into the statement. So relations that a
function names are locked here: by the dependencies of a body that the server has parsed, or by the
words of its text. What is built from text while the function runs (EXECUTE) is not found. A worker
looks after reading whether anything that it has locked itself had changed, see `PostgresReader`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.sources.many_tables import Held
from unloader.sources.postgres import dictionary
from unloader.sources.postgres.dictionary import SHORT_SECONDS
from unloader.sources.postgres.errors import LOCK_NOT_AVAILABLE, state_of
from unloader.sources.postgres.session import Session


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


CALLED = """
WITH RECURSIVE root (class, object) AS (
  SELECT 'pg_rewrite'::regclass, r.oid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
  JOIN pg_rewrite r ON r.ev_class = c.oid
  WHERE l.pid = pg_backend_pid() AND l.relation >= 16384 AND c.relkind = 'v'
  UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_locks l
  JOIN pg_policy p ON p.polrelid = l.relation
  WHERE l.pid = pg_backend_pid() AND row_security_active(l.relation)
  UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  WHERE p.proname = ANY ($1::text[]) AND n.nspname = ANY ($2::text[])),
used (class, object) AS (
  SELECT class, object FROM root
  UNION SELECT 'pg_proc'::regclass,
    CASE d.refclassid WHEN 'pg_operator'::regclass THEN o.oprcode::oid ELSE d.refobjid END
  FROM used JOIN pg_depend d ON d.classid = used.class AND d.objid = used.object
    AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
  LEFT JOIN pg_operator o ON o.oid = d.refobjid)
SELECT p.oid, quote_ident(n.nspname) || '.' || quote_ident(p.proname) AS name, p.prosrc AS body,
       p.proconfig AS settings,
       ARRAY(SELECT quote_ident(rn.nspname) || '.' || quote_ident(r.relname)
             FROM pg_depend d JOIN pg_class r ON r.oid = d.refobjid
             JOIN pg_namespace rn ON rn.oid = r.relnamespace
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
               AND d.refclassid = 'pg_class'::regclass) AS relations
FROM used JOIN pg_proc p ON p.oid = used.object JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
WHERE used.class = 'pg_proc'::regclass AND p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c')
ORDER BY 2
"""
"""Functions that views and policies of locked relations call, those of some names, and those that
these call as far as the server knows. Numbers from 16384 on are users' own."""

NAMED = """
SELECT DISTINCT ON (given.at) quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (schema, name, at)
JOIN pg_class c ON c.relname = given.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_namespace n ON n.oid = c.relnamespace
  AND (n.nspname = given.schema OR given.schema IS NULL AND n.nspname = ANY ($3::text[]))
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY given.at, array_position($3::text[], n.nspname::text)
"""

FOREIGN = """
SELECT DISTINCT c.oid::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND c.relkind = 'f' ORDER BY 1
"""

_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"({_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})*)(\s*\()?")
_PART = re.compile(_IDENTIFIER)


class Called(Struct, frozen=True, kw_only=True):
    """The functions of users that are called, by name, and what else cannot be locked."""

    functions: tuple[str, ...]
    unlocked: tuple[str, ...]
    """Relations that they name and that could not be locked."""
    foreign: tuple[str, ...]
    """Foreign tables among all that is locked."""


def hold_called(session: Session, texts: Sequence[str]) -> Called:
    """Lock the relations that functions name.

    Args:
        session: Within the transaction of the snapshot, in which everything else is locked.
        texts: Queries and conditions of the user.

    Raises:
        TransientSourceError: A lock is not to be had, or the connection is lost.
    """
    path = dictionary.users_schemas(session, implicit=False)
    found: dict[int, str] = {}
    unlocked: dict[str, None] = {}
    names, schemas = set[str](), set(path)
    for text in texts:
        names |= {name for _, name, is_call in _names(text) if is_call}
        schemas |= {schema for schema, _, _ in _names(text) if schema}
    while True:
        rows = session.rows(CALLED, sorted(names), sorted(schemas))
        new = [row for row in rows if row.oid not in found]
        if not new:
            break
        for row in new:
            found[row.oid] = row.name
            own = _path_of(row.settings) or path
            named = list(_names(row.body))
            names |= {name for _, name, is_call in named if is_call}
            schemas |= {*own, *(schema for schema, _, _ in named if schema)}
            unlocked |= dict.fromkeys(_not_locked(session, row, own, named))
    foreign = tuple(str(row[0]) for row in session.rows(FOREIGN))
    functions = tuple(dict.fromkeys(found.values()))
    return Called(functions=functions, unlocked=tuple(unlocked), foreign=foreign)


def _not_locked(
    session: Session,
    function: Any,
    path: Sequence[str],
    named: Sequence[tuple[str | None, str, bool]],
) -> Iterator[str]:
    """Lock what one function names, and yield what could not be locked."""
    pairs = list(dict.fromkeys((schema, name) for schema, name, _ in named))
    rows = session.rows(NAMED, [each[0] for each in pairs], [each[1] for each in pairs], list(path))
    relations = {row[0] for row in rows} | set(function.relations)
    locked = set(dictionary.lock(session, sorted(relations), relations))
    for relation in sorted(relations - locked):
        try:
            with session.apart(), session.users_path():
                session.rows(f"EXPLAIN SELECT FROM {relation}")
        except TransientSourceError:
            raise
        except SourceError:
            yield relation  # The user of the run has no right to read it, or it is gone.


def _names(text: str) -> Iterator[tuple[str | None, str, bool]]:
    """Yield schema and name of all that may be a name in a text, and whether it looks called.

    Of a longer chain, such as that of a column, the first two names count. Texts in quotes are
    looked at as well: they may be statements.
    """
    for match in _NAME.finditer(text):
        parts = [_plain(part) for part in _PART.findall(match[1])]
        is_call = match[2] is not None
        yield (parts[0], parts[1], is_call) if len(parts) > 1 else (None, parts[0], is_call)
        if len(parts) > 1:
            yield None, parts[0], False  # `table.column`


def _plain(identifier: str) -> str:
    if identifier.startswith('"'):
        return identifier[1:-1].replace('""', '"')
    return identifier.lower()


def _path_of(settings: Sequence[str] | None) -> tuple[str, ...]:
    """Return the schemas of the search path that a function sets for itself; () without one."""
    for setting in settings or ():
        if setting.startswith("search_path="):
            return tuple(map(_plain, _PART.findall(setting.partition("=")[2])))
    return ()
