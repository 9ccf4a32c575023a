"""The parent's view of an Oracle database, through the driver and a server on the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import oracledb
import pytest
from msgspec.structs import replace
from oracle.leg import ID_AND_NAME, PASSWORD, database, rows, source
from oracle_server import Fault, OracleServer
from oracle_server.data.tables import PartitionSpec
from oracle_server.model import Column, Type
from routes.runs import OneOutput

from partition_planner.model import Plan, PlanLimits, TableInfo, WholeTable
from partition_planner.planner import plan
from unloader.errors import (
    ConfigError,
    SnapshotGone,
    SnapshotTooOld,
    SourceError,
    TransientSourceError,
)
from unloader.model import Extract, SessionOptions, Snapshot
from unloader.request.names import parse_table
from unloader.sources.oracle.catalog import OracleCatalog, refuse_row_numbers
from unloader.sources.oracle.source import OracleSource
from unloader.sources.questions import describe_query

PARQUET = OneOutput(text=None)


@pytest.fixture
def server() -> Iterator[OracleServer]:
    """A server with tables of SCOTT, a plain user, and of HR."""
    made = database()
    made.create_table("SCOTT", "PLAIN", columns=ID_AND_NAME, rows=rows(2000))
    made.create_table(
        "SCOTT",
        "PARTED",
        columns=ID_AND_NAME,
        rows=rows(1200),
        partitions=tuple(PartitionSpec(name=f"P{number}") for number in range(4)),
    )
    made.create_table("HR", "STAFF", columns=ID_AND_NAME, rows=rows(50))
    with OracleServer(made) as running:
        yield running


@pytest.fixture
def catalog(server: OracleServer, tmp_path: Path) -> Iterator[OracleCatalog]:
    """SCOTT's catalog."""
    opened = OracleSource().open_catalog(source(server, tmp_path))
    yield opened
    opened.close()


@contextmanager
def busy_session(server: OracleServer) -> Iterator[None]:
    """Keep another session of SCOTT at a statement."""
    stalled = server.faults.add(Fault(kind="stall", statement="FROM PARTED"))
    with oracledb.connect(user="scott", password=PASSWORD, dsn=server.dsn) as connection:

        def read() -> None:
            with suppress(oracledb.DatabaseError), connection.cursor() as cursor:
                cursor.execute("SELECT * FROM PARTED")

        thread = threading.Thread(target=read)
        thread.start()
        assert stalled.happened.wait(60)
        yield
        connection.cancel()
        thread.join()


def extract_of(
    catalog: OracleCatalog,
    table: TableInfo,
    snapshot: Snapshot | None,
    *,
    where: str | None = None,
    query: str | None = None,
) -> Extract:
    """Return what a run would read."""
    return Extract(
        source=catalog._spec,
        snapshot=snapshot,
        table=table,
        query=query,
        where=where,
        projection=PARQUET.project(catalog, table, query),
    )


def planned(table: TableInfo, **limits: object) -> Plan:
    """Return a plan with as many pieces as can be."""
    return plan(table, replace(PlanLimits(parallelism=4, split="range", unit_bytes=8192), **limits))


def test_tables_are_listed(server: OracleServer, tmp_path: Path) -> None:
    """A user sees what he may read: kinds, rows, partitions, and no table of the database's own."""
    made = server.database
    made.create_view("SCOTT", "V", "SELECT ID FROM SCOTT.PLAIN")
    made.create_table(
        "SCOTT", "IOT", columns=ID_AND_NAME, organization="index", key=("ID",), rows=rows(3)
    )
    made.create_table("SCOTT", "MV", columns=ID_AND_NAME, rows=rows(3), materialized=True)
    opened = OracleSource().open_catalog(source(server, tmp_path))
    found = {
        (table.schema, table.name): (table.kind, table.rows, table.partitions)
        for table in opened.tables()
    }
    assert found == {
        ("SCOTT", "IOT"): ("index-organized table", 3, 0),
        ("SCOTT", "MV"): ("materialized view", 3, 0),
        ("SCOTT", "PARTED"): ("partitioned table", 1200, 4),
        ("SCOTT", "PLAIN"): ("table", 2000, 0),
        ("SCOTT", "V"): ("view", None, 0),
    }
    opened.close()


