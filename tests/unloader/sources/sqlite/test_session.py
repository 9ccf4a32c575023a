"""One state for all: the write reservation against real writers in other processes."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES
from processes.program import Program

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.model import Extract, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from unloader.sources.sqlite import catalog as sqlite_catalog
from unloader.sources.sqlite.source import SQLiteSource

ROOT = Path(__file__).resolve().parents[4]
ROWS = 3000

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.2)
try:
    with connection:
        connection.execute("INSERT INTO t VALUES (NULL, 'late')")
    print("written")
except sqlite3.OperationalError as error:
    print(error)
connection.close()
"""

WORKER = """
import pickle, sys
from unloader.sources.sqlite.source import SQLiteSource
extract, units = pickle.load(sys.stdin.buffer)
reader = SQLiteSource().open_reader(extract.source, extract.snapshot)
pieces = [piece for unit in units for piece in unit.pieces]
rows = [row for piece in pieces for batch in reader.batches(extract, piece, batch_bytes=9999)
        for row in batch.to_pylist()]
reader.close()
print(len(rows), sorted({row["s"] for row in rows}))
"""

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
connection.close()
"""


def spec_of(path: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="sqlite", location=f"sqlite://{path}")


def write_from_outside(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(params=["delete", "wal"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A closed database of `ROWS` rows in one of the two kinds of journal."""
    file = tmp_path / "data.db"
    make(file, request.param)
    return file


def make(file: Path, journal: str) -> None:
    """Write the table `t` into a new file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, 'early')", [(k,) for k in range(ROWS)])


@pytest.mark.long(OTHER_ROUTES)
def test_no_writer_commits_while_the_snapshot_is_held(path: Path) -> None:
    """Workers in other processes read one state between a writer's vain attempts to commit."""
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        snapshot = catalog.snapshot("snapshot")
        assert snapshot.kind == "write-reservation"
        table = catalog.describe(parse_table("t"))
        extract = Extract(
            source=spec_of(path),
            snapshot=snapshot,
            table=table,
            query=None,
            where=None,
            projection=project(catalog, table, None, (OutputNeeds(text=None),)),
        )
        units = plan(table, PlanLimits(parallelism=2, unit_bytes=20_000)).units
        assert len(units) > 1
        task = pickle.dumps((extract, units))
        for _ in range(2):
            assert "locked" in write_from_outside(path)
            done = subprocess.run(
                [sys.executable, "-c", WORKER],
                input=task,
                capture_output=True,
                cwd=ROOT,
                check=True,
            )
            assert done.stdout.decode().strip() == f"{ROWS} ['early']"
        catalog.check_snapshot()
        assert catalog.count(extract) == ROWS
    assert write_from_outside(path) == "written"


def test_a_file_in_place_of_the_reserved_one_is_refused(path: Path, tmp_path: Path) -> None:
    """A worker reads no file that no one has reserved, though it has the same size and time."""
    source, status = SQLiteSource(), path.stat()
    with closing(source.open_catalog(spec_of(path))) as catalog:
        snapshot = catalog.snapshot("snapshot")
        assert "locked" in write_from_outside(path)
        source.open_reader(spec_of(path), snapshot).close()
        other = tmp_path / "other.db"
        shutil.copy(path, other)
        with closing(sqlite3.connect(other)) as connection, connection:
            connection.execute("UPDATE t SET s = 'later'")
        assert other.stat().st_size == status.st_size
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.replace(path)
        with pytest.raises(SnapshotGone, match="was replaced after the snapshot"):
            source.open_reader(spec_of(path), snapshot)


def test_a_program_may_copy_a_wal_into_the_reserved_file(tmp_path: Path) -> None:
    """A checkpoint changes the file and not the data, so units before and after it are read."""
    path = tmp_path / "data.db"
    make(path, "wal")
    source = SQLiteSource()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE t SET s = 'in the WAL'")
        with closing(source.open_catalog(spec_of(path))) as catalog:
            snapshot = catalog.snapshot("snapshot")
            table = catalog.describe(parse_table("t"))
            extract = Extract(
                source=spec_of(path),
                snapshot=snapshot,
                table=table,
                query=None,
                where=None,
                projection=project(catalog, table, None, (OutputNeeds(text=None),)),
            )
            (piece,) = plan(table, PlanLimits(parallelism=1)).units[0].pieces
            before = path.stat().st_mtime_ns
            for _ in range(2):
                with closing(source.open_reader(spec_of(path), snapshot)) as reader:
                    batches = list(reader.batches(extract, piece, batch_bytes=9999))
                assert sum(batch.num_rows for batch in batches) == ROWS
                assert other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
            assert path.stat().st_mtime_ns != before


