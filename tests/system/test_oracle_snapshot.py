"""One SCN for everything, while another session changes the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from oracle import expected as oracle_expected
from oracle.leg import OracleLeg, Writer
from oracle_server import Fault
from oracle_server.model import Column, Type
from processes import command

ROWS = 12_000
QUICK = 500
"""After that many transactions the writer takes its time: it must not run out of rows to change."""
PAUSE_SECONDS = 0.02
PARTITIONS = 6
TABLE = "MOVING"
NEW = 10_000_000
"""ID of the first row that the writer inserts."""

COLUMNS = (
    Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
    Column(name="PLACE", type=Type(name="NUMBER", precision=4, scale=0)),
    Column(name="VALUE", type=Type(name="VARCHAR2", length=120)),
)
_PARTS = ", ".join(f"PARTITION P{n} VALUES LESS THAN ({n + 1})" for n in range(PARTITIONS))
TAIL = f"PARTITION BY RANGE (PLACE) ({_PARTS}) ENABLE ROW MOVEMENT"
Rows = dict[int, tuple[int, str]]


def _before(number: int) -> tuple[int, str]:
    """Return place and value of a row at the start."""
    return number * 7 % PARTITIONS, "0" if number == 0 else f"old {number} {'.' * (number % 80)}"


def _after(transactions: int) -> Rows:
    rows = {number: _before(number) for number in range(ROWS)}
    for i in range(1, transactions + 1):
        del rows[3 * i]
        place, _ = rows[3 * i + 1]
        rows[3 * i + 1] = ((place + 1) % PARTITIONS, f"moved {i}")
        rows[NEW + i] = (i % PARTITIONS, f"new {i}")
    rows[0] = (rows[0][0], str(transactions))
    return rows


def _transaction(writer: Writer, i: int) -> None:
    """Delete a row, move one to another partition, insert one and count on row 0."""
    place = (_before(3 * i + 1)[0] + 1) % PARTITIONS
    assert writer.run(f"DELETE FROM {TABLE} WHERE ID = {3 * i}") == 1
    update = f"UPDATE {TABLE} SET PLACE = :1, VALUE = 'moved {i}' WHERE ID = :2"
    assert writer.run(update, place, 3 * i + 1) == 1
    writer.run(f"INSERT INTO {TABLE} VALUES (:1, :2, :3)", NEW + i, i % PARTITIONS, f"new {i}")
    writer.run(f"UPDATE {TABLE} SET VALUE = '{i}' WHERE ID = 0")
    writer.commit()


class Writing:
    """A thread that commits one transaction after the other."""

    def __init__(self, leg: OracleLeg) -> None:
        """Write to that database."""
        self._leg = leg
        self._stop = threading.Event()
        self.begun = threading.Event()
        self.committed = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="writer")

    def _work(self) -> None:
        try:
            with self._leg.writer() as writer:
                while not self._stop.is_set() and 3 * self.committed + 5 < ROWS:
                    _transaction(writer, self.committed + 1)
                    self.committed += 1
                    time.sleep(PAUSE_SECONDS if self.committed > QUICK else PAUSE_SECONDS / 10)
                    if self.committed == 5:
                        self.begun.set()
        except BaseException as error:
            self.error = error
            self.begun.set()

    def start(self) -> None:
        """Start, and come back when some transactions are over."""
        self._thread.start()
        assert self.begun.wait(180), "the writer does not begin"

    def stop(self) -> None:
        """End, and fail if something went wrong."""
        self._stop.set()
        self._thread.join(180)
        if self.error is not None:
            raise self.error


@contextmanager
def _writing(leg: OracleLeg) -> Iterator[Writing]:
    writing = Writing(leg)
    try:
        writing.start()
        yield writing
    finally:
        writing.stop()


def _create(leg: OracleLeg) -> None:
    leg.create(TABLE, COLUMNS, key=("ID",), tail=TAIL)
    leg.load(TABLE, COLUMNS, ((number, *_before(number)) for number in range(ROWS)))


def _rows_of(dest: Path) -> Rows:
    rows: Rows = {}
    for file in sorted(dest.glob("*.csv")):
        _, *records = oracle_expected.csv_records(file.read_text())
        for number, place, value in records:
            assert number is not None
            assert place is not None
            assert int(number) not in rows, f"row {number} is there twice"
            rows[int(number)] = (int(place), value or "")
    return rows


def _run(leg: OracleLeg, dest: Path, *options: str) -> dict[str, Any]:
    """Unload in several units; return the manifest."""
    command.run(
        "run", leg.url, "--table", TABLE, "--to", str(dest), "--parallelism", "2",
        "--progress", "none", *options, env=leg.environment,
    )  # fmt: skip
    return command.manifest_of(dest)


@pytest.mark.parametrize("split", ["range", *also(OTHER_ROUTES, "partition")])
def test_output_is_one_state_while_a_writer_commits(
    oracle: OracleLeg, tmp_path: Path, split: str
) -> None:
    """Rows come, go and move between partitions; the files hold one state, to the row."""
    _create(oracle)
    environment = oracle.environment
    dest = tmp_path / "out"
    with _writing(oracle) as writing:
        manifest = _run(oracle, dest, "--split", split, "--unit-bytes", "256KiB")
        after = writing.committed
    rows = _rows_of(dest)
    seen = int(rows[0][1])
    # Without V$DATABASE a real database gives an SCN up to three seconds old.
    assert (0 if oracle.is_real else 5) <= seen < after, "nothing committed while the unload ran"
    assert rows == _after(seen)
    assert len(manifest["units"]) >= PARTITIONS
    assert manifest["snapshot"]["kind"] == "scn"
    assert manifest["verified"] == {
        "level": "count", "source_rows": len(rows), "result": "ok",
    }  # fmt: skip
    # The same state can be counted and read again, although the table has continued.
    assert oracle.run(f"SELECT VALUE FROM {TABLE} WHERE ID = 0")[0][0] != str(seen)
    command.run("verify", str(dest), oracle.url, env=environment)
    again = tmp_path / "again"
    scn = manifest["snapshot"]["value"]
    assert _run(oracle, again, "--scn", scn)["snapshot"]["value"] == scn
    assert _rows_of(again) == rows


def test_undo_that_expires_while_units_are_read(oracle: OracleLeg, tmp_path: Path) -> None:
    """Units that come too late fail the run; nothing is left under a final name."""
    database = oracle.database
    _create(oracle)
    dest = tmp_path / "out"
    assert oracle.server is not None
    read = f'FROM "{oracle.schema}"."{TABLE}" PARTITION'
    first = oracle.server.faults.add(Fault(kind="stall", statement=read))
    running = command.Forked(
        "run", oracle.url, "--table", TABLE, "--to", str(dest), "--parallelism", "1",
        "--retries", "1", "--retry-delay", "0", "--progress", "none", env=oracle.environment,
    )  # fmt: skip
    running.wait_until(first.happened.is_set, "the first unit")
    database.commit()
    database.expire_undo(database.scn)
    first.over.set()
    status, _, stderr = running.finish()
    assert status in (4, 7), stderr
    assert "ORA-01555" in stderr
    assert not list(dest.glob("*.csv"))