def test_one_scn_for_all(server: OracleServer, catalog: OracleCatalog) -> None:
    """Count and description are of the SCN, without later changes."""
    snapshot = catalog.snapshot("snapshot")
    assert (snapshot.kind, snapshot.value) == ("scn", str(server.database.scn))
    server.database.insert("SCOTT", "PLAIN", rows(10, start=9000))
    table = catalog.describe(parse_table("plain"))
    extract = extract_of(catalog, table, snapshot)
    plan = planned(table)
    assert len(plan.units) > 1
    catalog.hold(extract, plan.selectors)
    assert catalog.count(extract) == 2000
    assert catalog.count(replace(extract, snapshot=None)) == 2010
    catalog.check_snapshot()


@pytest.mark.parametrize(
    ("rights", "last"),
    [
        (("V$DATABASE",), "CURRENT_SCN"),
        (("DBMS_FLASHBACK",), "DBMS_FLASHBACK"),
        ((), "TIMESTAMP_TO_SCN"),
    ],
)
def test_the_ladder_to_the_scn(
    server: OracleServer, tmp_path: Path, rights: tuple[str, ...], last: str
) -> None:
    """The best way to the SCN that the user's rights allow is used, and better ones are reported."""
    for right in rights:
        server.database.privileges.grant("SCOTT", right)
    opened = OracleSource().open_catalog(source(server, tmp_path))
    assert opened.snapshot("snapshot").value == str(server.database.scn)
    assert last in server.sessions[-1].statements[-1]
    missing = " ".join(opened.missing_privileges(opened.describe(parse_table("PLAIN"))))
    better = "GRANT SELECT ON SYS.V_$DATABASE TO SCOTT"
    assert (better in missing) is (last == "TIMESTAMP_TO_SCN")
    opened.close()


def test_no_way_to_the_scn(server: OracleServer, catalog: OracleCatalog) -> None:
    """A user who may not know the SCN gets the grant, and may read without an SCN."""
    server.database.privileges.revoke("SCOTT", "TIMESTAMP_TO_SCN")
    with pytest.raises(SourceError, match="SCOTT may not read the current SCN") as caught:
        catalog.snapshot("snapshot")
    assert "GRANT SELECT ON SYS.V_$DATABASE TO SCOTT" in caught.value.hint
    assert "--consistency none" in caught.value.hint
    assert catalog.snapshot("none").kind == "none"
    missing = catalog.missing_privileges(catalog.describe(parse_table("PLAIN")))
    assert any("--consistency none" in each for each in missing)


def test_an_scn_that_was_asked_for(server: OracleServer, tmp_path: Path) -> None:
    """--scn reads as of then, if undo reaches back; one in the future is refused."""
    server.database.privileges.grant("SCOTT", "V$DATABASE")
    before = server.database.scn
    server.database.insert("SCOTT", "PLAIN", rows(10, start=9000))
    spec = source(server, tmp_path, session=SessionOptions(scn=before))
    opened = OracleSource().open_catalog(spec)
    snapshot = opened.snapshot("snapshot")
    table = opened.describe(parse_table("PLAIN"))
    extract = extract_of(opened, table, snapshot)
    assert opened.count(extract) == 2000
    server.database.expire_undo(server.database.scn)
    with pytest.raises(TransientSourceError, match="ORA-01555") as caught:
        opened.count(extract)
    assert "UNDO_RETENTION" in caught.value.hint
    opened.close()
    later = source(server, tmp_path, session=SessionOptions(scn=before + 1_000_000))
    opened = OracleSource().open_catalog(later)
    with pytest.raises(SourceError, match="is in the future"):
        opened.snapshot("snapshot")
    opened.close()


