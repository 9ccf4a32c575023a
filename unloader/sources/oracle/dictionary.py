"""Questions to Oracle's data dictionary: names, synonyms, columns and keys of tables.

Source of truth: the static views of the Database Reference, as they are now, also if the run has an
earlier SCN. ALL_ views show the objects on which the user has any right. Rows, blocks and row
lengths come from the statistics, which may be missing.

A question asks for one table or for many tables in one statement, so a table is described in the
same way alone and among others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct

from partition_planner.model import ColumnInfo
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
from unloader.sources.oracle.session import Session
from unloader.sources.oracle.types import ROWID, TYPES, native_text, parse_native
from unloader.sources.statement import literal, qualified, quoted

logger = logging.getLogger(__name__)

Row = tuple[Any, ...]

NAMES_TOGETHER = 500
"""Tables that one statement asks for; a list of Oracle's takes 1,000 items at most."""


class Question(Struct, frozen=True, kw_only=True):
    """A query on a dictionary view about tables."""

    select: str
    view: str
    owner: str | None = "OWNER"
    """The column with the tables' owner; None in a view of the user's own."""
    name: str = "TABLE_NAME"
    where: str = ""
    """A condition beside those on owner and name."""
    order: str = ""
    """The ORDER BY columns of the rows of one table."""


class Dictionary:
    """Asks each question once for all tables, when it first comes up; refusals are remembered."""

    def __init__(self, session: Session, tables: Iterable[tuple[str, str]]) -> None:
        self.session = session
        self._names: dict[str, list[str]] = {}
        for owner, name in tables:
            self._names.setdefault(owner, []).append(name)
        self._answers: dict[tuple[Question, str], dict[str, list[Row]] | SourceError] = {}

    def rows(self, question: Question, owner: str, name: str) -> list[Row]:
        """Return the answer for one table; `SourceError` where the user may not see the view."""
        found = self.rows_or_error(question, owner, name)
        if isinstance(found, SourceError):
            raise found
        return found

    def rows_or_error(self, question: Question, owner: str, name: str) -> list[Row] | SourceError:
        """Return the answer for one table, or why the user may not see the view."""

        def ask() -> dict[str, list[Row]]:
            names = self._names.get(owner, [])
            found: dict[str, list[Row]] = {}
            for start in range(0, len(names), NAMES_TOGETHER):
                binds = {f"n{at}": each for at, each in enumerate(names[start:][:NAMES_TOGETHER])}
                conditions = [f"{question.name} IN ({', '.join(f':{each}' for each in binds)})"]
                if question.owner:
                    conditions.insert(0, f"{question.owner} = :owner")
                    binds["owner"] = owner
                conditions += [question.where] if question.where else []
                order = f" ORDER BY {question.order}" if question.order else ""
                for table, *row in self.session.run(
                    f"SELECT {question.name}, {question.select} FROM {question.view} "
                    f"WHERE {' AND '.join(conditions)}{order}",
                    binds,
                ):
                    found.setdefault(table, []).append(tuple(row))
            return found

        known = self._answers.get((question, owner))
        if known is None:
            known = self._answers[question, owner] = self.session.allowed(ask)
            if isinstance(known, SourceError):
                logger.info("cannot read %s: %s", question.view, known.message)
        return known if isinstance(known, SourceError) else known.get(name, [])


BLOCK_BYTES = 8192
"""Size of a block where only their number is known; the database's default."""

INDEX_ORGANIZED = "index-organized table"

MAINTAINED = (
    *("SYS", "SYSTEM", "AUDSYS", "APPQOSSYS", "CTXSYS", "DBSFWUSER", "DBSNMP", "DVF", "DVSYS"),
    *("EXFSYS", "GGSYS", "GSMADMIN_INTERNAL", "LBACSYS", "MDSYS", "OJVMSYS", "OLAPSYS", "ORDDATA"),
    *("ORDPLUGINS", "ORDSYS", "OUTLN", "SI_INFORMTN_SCHEMA", "SYSMAN", "VECSYS", "WMSYS", "XDB"),
)
"""Schemas of the database itself, whose tables are not listed; they can be unloaded by name."""

