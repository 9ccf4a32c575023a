"""The native fetch through the real driver: what keeps it honest, each by the fault it is for."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import oracledb
import pytest
from oracle.runs import Natives, Rows, Run, check, create
from oracle_server.database import Database
from oracle_server.faults import Fault
from oracle_server.model import Moment, Type
from oracle_server.server import OracleServer
from oracle_server.wire.certificates import create as certificates
from oracle_server.wire.row_replies import RowCursor

from partition_planner.model import Piece, WholeTable
from unloader.errors import ConfigError, SourceError
from unloader.sources.oracle.native import batches, decoder
from unloader.sources.oracle.native.batches import (
    Tap,
    confirm,
    confirm_fetch,
    confirmed_sorts,
    driver_socket,
    peers_of,
    place,
)
from unloader.sources.oracle.native.decoder import Refused
from unloader.sources.oracle.reader import OracleReader
from unloader.sources.oracle.statement import fetch_plan, selector_statement
from writers import built_library

pytestmark = pytest.mark.skipif(
    built_library.reason(decoder.library) is not None,
    reason=f"the native fetch cannot be used: {built_library.reason(decoder.library)}",
)

COLUMNS: Natives = {
    "ID": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0)),
    "PRICE": ("NUMBER(12,2)", Type(name="NUMBER", precision=12, scale=2)),
    "NAME": ("VARCHAR2(300)", Type(name="VARCHAR2", length=300)),
    "DAY": ("DATE", Type(name="DATE")),
    "WIDE": ("NVARCHAR2(9)", Type(name="NVARCHAR2", length=9, in_chars=True)),
}
ROWS: Rows = tuple(
    (
        n,
        Decimal(n // 7) / 100,
        None if n % 5 == 0 else "x" * (n % 300),
        Moment(2024, 1, 1 + n % 28),
        f"n{n % 50}",
    )
    for n in range(3000)
)
BYTES = 64 * 1024
"""Of a batch: the table comes in many responses."""
LEFT = "the driver fetches the rows"


@pytest.fixture(scope="module", params=["23ai", "19c"])
def server(request: pytest.FixtureRequest) -> Iterator[OracleServer]:
    """A server with SCOTT.T."""
    database = Database(version=request.param)
    database.add_user("SCOTT", "tiger")
    with OracleServer(database, mode=request.param) as running:
        create(running, COLUMNS, ROWS)
        yield running


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="unloader")
    return caplog


def read(run: Run) -> None:
    """Make sure that every value of the table arrives."""
    found = run.values(BYTES)
    assert found["ID"] == [row[0] for row in ROWS]
    check(run, COLUMNS, ROWS)


def test_a_column_taken_for_what_it_is_not(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    """The first rows tell, for the driver has decoded them, too; the unit is read again."""
    known = decoder.descriptions

    def mistaken(*arguments: Any) -> Any:
        found = known(*arguments)
        assert found is not None
        # UTF-16 of these characters is UTF-8, too: only the values tells.
        found[4].kind = decoder.TEXT
        return found

    monkeypatch.setattr(batches, "descriptions", mistaken)
    run = Run(server, COLUMNS, fetch="native")
    read(run)
    assert run.again == 2  # By a reader of `read` itself, and by one of `check`.
    assert "decodes the first rows to other values (column WIDE)" in said.text


def test_a_server_that_lies_about_its_counts(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    """The rows of a response are not believed where the server counts others."""
    take = RowCursor.take

    def lying(self: RowCursor, n: int, *arguments: Any, **more: Any) -> bytes:
        data = take(self, n, *arguments, **more)
        if self.rows_so_far > 1000:
            self.rows_so_far += 1
        return data

    monkeypatch.setattr(RowCursor, "take", lying)
    run = Run(server, COLUMNS, fetch="native")
    assert run.values(BYTES)["ID"] == [row[0] for row in ROWS]
    assert run.again == 1
    assert "count of rows differs" in said.text


def test_a_row_that_passes_by(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    """Rows that come with the execute are seen to have passed, and the unit is read again."""
    monkeypatch.setattr(batches, "PREFETCHED", 5)
    run = Run(server, COLUMNS, fetch="native")
    assert run.values(BYTES)["ID"] == [row[0] for row in ROWS]
    assert run.again == 1
    assert LEFT in said.text


def test_a_driver_that_was_not_tried(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    """Its own fetch is used."""
    monkeypatch.setattr(batches, "driver_version", lambda: "26.1.1")
    run = Run(server, COLUMNS, fetch="native")
    read(run)
    assert run.again == 0
    assert "python-oracledb 26.1.1 was not tested" in said.text


def test_silence_amid_a_response_ends(server: OracleServer) -> None:
    """A misread response may wait for bytes that never come: the tap does not wait for ever."""
    fault = server.faults.add(Fault(kind="stall", statement="SELECT", after_rows=1000, deaf=True))
    run = Run(server, COLUMNS, fetch="native")
    with connected(server) as connection:
        tapped = driver_socket(connection)
        assert tapped is not None
        tap = Tap(connection, tapped, idle_seconds=0.2)
        plan = fetch_plan(run.extract)
        sql = selector_statement(
            ", ".join(item.expression for item in plan.items), run.extract, WholeTable()
        )
        with pytest.raises(Refused, match="a response stopped"):
            for _ in batches.native_batches(tap, sql, plan, 500):
                pass
    fault.over.set()


def test_errors_are_the_drivers(server: OracleServer) -> None:
    """An error in mid-fetch comes through, and the session can be used again."""
    server.faults.add(Fault(kind="ora-01555", statement="SELECT", after_rows=1000))
    run = Run(server, COLUMNS, fetch="native")
    reader = OracleReader(run.spec, run.extract.snapshot)
    try:
        with pytest.raises(SourceError, match="ORA-01555"):
            run.items(reader, BYTES)
        rows = sum(item.num_rows for item in run.items(reader, BYTES))
        assert rows == len(ROWS)
    finally:
        reader.close()


def test_a_unit_that_is_left_in_the_middle(server: OracleServer) -> None:
    """The statement ends, the socket is the driver's own again, the next unit is read."""
    run = Run(server, COLUMNS, fetch="native")
    reader = OracleReader(run.spec, run.extract.snapshot)
    try:
        piece = Piece(unit="u1", selector=WholeTable())
        begun = reader.batches(run.extract, piece, batch_bytes=BYTES)
        next(begun)
        begun.close()
        found = driver_socket(reader._session.connection)
        assert type(found) is socket.socket
        assert sum(item.num_rows for item in run.items(reader, BYTES)) == len(ROWS)
    finally:
        reader.close()