def test_the_scn_of_an_earlier_run_is_entered_again(server: OracleServer, tmp_path: Path) -> None:
    """The same kind and value, the same rows; gone with the undo or with the table's segment."""
    server.database.privileges.grant("SCOTT", "V$DATABASE")
    oracle, spec = OracleSource(), source(server, tmp_path)
    with closing(oracle.open_catalog(spec)) as first:
        taken = first.snapshot("snapshot")
        selectors = planned(first.describe(parse_table("PLAIN"))).selectors
    server.database.insert("SCOTT", "PLAIN", rows(10, start=9000))
    earlier = oracle.at_snapshot(spec, taken.kind, taken.value)
    assert earlier is not None
    with closing(oracle.open_catalog(earlier)) as second:
        entered = second.snapshot("snapshot")
        assert (entered.kind, entered.value) == (taken.kind, taken.value)
        extract = extract_of(second, second.describe(parse_table("PLAIN")), entered)
        second.hold(extract, selectors)
        assert second.count(extract) == 2000
        server.database.expire_undo(server.database.scn)
        with pytest.raises(SnapshotTooOld, match="ORA-01555"):
            second.count(extract)
        with pytest.raises(SnapshotGone, match="ORA-01555") as caught:
            second.check_snapshot()
        assert not caught.value.retryable
    server.database.truncate("SCOTT", "PLAIN")
    with closing(oracle.open_catalog(earlier)) as third:
        third.snapshot("snapshot")
        third.describe(parse_table("PLAIN"))
        with pytest.raises(SnapshotGone, match="was truncated"):
            third.hold(extract, selectors)
    set_back = oracle.at_snapshot(spec, taken.kind, str(int(taken.value) + 1_000_000))
    assert set_back is not None
    with (
        closing(oracle.open_catalog(set_back)) as fourth,
        pytest.raises(SnapshotGone, match="is in the future"),
    ):
        fourth.snapshot("snapshot")
    assert oracle.at_snapshot(spec, "exported-snapshot", taken.value) is None


def test_looking_back_takes_a_right(server: OracleServer, catalog: OracleCatalog) -> None:
    """Another user's table needs FLASHBACK: found before any worker starts, with the grant."""
    server.database.privileges.grant("SCOTT", "SELECT", on=("HR", "STAFF"))
    snapshot = catalog.snapshot("snapshot")
    table = catalog.describe(parse_table("hr.staff"))
    with pytest.raises(SourceError, match="as of an SCN") as caught:
        PARQUET.project(catalog, table, None)
    assert 'GRANT FLASHBACK ON "HR"."STAFF" TO SCOTT' in caught.value.hint
    assert "--consistency none" in caught.value.hint
    query = "SELECT ID FROM HR.STAFF"
    with pytest.raises(SourceError, match="the query") as caught:
        PARQUET.project(catalog, catalog.describe_query(query), query)
    assert "GRANT FLASHBACK to SCOTT" in caught.value.hint
    missing = catalog.missing_privileges(table)
    assert any('GRANT FLASHBACK ON "HR"."STAFF"' in each for each in missing)
    server.database.privileges.grant("SCOTT", "FLASHBACK", on=("HR", "STAFF"))
    extract = extract_of(catalog, table, snapshot)
    assert catalog.count(extract) == 50


@pytest.mark.parametrize("change", ["truncate", "exchange"])
def test_a_part_that_was_replaced_is_refused(
    server: OracleServer, catalog: OracleCatalog, change: str
) -> None:
    """Truncated or exchanged since it was described: the run is refused before it begins."""
    snapshot = catalog.snapshot("snapshot")
    table = catalog.describe(parse_table("PARTED"))
    extract = extract_of(catalog, table, snapshot)
    by_partition = planned(table, split="partition", unit_bytes=None).selectors
    catalog.hold(extract, by_partition)
    if change == "truncate":
        server.database.truncate("SCOTT", "PARTED", "P2")
    else:
        server.database.exchange_partition("SCOTT", "PARTED", "P2", rows(5))
    whole = planned(table, split="none").selectors
    for selectors in (by_partition, planned(table).selectors, whole):
        with pytest.raises(SourceError, match=r"P2 of SCOTT\.PARTED was truncated"):
            catalog.hold(extract, selectors)
    others = tuple(each for each in by_partition if each.partition != "P2")
    catalog.hold(extract, others)
    with pytest.raises(SourceError, match="ORA-01466"):
        catalog.check_snapshot()


