"""Tables of a DuckDB file, its states, and values that outputs lack."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command

from unloader.errors import ConfigError, SnapshotGone, SourceError
from unloader.model import Snapshot, SourceSpec
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.sources.duckdb.source import DuckDBSource
from unloader.sources.questions import describe_tables
from unloader.sources.testing import check_many_tables

FORKED = """
import os, sys
from unloader.worker import process
from unloader.model import Preload, SourceSpec
from unloader.sources.duckdb.source import DuckDBSource
source, spec = DuckDBSource(), SourceSpec(kind="duckdb", location=f"duckdb://{sys.argv[1]}")
# The order that a fork server gets.
process.work(Preload(source_kind="duckdb", source=spec), print)
os.unlink(sys.argv[1])
print(len(os.listdir("/proc/self/task")), flush=True)
SORTED = (
    "SELECT sum(n * k) FROM (SELECT k, row_number() OVER (ORDER BY md5(k::VARCHAR)) AS n "
    "FROM range(300000) made(k))"
)
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        connection = source.open_reader(spec, None)._connection
        connection.execute("SET enable_progress_bar = false; SET memory_limit = '20MB'")
        # Computed in Python, with the positions of the sorted checksums of `hashlib`.
        os._exit(connection.execute(SORTED).fetchall() != [(6753817932994626,)])
    children.append(child)
for child in children:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

