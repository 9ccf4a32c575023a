"""The list of an Oracle database's tables, and the obstacles to reading a table.

The data dictionary is read as it is now, also if the run has an earlier SCN. The ALL_ views show
the tables on which the user has any right; other tables are not in the list.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import SourceError
from unloader.model import TableName, TableSummary
from unloader.request.names import Folding, matching, resolve
from unloader.selection.listing import (
    ListedTable,
    Obstacle,
    UnreadableColumn,
    family_of,
    of_unread_type,
)
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.tables import dictionary
from unloader.sources.oracle.tables.dictionary import OTHERS, Dictionary, Relation
from unloader.sources.oracle.types import TYPES, parse_native
from unloader.sources.statement import literal, qualified, quoted

logger = logging.getLogger(__name__)

_ANY = ("SELECT ANY TABLE", "READ ANY TABLE", "FLASHBACK ANY TABLE")
_WORDS = ", ".join(map(literal, _ANY))

IN_GENERAL = f"SELECT PRIVILEGE FROM SESSION_PRIVS WHERE PRIVILEGE IN ({_WORDS})"
ON_SCHEMAS = f"SELECT SCHEMA, PRIVILEGE FROM SESSION_SCHEMA_PRIVS WHERE PRIVILEGE IN ({_WORDS})"
ON_TABLES = f"""
SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE FROM ALL_TAB_PRIVS
WHERE PRIVILEGE IN ('SELECT', 'READ', 'FLASHBACK') AND TABLE_SCHEMA {OTHERS}
AND (GRANTEE IN (USER, 'PUBLIC') OR GRANTEE IN (SELECT ROLE FROM SESSION_ROLES))
"""
_PLAIN_TYPES = ", ".join(
    literal(name) for name in TYPES if not name.startswith(("TIMESTAMP", "INTERVAL"))
)
UNUSUAL_COLUMNS = f"""
SELECT OWNER, TABLE_NAME, COLUMN_NAME, DATA_TYPE, DATA_TYPE_OWNER, DATA_LENGTH, DATA_PRECISION,
DATA_SCALE, CHAR_LENGTH, CHAR_USED FROM ALL_TAB_COLS
WHERE HIDDEN_COLUMN = 'NO' AND OWNER {OTHERS}
AND (DATA_TYPE_OWNER IS NOT NULL OR (DATA_TYPE NOT IN ({_PLAIN_TYPES})
AND DATA_TYPE NOT LIKE 'TIMESTAMP%' AND DATA_TYPE NOT LIKE 'INTERVAL%'))
ORDER BY OWNER, TABLE_NAME, COLUMN_ID
"""
"""Selects columns of rare types, which include all types that cannot be read."""

SCHEMA_PRIVILEGES_VERSION = 23
"""First major version in which a right can be granted on a schema."""

_SERVING = ("MLOG$_", "RUPD$_")
"""How names of tables begin that keep the changes of another one for materialized views."""

Key = tuple[str, str]


class _Rights(Struct, frozen=True, kw_only=True):
    """The user's rights on objects of other users."""

    general: frozenset[str]
    """System privileges."""
    schemas: frozenset[tuple[str, str]]
    """Schema and system privilege."""
    tables: frozenset[tuple[str, str, str]]
    """Owner, name and object privilege."""

    def may(self, table: Key, *privileges: str) -> bool:
        """Return whether he has one of these object privileges on a table, however he got it."""
        for word in privileges:
            by_all = f"{word} ANY TABLE"
            if by_all in self.general or (table[0], by_all) in self.schemas:
                return True
            if (*table, word) in self.tables:
                return True
        return False