def test_an_older_plan_of_a_moved_table_is_refused(
    server: OracleServer, catalog: OracleCatalog
) -> None:
    """A plan names the segment its ROWIDs are of; a table that was moved since needs a new one."""
    selectors = planned(catalog.describe(parse_table("PLAIN"))).selectors
    server.database.truncate("SCOTT", "PLAIN")
    snapshot = catalog.snapshot("snapshot")
    table = catalog.describe(parse_table("PLAIN"))
    with pytest.raises(SourceError, match=r"SCOTT\.PLAIN was truncated") as caught:
        catalog.hold(extract_of(catalog, table, snapshot), selectors)
    assert "new plan" in caught.value.hint


def test_counting_after_a_long_silence(server: OracleServer, catalog: OracleCatalog) -> None:
    """A parent's session that was ended while the workers read is opened again for the count."""
    snapshot = catalog.snapshot("snapshot")
    table = catalog.describe(parse_table("PLAIN"))
    extract = extract_of(catalog, table, snapshot)
    server.faults.add(Fault(kind="ora-02396", statement=r"COUNT\(\*\)"))
    assert catalog.count(extract) == 2000
    catalog.check_snapshot()


def test_conditions_are_parsed(catalog: OracleCatalog) -> None:
    """A condition must be complete: unbalanced parentheses and binds are refused."""
    snapshot = catalog.snapshot("snapshot")
    table = catalog.describe(parse_table("PLAIN"))
    good = extract_of(catalog, table, snapshot, where="ID BETWEEN 1 AND 5 -- some")
    catalog.check_where(good)
    for wrong in (
        "ID > 1) OR (ID < 1",
        "NOSUCH = 1",
        "ID = :x",
        "ID > 1 ORDER BY ID",
        "ROWNUM < 3",
        "",
    ):
        with pytest.raises(SourceError, match="--where") as caught:
            catalog.check_where(replace(good, where=wrong))
        assert caught.value.hint


def test_queries_are_described(server: OracleServer, catalog: OracleCatalog) -> None:
    """A query's columns and types come from parsing alone; it is counted at the SCN as well."""
    snapshot = catalog.snapshot("snapshot")
    query = 'SELECT ID AS "the id", NAME FROM PLAIN WHERE ID < 100 -- few'
    table = catalog.describe_query(query)
    assert [(column.name, column.native_type) for column in table.columns] == [
        ("the id", "NUMBER(9)"),
        ("NAME", "VARCHAR2(80 BYTE)"),
    ]
    extract = extract_of(catalog, table, snapshot, query=query)
    assert catalog.statement(extract, WholeTable()).endswith(
        f"({query}\n) AS OF SCN {snapshot.value}"
    )
    server.database.delete("SCOTT", "PLAIN", lambda row: row[0] < 50)
    assert catalog.count(extract) == 100


def test_ending_the_sessions_of_a_run(server: OracleServer, tmp_path: Path) -> None:
    """The statement names this run's sessions and no others; without a run it is empty."""
    plain = OracleSource().open_catalog(source(server, tmp_path))
    assert plain.end_sessions_sql() == ""
    plain.close()
    spec = source(server, tmp_path, session=SessionOptions(run_id="20261121T021500Z-a1b2c3"))
    opened = OracleSource().open_catalog(spec)
    sql = opened.end_sessions_sql()
    assert "client_identifier = 'unloader:20261121T021500Z-a1b2c3'" in sql
    assert "KILL SESSION" in sql
    found = server.database.query(
        "SYS",
        "SELECT SID FROM GV$SESSION WHERE MODULE = 'unloader' "
        "AND CLIENT_IDENTIFIER = 'unloader:20261121T021500Z-a1b2c3'",
    )
    assert [int(row[0]) for row in found] == [server.sessions[-1].sid]
    opened.close()