OTHERS = "NOT IN (" + ", ".join(f"'{name}'" for name in MAINTAINED) + ")"

TABLES = f"""
SELECT OWNER, TABLE_NAME, NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, TEMPORARY, IOT_TYPE,
CLUSTER_NAME FROM ALL_TABLES
WHERE NESTED = 'NO' AND SECONDARY = 'N' AND DROPPED = 'NO'
AND (IOT_TYPE IS NULL OR IOT_TYPE = 'IOT') AND OWNER {OTHERS} ORDER BY OWNER, TABLE_NAME
"""
VIEWS = f"SELECT OWNER, VIEW_NAME FROM ALL_VIEWS WHERE OWNER {OTHERS}"
MATERIALIZED = f"SELECT OWNER, MVIEW_NAME FROM ALL_MVIEWS WHERE OWNER {OTHERS}"
EXTERNAL = f"SELECT OWNER, TABLE_NAME FROM ALL_EXTERNAL_TABLES WHERE OWNER {OTHERS}"
LEAF_COUNTS = """
SELECT TABLE_OWNER, TABLE_NAME,
SUM(CASE WHEN SUBPARTITION_COUNT > 0 THEN SUBPARTITION_COUNT ELSE 1 END)
FROM ALL_TAB_PARTITIONS GROUP BY TABLE_OWNER, TABLE_NAME
"""

CANDIDATES = """
SELECT OWNER, OBJECT_NAME, OBJECT_TYPE FROM ALL_OBJECTS
WHERE UPPER(OBJECT_NAME) = UPPER(:name)
AND OBJECT_TYPE IN ('TABLE', 'VIEW', 'MATERIALIZED VIEW', 'SYNONYM')
"""
SYNONYM = """
SELECT TABLE_OWNER, TABLE_NAME, DB_LINK FROM ALL_SYNONYMS
WHERE OWNER = :owner AND SYNONYM_NAME = :name
"""

TABLE = Question(
    select="NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, TEMPORARY, IOT_TYPE, CLUSTER_NAME",
    view="ALL_TABLES",
)
IS_EXTERNAL = Question(select="1", view="ALL_EXTERNAL_TABLES")
COLUMNS = Question(
    select="COLUMN_NAME, NULLABLE, DATA_TYPE, DATA_TYPE_OWNER, DATA_LENGTH, DATA_PRECISION, "
    "DATA_SCALE, CHAR_LENGTH, CHAR_USED",
    view="ALL_TAB_COLS",
    where="HIDDEN_COLUMN = 'NO'",
    order="COLUMN_ID",
)
KEY_COLUMN = Question(
    select="CC.COLUMN_NAME",
    view="ALL_CONSTRAINTS C JOIN ALL_CONS_COLUMNS CC "
    "ON CC.OWNER = C.OWNER AND CC.CONSTRAINT_NAME = C.CONSTRAINT_NAME",
    owner="C.OWNER",
    name="C.TABLE_NAME",
    where="C.CONSTRAINT_TYPE = 'P' AND CC.POSITION = 1",
)


class Relation(Struct, frozen=True, kw_only=True):
    owner: str
    name: str
    kind: str
    """table, partitioned table, index-organized table, external table, view, ..."""
    rows: int | None = None
    bytes: int | None = None

    @property
    def has_rowids(self) -> bool:
        return self.kind in ("table", "partitioned table", "materialized view")

    @property
    def is_index(self) -> bool:
        return self.kind == INDEX_ORGANIZED


def tables(session: Session) -> tuple[TableSummary, ...]:
    """Return the tables and views that the user may see, without auxiliary tables."""
    materialized = set(session.run(MATERIALIZED))
    external = set(session.run(EXTERNAL))
    leaves = {(owner, name): int(count) for owner, name, count in session.run(LEAF_COUNTS)}
    found = []
    for owner, name, rows, blocks, row_length, *facts in session.run(TABLES):
        kind = "materialized view" if (owner, name) in materialized else "table"
        kind = _kind(kind, *facts, external=partial(external.__contains__, (owner, name)))
        found.append(
            TableSummary(
                schema=owner,
                name=name,
                kind=kind,
                rows=integer(rows),
                bytes=statistical_bytes(rows, blocks, row_length),
                partitions=leaves.get((owner, name), 0),
            )
        )
    found += [
        TableSummary(schema=owner, name=name, kind="view", rows=None, bytes=None, partitions=0)
        for owner, name in session.run(VIEWS)
    ]
    return tuple(sorted(found, key=lambda table: (table.schema or "", table.name)))