HOSTILE = ('a"b', "two\nlines", "dot.ted", "*", "[x]?", "Größe😀", "'; --", " ", "select")
TYPES = (
    "a mood, b number, c record, d JSON, e UNION(x INTEGER, y VARCHAR), f DECIMAL(12,2), "
    "g INTEGER[3], h MAP(VARCHAR, INTEGER), i VARCHAR(10), j TIMESTAMPTZ, k BIT, l UHUGEINT, "
    'm INTEGER NOT NULL, n AS (m + 1), o STRUCT("q x" INTEGER, "A" VARCHAR), p ENUM(\'z\'), '
    '"q""x" TIMETZ, r INTEGER PRIMARY KEY, s VARCHAR COLLATE NOCASE, u TIMESTAMP_S, v TIMESTAMP_NS'
)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with tables of every kind."""
    made = tmp_path / "data.db"
    with closing(duckdb.connect(str(made))) as connection:
        connection.execute(
            "CREATE TYPE mood AS ENUM ('a', 'b''c'); CREATE TYPE number AS INTEGER;"
            "CREATE TYPE record AS STRUCT(a mood, b number[]);"
            f'CREATE TABLE types ({TYPES}); CREATE SCHEMA "S.s"; CREATE TABLE "S.s".t (a INTEGER);'
            "CREATE TABLE gaps AS SELECT range AS k FROM range(3000);"
            "DELETE FROM gaps WHERE k % 3 = 0;"
            "CREATE VIEW seen AS SELECT m, n + 1 AS k FROM types; CREATE TABLE lost (a INTEGER);"
            "CREATE VIEW broken AS SELECT a FROM lost; DROP TABLE lost;"
            "CREATE TABLE parted AS SELECT range AS k FROM range(40);"
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, "
            "t.name AS table_name, 'p' || range AS partition_name, range AS position, "
            "range * 10 AS first_rowid, range * 10 + t.last AS last_rowid "
            "FROM range(4), (VALUES ('parted', 9), ('gaps', 5)) AS t (name, last)"
        )
        for name in HOSTILE:
            connection.execute(f"CREATE TABLE {quoted(name)} (k INTEGER, {quoted(name)} VARCHAR)")
    return made


def spec_of(path: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="duckdb", location=f"duckdb://{path}")


def test_contract_of_many_tables(path: Path) -> None:
    """Every type, hostile names, partitions that fit and that do not, a view whose table is gone."""
    listing = check_many_tables(DuckDBSource(), spec_of(path), at_least=len(HOSTILE) + 6)
    found = {table.label: table for table in listing.tables}
    assert "main.parted" in found
    assert found["main.seen"].family == "view"
    assert "main.unloader_partitions" not in found


def test_the_number_of_statements_is_fixed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables there are; only the rows of each table are counted separately."""
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(";".join(f"CREATE TABLE t{at} (a INTEGER)" for at in range(150)))
    with closing(DuckDBSource().open_catalog(spec_of(path))) as catalog:
        counted: list[str] = []
        run = catalog.rows

        def counting(sql: str, *more: Any) -> Any:
            counted.append(sql)
            return run(sql, *more)

        monkeypatch.setattr(catalog, "rows", counting)
        listing = catalog.list_tables()
        assert len(counted) == 3
        wanted = TableChoice(tables=(parse_pattern("main.*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert len(described.tables) == 150 + len(HOSTILE) + 3
        assert len(counted) <= 3 + 6 + len(described.tables)


def test_names_mean_what_they_mean_to_one_run(path: Path) -> None:
    """In any case; a view whose table is gone is reported, and the others are described."""
    with closing(DuckDBSource().open_catalog(spec_of(path))) as catalog:
        texts = ("TYPES", '"SEEN"', "Broken", '"s.S".T', "none")
        wanted = TableChoice(tables=tuple(map(parse_pattern, texts)))
        found = describe_tables(catalog, choose(wanted, catalog.list_tables()))
        assert [info.label for info in found.tables] == ["S.s.t", "main.seen", "main.types"]
        assert {(problem.kind, problem.table) for problem in found.problems} == {
            ("refused", "main.broken"),
            ("refused", "none"),
        }


KILLED = """
import os, signal, sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO t VALUES (77)")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    """A file with a table of ten rows."""
    found = tmp_path / "[odd] name.db"
    with closing(duckdb.connect(str(found))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(10)")
    return found


def state_spec(state_file: Path) -> SourceSpec:
    return SourceSpec(kind="duckdb", location=f"duckdb://{state_file}")


def snapshot_of(state_file: Path) -> Snapshot:
    with closing(DuckDBSource().open_catalog(state_spec(state_file))) as catalog:
        return catalog.snapshot("snapshot")


def test_reading_changes_nothing_and_writing_does(state_file: Path) -> None:
    """The value is the same until someone writes, and a copy of the data has it, too."""
    first = snapshot_of(state_file)
    assert snapshot_of(state_file).value == first.value
    restored = state_file.with_name("restored.db")
    shutil.copy2(state_file, restored)
    assert snapshot_of(restored).value == first.value
    size = state_file.stat().st_size
    with closing(duckdb.connect(str(state_file))) as connection:
        connection.execute("UPDATE t SET k = k + 1")
    # As if within one tick of the clock of a file system, and not grown.
    status = restored.stat()
    os.truncate(state_file, max(size, state_file.stat().st_size))
    os.utime(state_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert snapshot_of(state_file).value != first.value


def test_a_path_that_duckdb_cannot_open_is_refused(state_file: Path) -> None:
    """Its bytes are not UTF-8."""
    odd = os.fsdecode(os.fsencode(state_file.parent) + b"/n\xff.db")
    shutil.copy(state_file, odd)
    spec = SourceSpec(kind="duckdb", location=f"duckdb://{state_file.parent}/n%FF.db")
    with pytest.raises(SourceError, match="is not UTF-8"):
        DuckDBSource().open_catalog(spec)


def test_rows_in_the_log_of_a_killed_writer_are_another_state(state_file: Path) -> None:
    """They are not in the file, but DuckDB reads them: a worker refuses them for the earlier run."""
    first, before = snapshot_of(state_file), state_file.stat()
    done = subprocess.run([sys.executable, "-c", KILLED, str(state_file)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (state_file.stat().st_size, state_file.stat().st_mtime_ns) == (
        before.st_size,
        before.st_mtime_ns,
    )
    again = snapshot_of(state_file)
    assert again.value != first.value
    with pytest.raises(SnapshotGone, match="was replaced after the snapshot") as caught:
        DuckDBSource().open_reader(state_spec(state_file), first)
    assert not caught.value.retryable
    DuckDBSource().open_reader(state_spec(state_file), again).close()


def test_a_file_that_is_shared_with_forks_is_opened_again_after_a_change(state_file: Path) -> None:
    """A reader takes the shared file, but only in the state of the run's snapshot."""
    source, spec, first = DuckDBSource(), state_spec(state_file), snapshot_of(state_file)
    other = state_file.with_name("other.db")
    with closing(duckdb.connect(str(other))) as connection:
        connection.execute("CREATE TABLE only_here AS SELECT 7 AS k")
    now = snapshot_of(other)
    source.share(spec)
    os.replace(other, state_file)
    with closing(source.open_reader(spec, now)) as reader:
        assert reader._connection.execute("SELECT k FROM only_here").fetchall() == [(7,)]
    source.share(spec)
    with pytest.raises(SnapshotGone, match="was replaced after the snapshot"):
        source.open_reader(spec, first)


def test_a_shared_file_starts_no_thread_and_forks_read_and_sort_it(state_file: Path) -> None:
    """The fork server refuses to fork with a second thread. Forks sort on disk side by side.

    They use the open file: it has been removed when they begin.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(state_file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0", "0", "0"]


def test_an_old_duckdb_is_refused(state_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the version is replaced: one environment has one DuckDB."""
    monkeypatch.setattr(duckdb, "__version__", "1.5.0")
    with pytest.raises(
        ConfigError, match=r"1\.5\.0 is installed.*Next: pip install .unloader\[duckdb"
    ):
        DuckDBSource().open_catalog(state_spec(state_file))


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A table with three columns of infinite values and one of finite ones."""
    path = tmp_path / "data.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT DATE 'infinity' AS d, TIMESTAMP '-infinity' AS ts, "
            "TIMESTAMPTZ 'infinity' AS \"t z\", DATE '2024-01-31' AS ok"
        )
        connection.execute("CREATE TABLE u (u UNION(n INTEGER, s VARCHAR), e ENUM('UNION(', 'b'))")
    return f"duckdb://{path}"


def test_all_columns_with_infinite_values_are_named(source: str, tmp_path: Path) -> None:
    """One run names them all, and its advice works."""
    job = ("run", source, "--table", "t", "--to", str(tmp_path / "out"), "--format", "parquet")
    error = command.error_of(*job, "--progress", "none", status=6)
    assert "columns d, ts, t z hold" in error
    assert "--as-text d,ts,t z" in error
    command.run(*job, "--as-text", "d,ts,t z", "--quiet")


def test_a_union_has_texts_of_two_values(source: str) -> None:
    """1 and '1' of a UNION have one text, so the column is not lossless; others are."""
    shown = command.run("describe", source, "--table", "u", "--json")
    assert [part.split(",")[0] for part in shown.split('"lossless": ')[1:]] == [
        *("false", "false"),  # Parquet and text
        *("true", "true"),
    ]
