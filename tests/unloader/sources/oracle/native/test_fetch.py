"""The native fetch through the real driver: what keeps it honest, each by the fault it is for."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import oracledb
import pyarrow as pa
import pytest
from certificates import self_signed
from oracle.runs import Natives, Rows, Run, check, create
from oracle_server.database import Database
from oracle_server.faults import Fault
from oracle_server.model import Moment, Type
from oracle_server.server import OracleServer
from oracle_server.wire.row_replies import RowCursor

from partition_planner.model import Piece, WholeTable
from unloader.errors import SourceError
from unloader.sources.oracle import reader
from unloader.sources.oracle.native import batches, decoder
from unloader.sources.oracle.native.batches import Tap, driver_socket
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
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")


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
    assert "decodes some rows to other values (column WIDE)" in said.text


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
            for _ in batches.native_batches(tap, sql, plan, 500, batches.Witness(0, 0)):
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
    pem = self_signed(tmp_path / "ewallet.pem", "127.0.0.1")
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database, tls=pem) as running:
        create(running, COLUMNS, ROWS)
        url = running.url
        monkeypatch.setattr(running, "url", lambda user: f"{url(user)}&wallet_location={tmp_path}")
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


def test_auto_compares_the_first_rows_and_some_later_ones(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a small table, a part of the responses of a large one; the reader counts them."""
    run = Run(server, COLUMNS)
    read(run)
    assert run.witnessed == (len(ROWS), "")
    monkeypatch.setattr(reader, "WITNESSED_ROWS", 100)
    for every, least, most in ((0, 100, 200), (3, 500, 2500), (1, len(ROWS), len(ROWS))):
        run = Run(server, COLUMNS, witness=every)
        assert run.values(8 * 1024)["ID"] == [row[0] for row in ROWS]
        assert least <= run.witnessed[0] <= most
    run = Run(server, COLUMNS, fetch="native")
    run.values(8 * 1024)
    assert run.witnessed == (batches.FIRST_ROWS, "")


@pytest.mark.parametrize("late", [0, 1500])
def test_a_difference_gives_the_unit_to_the_driver(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """From its first row, with the reason and the column for the result of the unit."""
    monkeypatch.setattr(reader, "WITNESSED_ROWS", 100)
    take, seen = decoder.RowDecoder.take, 0

    def mistaken(self: decoder.RowDecoder, kinds: Any) -> list[pa.Array]:
        nonlocal seen
        arrays = take(self, kinds)
        seen += len(arrays[0])
        if seen > late:
            arrays[1] = pa.array([Decimal(1)] * len(arrays[0]), arrays[1].type)
        return arrays

    monkeypatch.setattr(decoder.RowDecoder, "take", mistaken)
    run = Run(server, COLUMNS, witness=2)
    found = run.values(8 * 1024)
    assert [found["ID"], found["PRICE"]] == [[row[each] for row in ROWS] for each in (0, 1)]
    assert run.again
    assert run.witnessed == (0, "the driver decodes some rows to other values (column PRICE)")


def test_not_a_number_equals_itself(server: OracleServer) -> None:
    """NaN, infinities and NULL are not taken for a difference."""
    made: Natives = {"N": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0))}
    made["F"] = ("BINARY_FLOAT", Type(name="BINARY_FLOAT"))
    made["D"] = ("BINARY_DOUBLE", Type(name="BINARY_DOUBLE"))
    odd = (float("nan"), float("inf"), float("-inf"), None, -0.0, 1.5)
    create(server, made, tuple((n, each, each) for n, each in enumerate(odd)))
    try:
        run = Run(server, made)
        run.values(BYTES)
        assert run.witnessed == (len(odd), "")
    finally:
        create(server, COLUMNS, ROWS)


@pytest.mark.parametrize("every", [1, 2])
def test_values_that_the_driver_did_not_see_are_not_compared(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The server repeats them without sending them, from a response that the decoder took."""
    monkeypatch.setattr(reader, "WITNESSED_ROWS", 100)
    monkeypatch.setattr(batches, "_WITNESSED_SIZE", 40)
    made: Natives = {**COLUMNS, "SAME": ("VARCHAR2(9)", Type(name="VARCHAR2", length=9))}
    made["NONE"] = made["SAME"]
    rows: Rows = tuple(
        (*row, "same" if number > 500 else None, None) for number, row in enumerate(ROWS)
    )
    create(server, made, rows)
    try:
        run = Run(server, made, witness=every)
        found = run.values(8 * 1024)
        assert (found["ID"], found["SAME"]) == ([row[0] for row in rows], [row[5] for row in rows])
        assert not run.again
        assert run.witnessed[0] > 200
    finally:
        create(server, COLUMNS, ROWS)
