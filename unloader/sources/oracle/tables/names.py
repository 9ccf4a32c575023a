"""From a typed table name to the table or view it means, through synonyms."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.errors import SourceError
from unloader.model import TableName, TableSummary
from unloader.request.names import Folding, matching, resolve
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.tables import dictionary
from unloader.sources.oracle.tables.dictionary import Relation
from unloader.sources.oracle.tables.questions import OneTable

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

    Args:
        session: Of the parent.
        wanted: As typed.
        schema: The session's.
        where: What the database is called in messages.

    Raises:
        SourceError: No such table, several, or one behind a database link.
    """
    found = dictionary.candidates(session, wanted.name.text)
    near = {schema, PUBLIC}
    if wanted.schema is not None:
        near.update(matching(wanted.schema, {table.schema or "" for table in found}, FOLDING))
    # Other users' private synonyms are not looked at unless their schema is named.
    found = tuple(table for table in found if table.kind != "synonym" or table.schema in near)
    table = resolve(wanted, found, folding=FOLDING, default_schemas=(schema, PUBLIC), where=where)
    return _behind_synonyms(session, table, wanted)


def _behind_synonyms(session: Session, table: TableSummary, wanted: TableName) -> Relation:
    for _ in range(MAX_SYNONYMS):
        assert table.schema is not None
        if table.kind != "synonym":
            return dictionary.relation(OneTable(session), table.schema, table.name, table.kind)
        owner, name, link = dictionary.synonym_target(session, table.schema, table.name)
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