def test_the_log_beside_a_linked_file_belongs_to_its_state(tmp_path: Path) -> None:
    """SQLite has the WAL beside the file, not beside a symbolic link to it."""
    path, link = tmp_path / "data.db", tmp_path / "links" / "link.db"
    make(path, "wal")
    link.parent.mkdir()
    link.symlink_to(path)
    values = []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        for word in ("one", "two"):
            other.execute(f"UPDATE t SET s = '{word}'")
            with closing(SQLiteSource().open_catalog(spec_of(link))) as catalog:
                values.append(catalog.snapshot("snapshot").value)
    assert values[0] != values[1]
    assert all(" wal=" in value for value in values)


@pytest.fixture
def hold(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a write."""
    command = [sys.executable, "-c", HOLDER, str(path), "BEGIN IMMEDIATE"]
    with Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.communicate()


def test_a_busy_writer_is_named(
    path: Path, hold: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another program writes, the snapshot fails, may be retried and names the way out."""
    monkeypatch.setattr(sqlite_catalog, "BUSY_SECONDS", 0.2)
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        with pytest.raises(TransientSourceError) as caught:
            catalog.snapshot("snapshot")
        assert "another program is writing" in caught.value.message
        assert "--consistency none" in caught.value.hint
        assert catalog.snapshot("none").kind == "none"
        hold.communicate()
        assert catalog.snapshot("snapshot").kind == "write-reservation"


def test_a_lost_reservation_is_noticed(path: Path) -> None:
    """Where the lock got lost and someone wrote, no count is reported for the snapshot."""
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        snapshot = catalog.snapshot("snapshot")
        table = catalog.describe(parse_table("t"))
        # What POSIX does to locks where a file is closed that SQLite has open, too.
        for file in (path, Path(f"{path}-shm")):
            if file.exists():
                file.open("rb").close()
        assert write_from_outside(path) == "written"
        extract = Extract(
            source=spec_of(path),
            snapshot=snapshot,
            table=table,
            query=None,
            where=None,
            projection=project(catalog, table, None, (OutputNeeds(text=None),)),
        )
        with pytest.raises(SourceError, match="the snapshot is lost"):
            catalog.count(extract)
        with pytest.raises(SourceError, match="the snapshot is lost"):
            catalog.check_snapshot()


def test_a_run_leaves_the_file_as_it_was(path: Path) -> None:
    """Taking and releasing a snapshot changes no byte and leaves no file beside the database."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        catalog.snapshot("snapshot")
        catalog.describe(parse_table("t"))
        catalog.describe_query("SELECT * FROM t")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_wal_with_content_stays(tmp_path: Path) -> None:
    """A WAL that a killed program left is read, and neither copied into the file nor deleted."""
    make(tmp_path / "data.db", "wal")
    live, path = tmp_path / "data.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("DELETE FROM t WHERE id >= 7")
        for suffix in ("", "-wal"):
            shutil.copy(f"{live}{suffix}", f"{path}{suffix}")
    before = [Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")]
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        catalog.snapshot("snapshot")
        (extent,) = catalog.describe(parse_table("t")).extents
        assert extent.last == 7
    assert [Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")] == before


def test_a_hot_journal_is_explained(tmp_path: Path) -> None:
    """A journal that a killed writer left is not rolled back by us; the error says who must."""
    live, path = tmp_path / "data.db", tmp_path / "copy.db"
    make(live, "delete")
    with closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET s = s || 'r'")
        for suffix in ("", "-journal"):
            shutil.copy(f"{live}{suffix}", f"{path}{suffix}")
        connection.execute("ROLLBACK")
    before = path.read_bytes()
    with pytest.raises(SourceError, match="left its journal"):
        SQLiteSource().open_catalog(spec_of(path))
    assert path.read_bytes() == before
    assert Path(f"{path}-journal").exists()


READ_ONLY = """
import os, sys
import adbc_driver_manager, adbc_driver_sqlite
from unloader.errors import SourceError
from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.sqlite.source import SQLiteSource
if os.geteuid() == 0:  # the superuser may write any file
    os.seteuid(65534)
catalog = SQLiteSource().open_catalog(SourceSpec(kind="sqlite", location="sqlite://" + sys.argv[1]))
try:
    catalog.snapshot("snapshot")
except SourceError as error:
    print(error)
print(catalog.snapshot("none").kind, catalog.describe(parse_table("t")).extents[0].last)
catalog.close()
"""


def test_a_file_that_may_only_be_read() -> None:
    """A read-only file cannot be reserved: the error reports it and names `none`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        file = Path(folder) / "data.db"
        make(file, "delete")
        file.chmod(0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(file)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
    assert "against writers, because this user may only read it" in done.stdout
    assert "--consistency none" in done.stdout
    assert done.stdout.endswith(f"none {ROWS}\n")