def listed_tables(session: Session, user: str, *, at_scn: bool) -> list[ListedTable]:
    """Return the tables and views of all users of whom this one sees any, in no order.

    Args:
        at_scn: They are to be read as of an SCN, which needs an additional right.
    """
    schemas: list[tuple[str, str]] = []
    if session.version[0] >= SCHEMA_PRIVILEGES_VERSION:
        try:
            schemas = [(schema, word) for schema, word in session.run(ON_SCHEMAS)]
        except SourceError as error:
            if not session.alive:
                raise
            logger.info("cannot read SESSION_SCHEMA_PRIVS: %s", error.message)
    rights = _Rights(
        general=frozenset(word for (word,) in session.run(IN_GENERAL)),
        schemas=frozenset(schemas),
        tables=frozenset((owner, name, word) for owner, name, word in session.run(ON_TABLES)),
    )
    unreadable: dict[Key, list[UnreadableColumn]] = {}
    for owner, table, name, data_type, type_owner, length, *facts in session.run(UNUSUAL_COLUMNS):
        native = dictionary.column_type(data_type, type_owner, length, facts)
        if parse_native(native).name not in TYPES:
            unreadable.setdefault((owner, table), []).append(of_unread_type(name, native))
    return [
        ListedTable(
            schema=table.schema,
            name=table.name,
            kind=table.kind,
            family=family_of(table.kind),
            system=table.name.startswith(_SERVING),
            obstacles=tuple(_obstacles(table, user, rights, at_scn=at_scn)),
            unreadable=tuple(unreadable.get((table.schema or "", table.name), ())),
        )
        for table in dictionary.tables(session)
    ]


def _obstacles(
    table: TableSummary, user: str, rights: _Rights, *, at_scn: bool
) -> Iterator[Obstacle]:
    """Yield the missing rights; the owner of a table needs no rights."""
    if table.schema == user:
        return
    key = (table.schema or "", table.name)
    name, grantee = qualified(table.schema, table.name), quoted(user)
    if not rights.may(key, "SELECT", "READ"):
        yield Obstacle(
            kind="no right",
            what=f"user {user} may not read it",
            mend=(f"GRANT SELECT ON {name} TO {grantee}",),
        )
    if at_scn and not rights.may(key, "FLASHBACK"):
        yield Obstacle(
            kind="no right",
            what=f"user {user} may not read it as of an SCN",
            mend=(f"GRANT FLASHBACK ON {name} TO {grantee}",),
            hint="run with --consistency none, if only this right is missing",
        )


PUBLIC = "PUBLIC"
"""Owner of the synonyms that everybody has."""

FOLDING: Folding = "upper"

MAX_SYNONYMS = 16
"""Synonyms of synonyms that are followed; Oracle refuses circles, too."""


def find(session: Session, wanted: TableName, schema: str, where: str) -> Relation:
    """Return the table or view that a typed name means.

    As in Oracle: a plain name means the one in upper case, and without a schema first the session's
    own, then public synonyms. Another user's table is never meant without its schema. Where Oracle
    would find nothing, a plain name means one that only differs in case.

    Raises:
        SourceError: The table is missing, ambiguous, or on another database (a link).
    """
    found = dictionary.candidates(session, wanted.name.text)
    near = {schema, PUBLIC}
    if wanted.schema is not None:
        near.update(matching(wanted.schema, {table.schema or "" for table in found}, FOLDING))
    # Other users' private synonyms are not looked at unless their schema is named.
    found = tuple(table for table in found if table.kind != "synonym" or table.schema in near)
    table = resolve(wanted, found, folding=FOLDING, default_schemas=(schema, PUBLIC), where=where)
    for _ in range(MAX_SYNONYMS):
        assert table.schema is not None
        if table.kind != "synonym":
            asked = Dictionary(session, [(table.schema, table.name)])
            return dictionary.relation(asked, table.schema, table.name, table.kind)
        binds = {"owner": table.schema, "name": table.name}
        owner, name, link = (session.run(dictionary.SYNONYM, binds) or [(None, table.name, None)])[
            0
        ]
        if link is not None:
            raise SourceError(
                f"{wanted} is a synonym of {name} in another database, by the link {link}",
                "connect to that database, or read the table with --query and --consistency none",
            )
        target = owner or table.schema
        behind = dictionary.candidates(session, name)
        table = next(
            (each for each in behind if (each.schema, each.name) == (target, name)),
            replace(table, kind=""),
        )
        if not table.kind:
            raise SourceError(
                f"{wanted} is a synonym of {target}.{name}, which does not exist or which this "
                "user may not read",
                f"ask its owner to run GRANT SELECT ON {target}.{name}",
            )
    raise SourceError(f"{wanted} is a synonym of itself", "name the table itself")
