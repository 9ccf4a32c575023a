"""The reference table in a DuckDB file: its shape, its partitions, and builds that end early."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.sources.duckdb.reference import build_reference_table, is_current
from writers.model import Compression, OutputSpec
from writers.registry import open_writer
from writers.text.dialects import dialect

duckdb = pytest.importorskip("duckdb", reason="needs the extra duckdb")

ROWS = 20_000


def never() -> bool:
    """Let the build go on."""
    return False


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the file."""
    with duckdb.connect(str(path), read_only=True) as database:
        rows: list[tuple[Any, ...]] = database.execute(sql).fetchall()
    return rows


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build one table for the tests that only read it."""
    path = tmp_path_factory.mktemp("reference") / "reference.duckdb"
    build_reference_table(path, ROWS, stop=never)
    return path


def test_columns_have_the_published_order_and_types(reference: Path) -> None:
    """The ten columns are text, date, number and so on, in the order of the published table."""
    types = [row[1] for row in query(reference, "DESCRIBE HASH_PART_0160")]
    assert types == [
        "VARCHAR",
        "TIMESTAMP",
        "DECIMAL(13,0)",
        "VARCHAR",
        "DECIMAL(12,2)",
        "TIMESTAMP",
        "VARCHAR",
        "VARCHAR",
        "DECIMAL(15,0)",
        "VARCHAR",
    ]


def test_a_record_of_the_published_dialect_has_165_bytes_on_average(
    reference: Path, tmp_path: Path
) -> None:
    """In the dialect of the published sample the mean record has 165 bytes, its prefix included."""
    spec = OutputSpec(
        directory=str(tmp_path), format=dialect("sqlldr-var"), compression=Compression()
    )
    with duckdb.connect(str(reference), read_only=True) as database:
        rows = database.sql("FROM HASH_PART_0160").to_arrow_table()
    writer = open_writer(spec, rows.schema, "reference")
    for batch in rows.to_batches():
        writer.write(batch)
    (written,) = writer.close()
    assert written.bytes / written.rows == pytest.approx(165, abs=1)


def test_text_has_the_published_lengths(reference: Path) -> None:
    """Keys have 5 to 15 characters, CHAR(8) is padded with blanks, long numbers have 15 digits."""
    found = query(
        reference,
        "SELECT min(length(REF_KEY)), max(length(REF_KEY)), min(length(CODE)), max(length(CODE)), "
        "count(*) FILTER (CODE LIKE '% '), min(length(SERIAL_NO::VARCHAR)) FROM HASH_PART_0160",
    )[0]
    shortest, longest, code_shortest, code_longest, padded, digits = found
    assert (shortest, longest, code_shortest, code_longest, digits) == (5, 15, 8, 8, 15)
    assert padded > ROWS / 2


def test_text_uses_all_letters_and_digits(reference: Path) -> None:
    """Each of the 62 letters and digits comes about as often as the others."""
    counts = query(
        reference,
        "SELECT letter, count(*) FROM (SELECT unnest(string_split(REMARK, '')) AS letter "
        "FROM HASH_PART_0160) GROUP BY letter",
    )
    total = sum(count for _, count in counts)
    assert len(counts) == 62
    assert all(0.8 < count * 62 / total < 1.25 for _, count in counts)


def test_dates_reach_both_ends_of_the_calendar(reference: Path) -> None:
    """The last second of 9999 and the first of year 1 occur, and the years between are spread."""
    first, last, centuries = query(
        reference,
        "SELECT min(VALID_FROM), max(VALID_TO), count(DISTINCT year(VALID_FROM) // 100) "
        "FROM HASH_PART_0160",
    )[0]
    assert first == datetime(1, 1, 1)
    assert last == datetime(9999, 12, 31, 23, 59, 59)
    assert centuries == 100


def test_partitions_tile_the_table_by_the_hash_of_the_key(reference: Path) -> None:
    """The 32 rowid ranges follow each other without a gap, and each row is in its hash's range."""
    parts = query(
        reference,
        "SELECT partition_name, position, first_rowid, last_rowid FROM unloader_partitions "
        "WHERE table_schema = 'main' AND table_name = 'HASH_PART_0160' ORDER BY position",
    )
    assert [(name, position) for name, position, _, _ in parts] == [
        (f"HASH_PART_0160_P{number:02d}", number) for number in range(1, 33)
    ]
    assert parts[0][2] == 0
    assert all(before[3] + 1 == after[2] for before, after in pairwise(parts))
    assert parts[-1][3] == ROWS - 1
    astray = query(
        reference,
        "SELECT count(*) FROM HASH_PART_0160 AS t JOIN unloader_partitions AS p "
        "ON t.rowid BETWEEN p.first_rowid AND p.last_rowid "
        "WHERE hash(t.REF_KEY) % 32 + 1 <> p.position",
    )
    assert astray == [(0,)]


