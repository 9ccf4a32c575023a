"""What tells the states of a DuckDB file apart: the snapshot of a run that died is one of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from unloader.errors import SnapshotGone, SourceError
from unloader.model import Snapshot, SourceSpec
from unloader.sources.duckdb.source import DuckDBSource

KILLED = """
import os, signal, sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO t VALUES (77)")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of ten rows."""
    found = tmp_path / "[odd] name.db"
    with closing(duckdb.connect(str(found))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(10)")
    return found


def spec_of(path: Path) -> SourceSpec:
    return SourceSpec(kind="duckdb", location=f"duckdb://{path}")


def snapshot_of(path: Path) -> Snapshot:
    with closing(DuckDBSource().open_catalog(spec_of(path))) as catalog:
        return catalog.snapshot("snapshot")


def test_reading_changes_nothing_and_writing_does(path: Path) -> None:
    """The value is the same until someone writes, and a copy of the data has it, too."""
    first = snapshot_of(path)
    assert snapshot_of(path).value == first.value
    restored = path.with_name("restored.db")
    shutil.copy2(path, restored)
    assert snapshot_of(restored).value == first.value
    size = path.stat().st_size
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("UPDATE t SET k = k + 1")
    # As if within one tick of the clock of a file system, and not grown.
    status = restored.stat()
    os.truncate(path, max(size, path.stat().st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert snapshot_of(path).value != first.value


def test_a_path_that_duckdb_cannot_open_is_refused(path: Path) -> None:
    """Its bytes are not UTF-8."""
    odd = os.fsdecode(os.fsencode(path.parent) + b"/n\xff.db")
    shutil.copy(path, odd)
    spec = SourceSpec(kind="duckdb", location=f"duckdb://{path.parent}/n%FF.db")
    with pytest.raises(SourceError, match="is not UTF-8"):
        DuckDBSource().open_catalog(spec)


def test_rows_in_the_log_of_a_killed_writer_are_another_state(path: Path) -> None:
    """They are not in the file, but DuckDB reads them: a worker refuses them for the earlier run."""
    first, before = snapshot_of(path), path.stat()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    again = snapshot_of(path)
    assert again.value != first.value
    with pytest.raises(SnapshotGone, match="was replaced after the snapshot") as caught:
        DuckDBSource().open_reader(spec_of(path), first)
    assert not caught.value.retryable
    DuckDBSource().open_reader(spec_of(path), again).close()
