"""The parent's side of an Oracle database: its tables, the SCN to read at, and row counts.

The module also has the SQL that selects a sample of keys for `unloader.sources.statement`.

STANDARD_HASH hashes bytes of the database's character set. Keys with letters outside ASCII have the
same hash as on other sources only if that character set is AL32UTF8.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from partition_planner.model import ColumnInfo, RowRange, Selector, TableInfo
from unloader.errors import ConfigError, SnapshotGone, SourceError, TransientSourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    SampledKeys,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.names import matching_partitions
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources import statement as common
from unloader.sources.base import Capabilities, Catalog, LoadReader
from unloader.sources.oracle import dictionary
from unloader.sources.oracle import statement as statements
from unloader.sources.oracle.dictionary import FOLDING, Dictionary, Relation, find, listed_tables
from unloader.sources.oracle.layout import Layout, lay_out, object_ids
from unloader.sources.oracle.session import PROGRAM, Session, client_identifier
from unloader.sources.oracle.statement import relation
from unloader.sources.oracle.types import described_column, number_text, parse_native, readings_of
from unloader.sources.questions import GONE
from unloader.sources.readings import ColumnReadings

_WHO = (
    "SELECT USER, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'), SYS_CONTEXT('USERENV', 'SERVICE_NAME') "
    "FROM DUAL"
)

logger = logging.getLogger(__name__)

_KILLED = "ORA-00028"
_QUERY = re.compile(r"(?is)(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:SELECT|WITH)\b")
"""How a query begins. `PURGE RECYCLEBIN` in parentheses would be one, too: a table, an alias."""


SCN_GRANT = "GRANT SELECT ON SYS.V_$DATABASE"
SCN_QUERIES = {
    "V$DATABASE": "SELECT CURRENT_SCN FROM V$DATABASE",
    "DBMS_FLASHBACK": "SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER FROM DUAL",
    "TIMESTAMP_TO_SCN": "SELECT TIMESTAMP_TO_SCN(SYSTIMESTAMP) FROM DUAL",
}
"""In the order they are tried, exact ones first. The last may lie up to three seconds back, the
grain of the database's table of times; that is as consistent, but a table made or altered within
them cannot be read."""


class OracleCatalog(Catalog):
    """The parent's session; opened again where the database ended it while the workers read."""

    capabilities = Capabilities(
        shared_snapshot=True, snapshot_outlives_run=True, folding=FOLDING, hashes=True, samples=True
    )

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._session = Session(self._spec, action="parent", scans=False)
        self._snapshot: Snapshot | None = None
        self._described: dict[tuple[str, str], tuple[Relation, Layout]] = {}
        self._readable: set[str] = set()
        self._user, self._schema, service = self._session.run(_WHO)[0]
        self._where = service or "the database"
        self.server_version = "Oracle " + ".".join(map(str, self._session.version))

    def tables(self) -> tuple[TableSummary, ...]:
        return dictionary.tables(self._session)

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        found = find(self._session, table, self._schema, self._where)
        observe(PhaseStarted(phase="columns"))
        asked = Dictionary(self._session, [(found.owner, found.name)])
        return self._info(asked, found, observe)

    def list_tables(self) -> Listing:
        at_scn = bool(statements.as_of(self._snapshot))
        return Listing.of(
            listed_tables(self._session, self._user, at_scn=at_scn),
            folding=self.capabilities.folding,
            default_schemas=(self._schema,),
            where=self._where,
        )

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Describe many tables with one query of each kind; samples are read table by table."""
        observe(PhaseStarted(phase="columns"))
        together = Dictionary(self._session, [table.key for table in tables])
        made: list[TableInfo | Obstacle] = []
        for table in tables:
            kind = table.kind if table.kind in ("view", "materialized view") else "table"
            found = dictionary.relation(together, *table.key, kind)
            has_columns = bool(dictionary.columns(together, found))
            made.append(self._info(together, found, silent) if has_columns else GONE)
        return tuple(made)

    def _info(self, asked: Dictionary, found: Relation, observe: Observer) -> TableInfo:
        """Describe a table, and store its layout for `hold` and the other methods."""
        columns = dictionary.columns(asked, found)
        layout = lay_out(asked, found, columns, self._user, observe)
        self._described[found.owner, found.name] = (found, layout)
        only = None if layout.partitioned else layout.parts[0]
        sizes = [part.bytes for part in layout.parts if part.bytes is not None]
        return TableInfo(
            schema=found.owner,
            name=found.name,
            columns=columns,
            partitions=() if only else layout.parts,
            rows=found.rows,
            bytes=sum(sizes) if sizes else found.bytes,
            extents=only.extents if only else (),
            keys=only.keys if only else None,
            object_id=only.object_id if only else None,
            ranges_from=layout.ranges_from,
            named_partitions=True,
            row_ranges=any(part.extents or part.keys for part in layout.parts),
        )

    def describe_query(self, query: str) -> TableInfo:
        # Text that is not a query must not be parsed, as parsing runs DDL. It is parsed first in
        # parentheses, then bare: `SELECT 1 FROM DUAL) a, (SELECT 2 FROM DUAL` differs in them.
        if _QUERY.match(query) is None:
            raise SourceError("it is not a query", "begin it with SELECT or WITH")
        self._session.parse(f"SELECT * FROM {statements.query_relation(query)}")
        found = self._session.parse(query.strip().rstrip(";"))
        names = [info.name for info in found]
        common.check_distinct(names)
        for name in names:
            if '"' in name:
                # An expression is named by its text, and no name can hold a double quote.
                raise SourceError(f"the column {name} has no name", "give it an alias")
        return common.query_table([described_column(info) for info in found])

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return the grants that would make the SCN exact and the ranges of ROWIDs even."""
        described = self._described.get((table.schema or "", table.name))
        if described is None:
            return ()
        owned, layout = described
        found = self._current_scn()
        grant = f"{SCN_GRANT} TO {self._user}"
        if found is None:
            lacks = f"cannot read the current SCN, so only --consistency none works: {grant}"
            return (lacks, *layout.missing)
        scn, is_exact = found
        missing = []
        if not is_exact:
            missing.append(
                f"the SCN comes from TIMESTAMP_TO_SCN and may be three seconds old: {grant}"
            )
        name = common.qualified(owned.owner, owned.name)
        try:
            self._check_readable(name, f" AS OF SCN {scn}", name)
        except SourceError as error:
            if not self._session.alive:
                raise
            missing.append(f"{error.message}: {error.hint}")
        return (*missing, *layout.missing)

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Return the SCN to read at; whether undo reaches back to it turns out on reading."""
        wanted = self._spec.session.scn
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if consistency == "none":
            self._snapshot = Snapshot(kind="none", value="", taken_at=taken_at)
            return self._snapshot
        found = self._current_scn()
        if wanted is not None and found is not None and found[1] and wanted > found[0]:
            # An SCN of an earlier run is in the future if the database was set back since.
            raise SnapshotGone(
                f"SCN {wanted} is in the future: the database is at {found[0]}",
                "give --scn a number that the database has reached, or leave --scn out",
            )
        if wanted is None and found is None:
            raise SourceError(
                f"{self._user} may not read the current SCN, so the workers cannot share one "
                "snapshot",
                f"ask a DBA to run {SCN_GRANT} TO {self._user}, or run with --consistency none",
            )
        scn = found[0] if wanted is None and found is not None else wanted
        self._snapshot = Snapshot(kind=statements.SCN, value=str(scn), taken_at=taken_at)
        return self._snapshot

    def _current_scn(self) -> tuple[int, bool] | None:
        """Return the present SCN and whether it is exact, None if the user may not know it."""
        for name, sql in SCN_QUERIES.items():
            found = self._session.allowed(partial(self._session.value, sql))
            if isinstance(found, SourceError):
                logger.info("%s does not give the SCN: %s", name, found.message)
            elif found is not None:
                return int(found), name != "TIMESTAMP_TO_SCN"
        return None

    def _check_readable(self, relation: str, at: str, owner_hint: str) -> None:
        """Return if the user may read a relation as of the snapshot; no row is read.

        `at` is the AS OF clause with a blank before it. `owner_hint` is the table as a GRANT names
        it; empty for a query.
        """
        session = self._session
        try:
            session.run(f"SELECT 1 FROM {relation}{at} WHERE 1 = 0")
        except SourceError as error:
            refused = any(code in error.message for code in ("ORA-01031", "ORA-41900", "ORA-00942"))
            if not at or not session.alive or not refused:
                raise
            session.run(f"SELECT 1 FROM {relation} WHERE 1 = 0")
            grant = f"ask its owner to run GRANT FLASHBACK ON {owner_hint} TO {self._user}"
            if not owner_hint:
                grant = f"GRANT FLASHBACK to {self._user} on each table of another user in it"
            raise SourceError(
                f"{self._user} may not read {owner_hint or 'the query'} as of an SCN: "
                f"{error.message}",
                f"{grant}, or run with --consistency none",
            ) from error

    def check_snapshot(self) -> None:
        """Check that the tables read so far can still be read at the SCN, as lost undo stays lost.

        A lost connection does not fail this check, as the workers have other connections. A session
        that was killed on purpose has to end the run: a retry would open it again.
        """
        at = statements.as_of(self._snapshot)
        if not at or not self._session.alive:
            return
        try:
            for source in self._readable:
                self._session.run(f"SELECT 1 FROM {source}{at} WHERE 1 = 0")
        except SnapshotGone as error:
            raise SnapshotGone(error.message, error.hint) from error  # Not one to be retried.
        except TransientSourceError as error:
            if _KILLED in error.message:
                raise SourceError(
                    f"the run's own session was killed: {error.message}",
                    "ask the DBA why, then run again",
                ) from error

    def ping(self) -> bool:
        """Send a ping, which the database answers without a statement."""
        with self._session.translating():
            self._session.connection.ping()
        return True

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return how columns can be read; the right to read them at the SCN is certain by then."""
        made = tuple(each for column in table.columns for each in readings_of(column, values))
        owner_hint = "" if query is not None else common.qualified(table.schema, table.name)
        source = owner_hint if query is None else statements.query_relation(query)
        if source not in self._readable:
            self._check_readable(source, statements.as_of(self._snapshot), owner_hint)
            self._readable.add(source)
        return made

    def check_where(self, extract: Extract) -> None:
        if extract.where is not None:
            refuse_row_numbers(extract.where)
            common.check_condition(self._session.parse, relation(extract, None), extract.where)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Check that no part was truncated, exchanged or moved since it was described or planned.

        The ROWIDs and the undo of such a part would belong to another segment. Nothing is locked:
        from here on, Oracle refuses to read such a part at the SCN. A new partition does not
        matter, as it has no rows at the SCN.
        """
        described = self._described.get((extract.table.schema or "", extract.table.name))
        if extract.query is None and described is not None and described[0].has_rowids:
            owned, layout = described
            now = object_ids(Dictionary(self._session, [(owned.owner, owned.name)]), owned)
            chosen = {selector.partition for selector in selectors}
            then = {
                part.name: part.object_id
                for part in layout.parts
                if None in chosen or part.name in chosen
            }
            then.update(
                (selector.partition or "", selector.object_id)
                for selector in selectors
                if isinstance(selector, RowRange)
            )
            for name, number in then.items():
                if (
                    now
                    and number is not None
                    and now.get(statements.last_level(name) or None) != number
                ):
                    label = extract.table.label
                    raise SnapshotGone(
                        f"{f'partition {name} of {label}' if name else label} was truncated, "
                        "exchanged or moved after it was described",
                        "run again; if you use a plan, make a new plan",
                    )

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        value, kind = common.quoted(column.name), parse_native(column.native_type).name
        text = {
            "NUMBER": statements.plain_digits(number_text(value)),
            "FLOAT": statements.plain_digits(number_text(value)),
            "VARCHAR2": value,
            "NVARCHAR2": f"TO_CHAR({value})",
            "CHAR": f"RTRIM({value})",
            "NCHAR": f"RTRIM(TO_CHAR({value}))",
            "RAW": f"LOWER(RAWTOHEX({value}))",
        }.get(kind)
        if text is None:
            return None
        # NULL and an empty text have the same hash.
        hashed = f"STANDARD_HASH({text}, 'SHA256') < HEXTORAW('{common.below(share).upper()}')"
        condition = f"{text} IS NOT NULL AND {hashed}"
        return SampledKeys(column=column.name, share=share, text=text, condition=condition)

    def statement(self, extract: Extract, selector: Selector) -> str:
        return statements.selector_statement(
            statements.fetch_plan(extract).select_list, extract, selector
        )

    def count(self, extract: Extract) -> int:
        """Count the described parts or the query; a later partition has no rows at the SCN."""
        most = extract.limit_rows
        if not extract.partitions:
            return self._counted(statements.count_statement(extract, None))
        described = self._described.get((extract.table.schema or "", extract.table.name))
        leaves = described[1].parts if described is not None else ()
        asked = matching_partitions((leaf.name for leaf in leaves), extract.partitions)
        rows = sum(
            self._counted(statements.count_statement(extract, leaf))
            for leaf in leaves
            if leaf.name in asked
        )
        return rows if most is None else min(rows, most)

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        return sum(
            self._counted(statements.selector_statement("COUNT(*)", extract, each))
            for each in selectors
        )

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        self._revive()
        found = statements.HASHING.unhashed(extract)
        character_set = str(self._session.value(statements.CHARACTER_SET))
        if character_set != statements.UTF_8:
            for index, column in enumerate(extract.projection.columns):
                if column.output_type == "string" and index not in found:
                    found[index] = (
                        f"the database's character set is {character_set}, not {statements.UTF_8}"
                    )
        return found

    def open_hasher(self, extract: Extract) -> common.Hasher:
        """Connect once more; the SCN is in the statements."""
        session = Session(self._spec, action="checksums", scans=True)
        return common.Hasher(
            hashing=statements.HASHING, rows=session.run, cancel=session.cancel, close=session.close
        )

    def end_sessions_sql(self) -> str:
        """Return a block that kills the run's sessions on all instances, for a DBA."""
        if not self._spec.session.run_id:
            return ""
        name = common.literal(client_identifier(self._spec))
        return (
            "BEGIN FOR s IN (SELECT sid, serial#, inst_id FROM gv$session "
            f"WHERE module = '{PROGRAM}' AND client_identifier = {name}) LOOP BEGIN "
            "EXECUTE IMMEDIATE 'ALTER SYSTEM KILL SESSION ''' || s.sid || ',' || s.serial# || "
            "',@' || s.inst_id || ''' IMMEDIATE'; EXCEPTION WHEN OTHERS THEN "
            # One that is gone, or marked for it only, must not spare the rest.
            "IF SQLCODE NOT IN (-30, -31) THEN RAISE; END IF; END; END LOOP; END;"
        )

    def open_load(self) -> LoadReader:
        """Count sessions in V$SESSION: of the instance that it is connected to, not of others."""
        session = Session(self._spec, action="load", scans=False)
        name = common.literal(client_identifier(self._spec))
        ours = f"{_ACTIVE} AND MODULE = '{PROGRAM}' AND CLIENT_IDENTIFIER = {name}"

        def others() -> int:
            return max(0, int(session.value(_ACTIVE)) - int(session.value(ours)))

        try:
            others()
        except TransientSourceError:
            session.close()
            raise
        except SourceError as error:
            session.close()
            raise ConfigError(
                f"--max-db-load: the user may not read V$SESSION: {error.message}",
                "GRANT SELECT ON V_$SESSION TO the user, or leave --max-db-load out",
            ) from error
        return LoadReader(others=others, close=session.close)

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        self._session.close()

    def _counted(self, statement: str) -> int:
        """Return a count, with a new session if the last was ended while it had nothing to do."""
        self._revive()
        try:
            return int(self._session.value(statement))
        except TransientSourceError:
            if self._session.alive:
                raise
            self._revive()
            return int(self._session.value(statement))

    def _revive(self) -> None:
        if not self._session.alive:
            self._session = Session(self._spec, action="parent", scans=False)


_NO_CODE = re.compile(
    r"""n?q'(?:\[.*?\]|\{.*?\}|\(.*?\)|<.*?>|(\S).*?\1)'|'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/""",
    re.IGNORECASE | re.DOTALL,
)
"""Literals, quoted names and comments."""
_ROW_NUMBER = re.compile(r"(?<![\w$#])ROWNUM(?![\w$#])", re.IGNORECASE)


def refuse_row_numbers(where: str) -> None:
    """Refuse ROWNUM, which restarts in each work unit."""
    if _ROW_NUMBER.search(_NO_CODE.sub(" ", where)):
        raise SourceError(
            "--where uses ROWNUM, which starts from 1 in each work unit",
            "use --query instead, which is read as one work unit",
        )


_ACTIVE = "SELECT COUNT(*) FROM V$SESSION WHERE TYPE = 'USER' AND STATUS = 'ACTIVE'"
