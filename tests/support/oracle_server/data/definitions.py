"""All that a database has: users, tables, views, and their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from oracle_server.data.moments import now
from oracle_server.data.privileges import Privileges
from oracle_server.data.tables import (
    HEADER_BLOCKS,
    Layout,
    PartitionSpec,
    Row,
    Segment,
    Storage,
    Table,
)
from oracle_server.model import Column, OracleError, SessionState

Name = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class User:
    """Someone who may log in."""

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


FILES = (4, 7, 5)
"""Relative file numbers of the tablespace USERS, in the order extents go to them."""


class Definitions:
    """The part of a database that defines objects and changes rows."""

    version: str
    catalog: Catalog
    storage: Storage
    privileges: Privileges
    lock: RLock
    scn: int
    undo_from: int
    sessions: dict[int, SessionState]
    """The ones that have run a statement, by sid."""

    @property
    def users(self) -> dict[str, User]:
        """Who may log in, by name."""
        return self.catalog.users

    def add_user(self, name: str, password: str, *, dba: bool = False) -> User:
        with self.lock:
            user = User(name=name, password=password, user_id=100 + len(self.catalog.users))
            self.catalog.users[name] = user
            self.privileges.add_user(name, dba=dba)
            self.catalog.version += 1
            return user

    def create_table(
        self,
        owner: str,
        name: str,
        *,
        columns: tuple[Column, ...],
        partitions: tuple[PartitionSpec, ...] = (),
        organization: str = "heap",
        key: tuple[str, ...] = (),
        rows: Iterable[Sequence[Any]] = (),
        partition_of: Callable[[Row], Any] | None = None,
        partition_key: tuple[str, ...] = (),
        partitioning: str = "HASH",
        rows_per_block: int = 50,
        blocks_per_extent: int = 8,
        files: tuple[int, ...] = FILES,
        materialized: bool = False,
    ) -> Table:
        """Create a table and commit its first rows.

        Args:
            owner: The schema; its user exists.
            partitions: In order; all with or all without sub-partitions.
            organization: heap, index or external.
            key: Columns of the primary key; required of an index-organized table.
            partition_of: From a row, the name or number of the segment it belongs in; by a hash of
                the first partition key column where None.
            partition_key: Columns; the first of the table where empty.
            partitioning: HASH, RANGE or LIST, as the dictionary names it.
            rows_per_block: Rows of a full block.
            blocks_per_extent: Blocks of every extent.
            files: Relative file numbers to spread extents over.
            materialized: Whether it is the container of a materialized view.
        """
        with self.lock:
            table = Table(
                owner=owner,
                name=name,
                columns=columns,
                object_id=self.catalog.object_id(),
                segments=[],
                partitions=partitions,
                partition_key=partition_key or ((columns[0].name,) if partitions else ()),
                partitioning=partitioning,
                partition_of=partition_of,
                organization=organization,
                key=key,
                materialized=materialized,
                files=files,
                blocks_per_extent=blocks_per_extent,
            )
            self._make_segments(table, rows_per_block)
            self._commit_definition(table, 1466)
            self.catalog.tables[owner, name] = table
            self._fill(table, rows)
            return table

    def _make_segments(self, table: Table, rows_per_block: int) -> None:
        for spec in table.partitions:
            if spec.subpartitions:
                table.partition_objects[spec.name] = self.catalog.object_id()
            for sub in spec.subpartitions or (None,):
                table.segments.append(self._segment(table, spec.name, sub, rows_per_block))
        if not table.partitions:
            segment = self._segment(table, None, None, rows_per_block)
            segment.object_id = segment.data_object_id = table.object_id
            table.segments.append(segment)

    def _segment(
        self, table: Table, partition: str | None, sub: str | None, rows_per_block: int
    ) -> Segment:
        number = self.catalog.object_id()
        layout = Layout(rows_per_block=rows_per_block)
        return Segment(
            partition=partition,
            subpartition=sub,
            object_id=number,
            data_object_id=number,
            layout=layout,
        )

    def _commit_definition(self, table: Table, code: int) -> None:
        texts = {
            1466: "unable to read data - table definition has changed",
            8103: "object no longer exists",
        }
        self.scn += 1
        table.definition_scn = self.scn
        table.definition_error = OracleError(code, texts[code])
        self.catalog.version += 1

    def _fill(self, table: Table, rows: Iterable[Sequence[Any]]) -> int:
        groups: dict[int, list[Row]] = {}
        for row in table.prepared(rows):
            groups.setdefault(id(table.segment_for(row)), []).append(row)
        if not groups:
            self._make_room(table, {})
            return 0
        self.scn += 1
        wanted = {id(s): len(s) + len(groups.get(id(s), ())) for s in table.segments}
        self._make_room(table, wanted)
        count = sum(s.append(groups.get(id(s), ()), self.scn) for s in table.segments)
        self.catalog.version += 1
        return count

    def lay_down(self, table: Table, bases: Sequence[Sequence[Row]]) -> None:
        """Set the rows of an empty table's segments, as sequences outside it.

        For tables too large to be held as Python values; one sequence for each segment, its rows
        stored as they are.
        """
        with self.lock:
            self.scn += 1
            sizes = {id(s): len(b) for s, b in zip(table.segments, bases, strict=True)}
            self._make_room(table, sizes)
            for segment, base in zip(table.segments, bases, strict=True):
                segment.base = base
                if len(base):
                    segment.births.append((0, self.scn))
                    segment.mark(self.scn)
            self.catalog.version += 1

    def _make_room(self, table: Table, wanted: dict[int, int]) -> None:
        """Add extents for the wanted rows to each segment; segments of one table take turns."""
        size = max(table.blocks_per_extent, HEADER_BLOCKS + 1)
        if table.organization == "external":
            return
        short = [s for s in table.segments if not s.layout.extents or self._short(s, wanted)]
        found: dict[int, list[Any]] = {id(s): [] for s in short}
        room = {id(s): s.layout.capacity for s in short}
        while short:
            for segment in short:
                first = not segment.layout.extents and not found[id(segment)]
                blocks = size - (HEADER_BLOCKS if first else 0)
                found[id(segment)].append(self.storage.allocate(size, table.files))
                room[id(segment)] += blocks * segment.layout.rows_per_block
            short = [s for s in short if room[id(s)] < wanted.get(id(s), 0)]
        for segment in table.segments:
            for extent in sorted(found.get(id(segment), ())):
                segment.layout.add(extent)

    @staticmethod
    def _short(segment: Segment, wanted: dict[int, int]) -> bool:
        return segment.layout.capacity < wanted.get(id(segment), 0)

    def table(self, owner: str, name: str) -> Table:
        """Return a table.

        Raises:
            OracleError: ORA-00942.
        """
        with self.lock:
            found = self.catalog.tables.get((owner, name))
            if found is None:
                raise OracleError(942, "table or view does not exist")
            return found

    def insert(self, owner: str, name: str, rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows and commit; return how many."""
        with self.lock:
            return self._fill(self.table(owner, name), rows)

    def delete(self, owner: str, name: str, predicate: Callable[[Row], bool]) -> int:
        """Delete the rows for which a function of the row is true, and commit; return how many."""
        return self._change(owner, name, predicate, lambda row: None)

    def update(
        self,
        owner: str,
        name: str,
        predicate: Callable[[Row], bool],
        change: Callable[[Row], Sequence[Any]],
    ) -> int:
        """Give rows the values a function makes of them, and commit; return how many."""
        return self._change(owner, name, predicate, change)

    def _change(
        self,
        owner: str,
        name: str,
        predicate: Callable[[Row], bool],
        change: Callable[[Row], Sequence[Any] | None],
    ) -> int:
        with self.lock:
            table = self.table(owner, name)
            self.scn += 1
            count = 0
            for segment in table.segments:
                view = segment.view(self.scn)
                for position, row in [found for found in view.rows() if predicate(found[1])]:
                    new = change(row)
                    values = None if new is None else next(table.prepared([new]))
                    segment.change(position, values, self.scn)
                    count += 1
            self.catalog.version += 1
            return count

    def truncate(
        self, owner: str, name: str, partition: str | None = None, *, code: int = 1466
    ) -> None:
        """Remove all rows of a table or partition, which gets a new data object id.

        Queries that are being read fail with ORA-08103, later ones as of before with `code`.
        """
        with self.lock:
            table = self.table(owner, name)
            for segment in list(table.selected(partition, None)):
                self._replace(table, segment)
            self._commit_definition(table, code)

    def _replace(self, table: Table, segment: Segment) -> Segment:
        """Put an empty segment in the place of another, which is gone for its readers."""
        segment.gone = True
        fresh = Segment(
            partition=segment.partition,
            subpartition=segment.subpartition,
            object_id=segment.object_id,
            data_object_id=self.catalog.object_id(),
            layout=Layout(rows_per_block=segment.layout.rows_per_block),
        )
        table.segments[table.segments.index(segment)] = fresh
        self._make_room(table, {})
        return fresh

    def exchange_partition(
        self, owner: str, name: str, partition: str, rows: Iterable[Sequence[Any]]
    ) -> None:
        """Put other rows in the place of a partition's, as EXCHANGE PARTITION does."""
        with self.lock:
            table = self.table(owner, name)
            old = table.selected(partition, None)[0]
            fresh = self._replace(table, old)
            self._commit_definition(table, 1466)
            stored = list(table.prepared(rows))
            self.scn += 1
            self._make_room(table, {id(fresh): len(stored)})
            fresh.append(stored, self.scn)
            table.definition_scn = self.scn

    def ddl(self, owner: str, name: str, columns: tuple[Column, ...] | None = None) -> None:
        """Change a table's definition: older SCNs cannot be read any more.

        Args:
            columns: New columns, as many as before; None leaves them.
        """
        with self.lock:
            table = self.table(owner, name)
            if columns is not None:
                table.columns = columns
                table.object_id = table.object_id
            self._commit_definition(table, 1466)

    def drop_table(self, owner: str, name: str) -> None:
        """Drop a table; queries that are being read fail with ORA-08103."""
        with self.lock:
            table = self.table(owner, name)
            for segment in table.segments:
                segment.gone = True
            del self.catalog.tables[owner, name]
            self.scn += 1
            self.catalog.version += 1

    def create_view(self, owner: str, name: str, sql: str) -> View:
        """Create a view.

        Raises:
            OracleError: The query is wrong.
        """
        with self.lock:
            session = SessionState(user=owner, schema=owner, sid=0, serial=0)
            columns = self.describe(session, sql)
            if columns is None:
                raise OracleError(900, "invalid SQL statement")
            number = self.catalog.object_id()
            view = View(owner=owner, name=name, sql=sql, columns=columns, object_id=number)
            self.catalog.views[owner, name] = view
            self.scn += 1
            self.catalog.version += 1
            return view

    def describe(self, session: SessionState, sql: str) -> tuple[Column, ...] | None:
        raise NotImplementedError

    def create_synonym(self, owner: str, name: str, target: tuple[str, str]) -> None:
        """Create a synonym for (owner, name); of the owner PUBLIC for everybody."""
        with self.lock:
            self.catalog.synonyms[owner, name] = target
            self.catalog.synonym_ids[owner, name] = self.catalog.object_id()
            self.catalog.version += 1

    def commit(self) -> int:
        """Raise the SCN as other work in the database does; return it."""
        with self.lock:
            self.scn += 1
            return self.scn

    def expire_undo(self, before_scn: int) -> None:
        """Forget how rows were before an SCN: queries as of then fail with ORA-01555."""
        with self.lock:
            self.undo_from = max(self.undo_from, before_scn)