def test_several_connections_and_threads(server: OracleServer) -> None:
    """Each tap sees its own socket connection."""
    found: list[list[Any]] = []

    def one() -> None:
        found.append(Run(server, COLUMNS, fetch="native").values(BYTES)["ID"])

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[row[0] for row in ROWS]] * 4


@pytest.mark.parametrize("sdu", [512, 65_535, 2_097_152])
def test_packets_of_any_size(sdu: int) -> None:
    """Values and messages may be cut anywhere; a packet may hold many batches."""
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database, sdu=sdu) as running:
        create(running, COLUMNS, ROWS)
        run = Run(running, COLUMNS, fetch="native")
        read(run)
        assert run.again == 0


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tap reads decrypted bytes."""
    made = certificates(tmp_path)
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database, tls=made.tls) as running:
        create(running, COLUMNS, ROWS)
        url = running.url
        monkeypatch.setattr(
            running, "url", lambda user: f"{url(user)}&wallet_location={made.wallet}"
        )
        run = Run(running, COLUMNS, fetch="native")
        read(run)
        assert run.again == 0


def test_columns_of_other_types_are_left_to_the_driver(
    server: OracleServer, said: pytest.LogCaptureFixture
) -> None:
    """A statement with a LOB is fetched as without the option."""
    made: Natives = {**COLUMNS, "DOC": ("CLOB", Type(name="CLOB"))}
    rows = tuple((*row, "doc") for row in ROWS[:50])
    create(server, made, rows)
    try:
        check(Run(server, made, fetch="native"), made, rows)
    finally:
        create(server, COLUMNS, ROWS)
    assert "Traceback" not in said.text


def connected(server: OracleServer) -> oracledb.Connection:
    """Connect as the reader does."""
    return oracledb.connect(
        user="scott", password="tiger", dsn=server.dsn, stmtcachesize=0, sdu=65535
    )


def confirmed(server: OracleServer, run: Run) -> dict[str, str | int]:
    """Confirm a run's table; return who agreed."""
    reader = OracleReader(run.spec, run.extract.snapshot)
    plan = fetch_plan(run.extract)
    items = ", ".join(item.expression for item in plan.items)
    try:
        session = reader._session
        confirm_fetch(
            run.spec, session, [selector_statement(items, run.extract, WholeTable())], plan
        )
        return peers_of(run.spec, session)
    finally:
        reader.close()