def relation(dictionary: Dictionary, owner: str, name: str, kind: str) -> Relation:
    """Describe one table or view; `kind` is table, view or materialized view, as far as known."""
    found = [] if kind == "view" else dictionary.rows(TABLE, owner, name)
    if not found:
        return Relation(owner=owner, name=name, kind=kind)
    rows, blocks, row_length, *facts = found[0]
    kind = _kind(kind, *facts, external=lambda: bool(dictionary.rows(IS_EXTERNAL, owner, name)))
    return Relation(
        owner=owner,
        name=name,
        kind=kind,
        rows=integer(rows),
        bytes=statistical_bytes(rows, blocks, row_length),
    )


def _kind(
    kind: str,
    partitioned: str,
    temporary: str,
    iot: str | None,
    cluster: str | None,
    *,
    external: Callable[[], bool],
) -> str:
    if iot is not None:
        return INDEX_ORGANIZED
    if temporary == "Y":
        return "temporary table"
    if cluster is not None:
        return "clustered table"
    if kind == "table" and external():
        return "external table"
    return "partitioned table" if kind == "table" and partitioned == "YES" else kind


def columns(dictionary: Dictionary, table: Relation) -> tuple[ColumnInfo, ...]:
    attributes = () if table.has_rowids else ((ROWID, "no"),)
    return tuple(
        ColumnInfo(
            name=name,
            native_type=column_type(data_type, type_owner, length, facts),
            nullable=nullable == "Y",
            attributes=attributes,
        )
        for name, nullable, data_type, type_owner, length, *facts in dictionary.rows(
            COLUMNS, table.owner, table.name
        )
    )


def column_type(
    data_type: str, type_owner: str | None, length: int | None, facts: list[int | str | None]
) -> str:
    """Return a type as `native_text` prints it; only users' types have a `type_owner`.

    `facts` are DATA_PRECISION, DATA_SCALE, CHAR_LENGTH and CHAR_USED.
    """
    precision, scale, characters, used = facts
    if type_owner is not None:
        return f"{type_owner}.{data_type}"
    if data_type == "NUMBER" and precision is None and scale == 0:
        precision = 38  # INTEGER, which SQL*Plus and the driver describe so.
    sized = length if data_type in ("RAW", "UROWID") else characters
    return native_text(
        data_type,
        precision=integer(precision),
        scale=integer(scale),
        length=integer(sized),
        in_chars=used == "C",
    )


def statistical_bytes(
    rows: float | None, blocks: float | None, row_length: float | None
) -> int | None:
    """Return the size that statistics amount to, None where they do not."""
    if blocks:
        return int(blocks) * BLOCK_BYTES
    if rows is None or row_length is None:
        return None
    return int(rows) * int(row_length)


def integer(value: object) -> int | None:
    return int(str(value)) if value is not None else None


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

_SERVING = ("MLOG$_", "RUPD$_")
"""How names of tables begin that keep the changes of another one for materialized views."""

Key = tuple[str, str]