def test_types_as_oracle_prints_them(server: OracleServer, catalog: OracleCatalog) -> None:
    """Precision, scale, length and semantics of every column match the dictionary."""
    types = {
        "NUMBER": Type(name="NUMBER"),
        "NUMBER(10)": Type(name="NUMBER", precision=10, scale=0),
        "NUMBER(10,-2)": Type(name="NUMBER", precision=10, scale=-2),
        "NUMBER(12,2)": Type(name="NUMBER", precision=12, scale=2),
        "FLOAT(126)": Type(name="FLOAT", precision=126),
        "VARCHAR2(15 CHAR)": Type(name="VARCHAR2", length=15, in_chars=True),
        "VARCHAR2(15 BYTE)": Type(name="VARCHAR2", length=15),
        "NVARCHAR2(15)": Type(name="NVARCHAR2", length=15, in_chars=True),
        "CHAR(3 BYTE)": Type(name="CHAR", length=3),
        "RAW(16)": Type(name="RAW", length=16),
        "DATE": Type(name="DATE"),
        "TIMESTAMP(6)": Type(name="TIMESTAMP", scale=6),
        "TIMESTAMP(9) WITH TIME ZONE": Type(name="TIMESTAMP WITH TIME ZONE", scale=9),
        "INTERVAL DAY(2) TO SECOND(6)": Type(name="INTERVAL DAY TO SECOND", precision=2, scale=6),
        "CLOB": Type(name="CLOB"),
        "BINARY_DOUBLE": Type(name="BINARY_DOUBLE"),
    }
    columns = tuple(
        Column(name=f"C{number}", type=kind, nullable=number > 0)
        for number, kind in enumerate(types.values())
    )
    server.database.create_table("SCOTT", "TYPES", columns=columns)
    found = catalog.describe(parse_table("TYPES")).columns
    assert [column.native_type for column in found] == list(types)
    assert [column.nullable for column in found] == [number > 0 for number in range(len(types))]


def test_active_sessions_of_others_are_counted(
    server: OracleServer, catalog: OracleCatalog
) -> None:
    """Sessions of the run do not count, and the right to see sessions is needed."""
    with pytest.raises(ConfigError, match="may not read V\\$SESSION"):
        catalog.open_load()
    server.database.privileges.grant("SCOTT", "V$SESSION")
    with closing(catalog.open_load()) as load:
        assert load.others() == 0
        with busy_session(server):
            assert load.others() == 1
        assert load.others() == 0


@pytest.mark.parametrize(
    "where",
    ["ROWNUM <= 10", "ID < 5 AND (rownum<10)", "(NVL(ROWNUM, 1)) > 2", "q'[']' = '''' OR ROWNUM=1"],
)
def test_row_numbers_are_refused(where: str) -> None:
    """ROWNUM would count again in each work unit: that many times the rows that were meant."""
    with pytest.raises(SourceError, match="ROWNUM") as caught:
        refuse_row_numbers(where)
    assert "--query" in caught.value.hint


@pytest.mark.parametrize(
    "where",
    [
        "NAME <> 'ROWNUM'",
        'ID < 5 -- ROWNUM\n AND "ROWNUM" = 1 /* ROWNUM */',
        "MY_ROWNUM = 1 OR ROWNUM# = 2",
        "q'[it's ROWNUM]' = NAME OR q'!'ROWNUM!' = NAME",
    ],
)
def test_what_only_looks_like_them_is_taken(where: str) -> None:
    """Literals, names and comments may contain the word."""
    refuse_row_numbers(where)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT ID, NAME AS ID FROM PLAIN", "named 'ID'|ORA-00918"),
        ("DROP TABLE PLAIN", "not a query"),
        ("/* SELECT */ PURGE RECYCLEBIN -- SELECT", "not a query"),
        ("SELECT 1 FROM DUAL) a, (SELECT 2 FROM DUAL", "ORA-"),
        ("SELECT ID FROM PLAIN WHERE ID = :x", ":X"),
        ("SELECT NOSUCH FROM PLAIN", "ORA-00904"),
    ],
)
def test_queries_that_are_none(
    server: OracleServer, catalog: OracleCatalog, query: str, words: str
) -> None:
    """Text that is not a single query, or has columns of one name, is refused and not run."""
    with pytest.raises(SourceError, match=words) as caught:
        describe_query(catalog, query)
    assert caught.value.hint != caught.value.usual_hint
    assert ("SCOTT", "PLAIN") in server.database.catalog.tables
