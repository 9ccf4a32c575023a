"""What a source lists: its tables, what is known of each at a glance, and whether it can be read.

Made by a source in a fixed number of statements, however many tables there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from unloader.model import TableSummary
from unloader.request.names import Folding

Family = Literal["table", "materialized view", "view", "external table", "temporary table"]
"""What a pattern tells apart. table: rows of its own, partitioned or not, whatever the order they
are stored in. external table: rows that lie elsewhere, foreign and virtual ones among them.
temporary table: rows that only the session which wrote them can see."""

FAMILIES: tuple[Family, ...] = (
    "table",
    "materialized view",
    "view",
    "external table",
    "temporary table",
)

STORED: tuple[Family, ...] = ("table", "materialized view")
"""The families whose rows the database itself stores; a pattern means these where none are asked
for."""

ObstacleKind = Literal["no right", "rows hidden", "not populated", "gone", "refused"]
"""no right: to read the table. rows hidden: policies choose the rows.
not populated: a materialized view that was never filled. gone: not what it was at the snapshot.
refused: the database does not describe it."""


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why a table cannot be unloaded, and what would mend it."""

    kind: ObstacleKind
    what: str
    """In the words of a sentence whose subject is the table: `user x has no right to ...`."""
    mend: tuple[str, ...] = ()
    """SQL, a statement each, without semicolons; for whoever may run it."""
    hint: str = ""
    """What to do next where no statement mends it."""


class UnreadableColumn(Struct, frozen=True, kw_only=True):
    """A column that cannot be unloaded, for its type or for want of a right; the others can."""

    name: str
    what: str
    """In the words of a sentence whose subject is the column."""
    mend: tuple[str, ...] = ()
    """SQL that mends it, a statement each, without semicolons."""


def of_unread_type(name: str, native_type: str) -> UnreadableColumn:
    """Return a column whose type has no exact reading."""
    what = f"has the type {native_type}, which cannot be read exactly"
    return UnreadableColumn(name=name, what=what)


def family_of(kind: str) -> Family:
    """Return the family of a kind, by the words that sources use; others are tables."""
    families: dict[str, Family] = {
        "view": "view",
        "materialized view": "materialized view",
        "external table": "external table",
        "foreign table": "external table",
        "virtual table": "external table",
        "temporary table": "temporary table",
    }
    return families.get(kind, "table")


class ListedTable(Struct, frozen=True, kw_only=True):
    """One table or view of a source."""

    schema: str | None
    name: str
    kind: str
    """As the source calls it: partitioned table, index-organized table, foreign table, ..."""
    family: Family
    system: bool = False
    """Of the database itself, or one that serves another table; no pattern matches it."""
    part_of: tuple[str, str] | None = None
    """(schema, name) of a table whose rows include those of this one: PostgreSQL's inheritance."""
    obstacles: tuple[Obstacle, ...] = ()
    unreadable: tuple[UnreadableColumn, ...] = ()

    @classmethod
    def of(cls, table: TableSummary, *, system: bool = False) -> ListedTable:
        """Return a table as it is listed by a source that knows no more of it."""
        return cls(
            schema=table.schema,
            name=table.name,
            kind=table.kind,
            family=family_of(table.kind),
            system=system,
        )

    @property
    def readable(self) -> bool:
        """Whether this user may read it, as far as the catalogue tells."""
        return not self.obstacles

    @property
    def key(self) -> tuple[str, str]:
        """Schema and name: what tells it from every other, and the order of listings."""
        return (self.schema or "", self.name)

    @property
    def label(self) -> str:
        """Its name for messages, as `TableInfo.label`."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class Listing(Struct, frozen=True, kw_only=True, dict=True):
    """All tables of a source, and how names are read there."""

    tables: tuple[ListedTable, ...]
    """By schema and name, in the order of code points, whatever the database's own order is."""
    folding: Folding
    default_schemas: tuple[str, ...]
    """Where a name without a schema is looked for; the first that has it wins."""
    where: str
    """What the database is called in messages."""

    @cached_property
    def by_schema(self) -> Mapping[str, Sequence[ListedTable]]:
        """The same tables by their schemas."""
        found: dict[str, list[ListedTable]] = {}
        for table in self.tables:
            found.setdefault(table.key[0], []).append(table)
        return found

    @classmethod
    def of(
        cls,
        tables: list[ListedTable],
        *,
        folding: Folding,
        default_schemas: tuple[str, ...],
        where: str,
    ) -> Listing:
        """Return the listing of tables that come in any order."""
        return cls(
            tables=tuple(sorted(tables, key=lambda table: table.key)),
            folding=folding,
            default_schemas=default_schemas,
            where=where,
        )