def test_the_content_follows_from_the_number_of_rows(reference: Path, tmp_path: Path) -> None:
    """Building again gives the same rows in the same places, and no two columns are alike."""
    again = tmp_path / "again.duckdb"
    build_reference_table(again, ROWS, stop=never)
    content = "SELECT rowid, * FROM HASH_PART_0160 ORDER BY rowid"
    assert query(again, content) == query(reference, content)
    assert query(
        again, "SELECT count(DISTINCT REF_KEY), count(DISTINCT ITEM_NO) FROM HASH_PART_0160"
    ) == [(ROWS, ROWS)]


def test_more_partitions_than_rows_leave_empty_ranges(tmp_path: Path) -> None:
    """A partition without rows is still listed, as a range that ends before it begins."""
    path = tmp_path / "small.duckdb"
    build_reference_table(path, 3, partitions=8, table="SMALL", stop=never)
    sizes = query(path, "SELECT last_rowid - first_rowid + 1 FROM unloader_partitions")
    assert len(sizes) == 8
    assert sum(size for (size,) in sizes) == 3
    assert min(size for (size,) in sizes) == 0


def test_a_finished_file_is_used_again_and_another_size_replaces_it(tmp_path: Path) -> None:
    """The same arguments leave the file untouched; other ones build it anew."""
    path = tmp_path / "reference.duckdb"
    build_reference_table(path, 1_000, stop=never)
    before = path.stat()
    build_reference_table(path, 1_000, stop=never)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert is_current(path, 1_000)
    assert not is_current(path, 2_000)
    build_reference_table(path, 2_000, stop=never)
    assert query(path, "SELECT count(*) FROM HASH_PART_0160") == [(2_000,)]


def test_progress_ends_with_all_rows(tmp_path: Path) -> None:
    """The observer is told growing numbers of rows, the last of them all."""
    told: list[int] = []
    build_reference_table(tmp_path / "t.duckdb", 300_000, observe=told.append, stop=never)
    assert len(told) > 1
    assert told == sorted(told)
    assert told[-1] == 300_000


@pytest.mark.parametrize("answers_before_stop", [0, 1])
def test_a_stopped_build_leaves_nothing(
    tmp_path: Path, answers_before_stop: int, asked_to_stop: Callable[[int], Callable[[], bool]]
) -> None:
    """Stopping raises Interrupted, and neither the file nor anything it was built from remains."""
    path = tmp_path / "reference.duckdb"
    with pytest.raises(Interrupted, match="Next: run the same command again"):
        build_reference_table(path, 300_000, stop=asked_to_stop(answers_before_stop))
    assert os.listdir(tmp_path) == []


@pytest.fixture
def asked_to_stop() -> Callable[[int], Callable[[], bool]]:
    """Return a maker of stop functions that say yes from the nth question on."""

    def after(questions: int) -> Callable[[], bool]:
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > questions

        return stop

    return after


def test_what_a_killed_build_left_is_replaced(tmp_path: Path) -> None:
    """A half-built file of a dead process does not stand in the way."""
    path = tmp_path / "reference.duckdb"
    (tmp_path / "reference.duckdb.building").write_bytes(b"half a database")
    (tmp_path / "reference.duckdb.building.wal").write_bytes(b"half a log")
    build_reference_table(path, 100, stop=never)
    assert os.listdir(tmp_path) == ["reference.duckdb"]


def test_a_foreign_file_is_refused_and_kept(tmp_path: Path) -> None:
    """A file that is no reference table is named in the error and not touched."""
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as database:
        database.execute("CREATE TABLE HASH_PART_0160 AS SELECT 1 AS mine")
    for path in (text, other):
        with pytest.raises(OutputFailed, match="Next: choose another directory"):
            build_reference_table(path, 100, stop=never)
    assert text.read_text() == "mine"
    assert query(other, "SELECT mine FROM HASH_PART_0160") == [(1,)]


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """A file in the place of the directory is an OutputFailed with the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFailed, match="cannot build the reference table"):
        build_reference_table(tmp_path / "file" / "t.duckdb", 100, stop=never)


@pytest.mark.parametrize(("rows", "partitions"), [(0, 32), (10, 0), (10, 257)])
def test_impossible_sizes_are_refused(tmp_path: Path, rows: int, partitions: int) -> None:
    """No rows, no partitions and more than 256 partitions are usage errors."""
    with pytest.raises(UsageError, match="Next: "):
        build_reference_table(tmp_path / "t.duckdb", rows, partitions=partitions, stop=never)
