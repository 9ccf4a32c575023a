"""What there is in the database: users, tables, views, synonyms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from oracle_server.data.moments import now
from oracle_server.data.tables import Table
from oracle_server.model import Column

Name = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class User:
    """Somebody who may log in."""

    name: str
    password: str
    user_id: int
    proxies: set[str] = field(default_factory=set)
    """Users who may connect through this one's account: `proxy[name]`."""
    token: str | None = None
    """An access token that opens the account, where one does."""


@dataclass(slots=True, kw_only=True)
class View:
    """A view; it runs with the rights of its owner."""

    owner: str
    name: str
    sql: str
    columns: tuple[Column, ...]
    object_id: int


@dataclass(slots=True, kw_only=True)
class Catalog:
    """All objects by (owner, name). `version` grows with every change of them."""

    users: dict[str, User] = field(default_factory=dict)
    tables: dict[Name, Table] = field(default_factory=dict)
    views: dict[Name, View] = field(default_factory=dict)
    synonyms: dict[Name, Name] = field(default_factory=dict)
    synonym_ids: dict[Name, int] = field(default_factory=dict)
    comments: dict[Name, str] = field(default_factory=dict)
    """Of tables."""
    version: int = 0
    next_object: int = 70_000

    def object_id(self) -> int:
        """Return a number no object has."""
        self.next_object += 1
        return self.next_object

    def find(self, owner: str | None, name: str, schema: str) -> Table | View | None:
        """Return the table or view a statement means, through synonyms."""
        where = owner or schema
        for _ in range(4):
            found = self.tables.get((where, name)) or self.views.get((where, name))
            if found is not None:
                return found
            target = self.synonyms.get((where, name))
            if target is None and owner in (None, "PUBLIC"):
                target = self.synonyms.get(("PUBLIC", name))
            if target is None:
                return None
            where, name = target
            owner = where
        return None

    def relations(self) -> Iterator[Table | View]:
        """Yield every table and view, by owner and name."""
        everything: dict[Name, Table | View] = {**self.tables, **self.views}
        for key in sorted(everything):
            yield everything[key]


CREATED = now()._replace(zone=None, nanos=0)
"""When all objects were made, as the dictionary has it."""
