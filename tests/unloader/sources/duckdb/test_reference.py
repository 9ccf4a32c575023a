"""The reference table in a DuckDB file: its shape, its partitions, and builds that end early."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import Interrupted, OutputFailed
from unloader.sources.duckdb.reference import build_reference_table, is_current

duckdb = pytest.importorskip("duckdb", reason="needs the extra duckdb")

ROWS = 20_000


def never() -> bool:
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


def test_a_finished_file_is_used_again_and_another_size_replaces_it(tmp_path: Path) -> None:
    """The same arguments leave the file untouched; other ones build it again."""
    path = tmp_path / "reference.duckdb"
    build_reference_table(path, 1_000, stop=never)
    before = path.stat()
    build_reference_table(path, 1_000, stop=never)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert is_current(path, 1_000)
    assert not is_current(path, 2_000)
    build_reference_table(path, 2_000, stop=never)
    assert query(path, "SELECT count(*) FROM HASH_PART_0160") == [(2_000,)]


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


def test_a_foreign_file_is_refused_and_kept(tmp_path: Path) -> None:
    """A file of another kind is named in the error and not touched."""
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