def listed_tables(session: Session, user: str, *, at_scn: bool) -> list[ListedTable]:
    """Return the tables of all users; `at_scn`: to read them takes a right on SCNs, too."""
    # Rights on all tables, on all tables of a schema, or on one.
    rights: set[Row] = {*session.run(IN_GENERAL), *session.run(ON_TABLES)}
    if session.version[0] >= SCHEMA_PRIVILEGES_VERSION:
        allowed = session.allowed(partial(session.run, ON_SCHEMAS))
        rights.update(() if isinstance(allowed, SourceError) else allowed)
    unreadable: dict[Key, list[UnreadableColumn]] = {}
    for owner, table, name, data_type, type_owner, length, *facts in session.run(UNUSUAL_COLUMNS):
        native = column_type(data_type, type_owner, length, facts)
        if parse_native(native).name not in TYPES:
            unreadable.setdefault((owner, table), []).append(of_unread_type(name, native))

    def may(schema: str, name: str, word: str) -> bool:
        by_all = f"{word} ANY TABLE"
        return not rights.isdisjoint({(by_all,), (schema, by_all), (schema, name, word)})

    found = []
    for each in tables(session):
        key, obstacles = (each.schema or "", each.name), list[Obstacle]()
        name, grantee = qualified(*key), quoted(user)
        # The owner of a table needs no rights.
        if each.schema != user and not (may(*key, "SELECT") or may(*key, "READ")):
            what = f"user {user} may not read it"
            grant = f"GRANT SELECT ON {name} TO {grantee}"
            obstacles.append(Obstacle(kind="no right", what=what, mend=(grant,)))
        if each.schema != user and at_scn and not may(*key, "FLASHBACK"):
            what = f"user {user} may not read it as of an SCN"
            grant = f"GRANT FLASHBACK ON {name} TO {grantee}"
            hint = "run with --consistency none, if only this right is missing"
            obstacles.append(Obstacle(kind="no right", what=what, mend=(grant,), hint=hint))
        listed = ListedTable(
            schema=each.schema,
            name=each.name,
            kind=each.kind,
            family=family_of(each.kind),
            system=each.name.startswith(_SERVING),
            obstacles=tuple(obstacles),
            unreadable=tuple(unreadable.get(key, ())),
        )
        found.append(listed)
    return found


FOLDING: Folding = "upper"


def find(session: Session, wanted: TableName, schema: str, where: str) -> Relation:
    """Return the table or view that a typed name means.

    As in Oracle: a plain name means the one in upper case, and without a schema first the session's
    own, then public synonyms. Another user's table is never meant without its schema. Where Oracle
    would find nothing, a plain name means one that only differs in case. A link is refused.
    """

    def candidates(name: str) -> list[TableSummary]:
        """Return the tables, views and synonyms with the name, in any case and schema."""
        kinds: dict[tuple[str, str], str] = {}
        for owner, found, kind in session.run(CANDIDATES, {"name": name}):
            # A materialized view is listed as the table it is kept in, too.
            if kind != "TABLE" or (owner, found) not in kinds:
                kinds[owner, found] = kind.lower()
        return [
            TableSummary(schema=owner, name=found, kind=kind, rows=None, bytes=None, partitions=0)
            for (owner, found), kind in sorted(kinds.items())
        ]

    found = candidates(wanted.name.text)
    near = {schema, "PUBLIC"}
    if wanted.schema is not None:
        near.update(matching(wanted.schema, {table.schema or "" for table in found}, FOLDING))
    # Other users' private synonyms are not looked at unless their schema is named.
    found = [table for table in found if table.kind != "synonym" or table.schema in near]
    table = resolve(wanted, found, folding=FOLDING, default_schemas=(schema, "PUBLIC"), where=where)
    for _ in range(16):  # Synonyms of synonyms; Oracle refuses circles, too.
        assert table.schema is not None
        if table.kind != "synonym":
            asked = Dictionary(session, [(table.schema, table.name)])
            return relation(asked, table.schema, table.name, table.kind)
        binds = {"owner": table.schema, "name": table.name}
        owner, name, link = (session.run(SYNONYM, binds) or [(None, table.name, None)])[0]
        if link is not None:
            raise SourceError(
                f"{wanted} is a synonym of {name} in another database, by the link {link}",
                "connect to that database, or read the table with --query and --consistency none",
            )
        key = (owner or table.schema, name)
        behind = [each for each in candidates(name) if (each.schema, each.name) == key]
        if not behind:
            raise SourceError(
                f"{wanted} is a synonym of {key[0]}.{name}, which does not exist or which this "
                "user may not read",
                f"ask its owner to run GRANT SELECT ON {key[0]}.{name}",
            )
        table = behind[0]
    raise SourceError(f"{wanted} is a synonym of itself", "name the table itself")