def is_native(run: Run) -> bool:
    reader = OracleReader(run.spec, run.extract.snapshot)
    try:
        is_native = reader._is_native(fetch_plan(run.extract), reader._session)
    finally:
        reader.close()
    return is_native


def test_auto_is_native_where_the_server_was_seen_to_agree(server: OracleServer) -> None:
    """And not before; nor with a sort of column that was not compared; nor elsewhere."""
    auto = Run(server, COLUMNS)
    assert not is_native(auto)
    peers = confirmed(server, auto)
    assert is_native(auto)
    read(auto)
    assert confirmed_sorts(peers) == {
        "NUMBER as int32",
        "NUMBER as decimal128",
        "VARCHAR2 as string",
        "DATE as timestamp[s]",
        "NVARCHAR2 as string",
    }
    other: Natives = {**COLUMNS, "R": ("BINARY_FLOAT", Type(name="BINARY_FLOAT"))}
    assert not is_native(Run(server, other))
    for different in (
        {**peers, "server": "elsewhere"},
        {**peers, "server_version": "99.1"},
        {**peers, "driver_version": "26.2.0"},
    ):
        assert confirmed_sorts(different) == frozenset()


def test_a_table_without_values_confirms_nothing(server: OracleServer) -> None:
    """A column of only NULL is not confirmed, and a table without rows is refused."""
    create(server, COLUMNS, tuple((n, None, None, None, None) for n in range(20)))
    peers = confirmed(server, Run(server, COLUMNS))
    assert confirmed_sorts(peers) == {"NUMBER as int32"}
    create(server, COLUMNS, ())
    with pytest.raises(SourceError, match="cannot be confirmed: no row"):
        confirmed(server, Run(server, COLUMNS))
    create(server, COLUMNS, ROWS)


def test_a_difference_confirms_nothing(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error that names the column."""
    known = decoder.descriptions

    def mistaken(*arguments: Any) -> Any:
        found = known(*arguments)
        assert found is not None
        found[4].kind = decoder.TEXT
        return found

    monkeypatch.setattr(batches, "descriptions", mistaken)
    with pytest.raises(SourceError, match=r"give different values \(column 5\)"):
        confirmed(server, Run(server, COLUMNS))
    assert not place().exists()


def test_a_state_directory_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One error with the next step."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    peers: dict[str, str | int] = {"server": "s", "server_version": "1", "driver_version": "2"}
    with pytest.raises(ConfigError, match="cannot store the confirmations"):
        confirm(peers, frozenset({"x"}), 1)


def test_a_file_of_somebody_else_confirms_nothing(server: OracleServer) -> None:
    """Only the user's own file confirms a fetch as safe; a file of another kind does not."""
    peers = confirmed(server, Run(server, COLUMNS))
    kept = place().read_text()
    assert json.loads(kept)["format"] == 1
    place().chmod(0o666)
    assert confirmed_sorts(peers) == frozenset()
    place().chmod(0o600)
    assert confirmed_sorts(peers)
    place().write_text(kept[:-20])
    assert confirmed_sorts(peers) == frozenset()
