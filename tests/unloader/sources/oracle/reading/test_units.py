"""Statements of units: word for word, and ROWIDs as Oracle writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_server.model import Rowid

from partition_planner.model import (
    KeyRange,
    NamedPartition,
    PartitionInfo,
    RowRange,
    Selector,
    TableInfo,
    WholeTable,
)
from unloader.model import Extract, Projection, Snapshot, SourceSpec
from unloader.sources.oracle.reading.units import (
    FILE_SHIFT,
    count_statement,
    last_level,
    partition_name,
    rowid_text,
    selector_statement,
)

SCN = Snapshot(kind="scn", value="42", taken_at="")


def extract(
    *, snapshot: Snapshot | None = SCN, where: str | None = None, query: str | None = None
) -> Extract:
    """Return what is read of HR."Odd Name"."""
    table = TableInfo(
        schema="HR", name="Odd Name", columns=(), named_partitions=True, row_ranges=True
    )
    return Extract(
        source=SourceSpec(kind="oracle", location="oracle://scott@db/s"),
        snapshot=snapshot,
        table=table,
        query=query,
        where=where,
        projection=Projection(columns=(), route="arrow", schema=""),
    )


@pytest.mark.parametrize(
    ("selector", "rest"),
    [
        (WholeTable(), " AS OF SCN 42 WHERE (x = 1\n)"),
        (
            NamedPartition(partition="P1", kind="partition"),
            ' PARTITION ("P1") AS OF SCN 42 WHERE (x = 1\n)',
        ),
        (
            NamedPartition(partition="P1/S 2", kind="subpartition"),
            ' SUBPARTITION ("S 2") AS OF SCN 42 WHERE (x = 1\n)',
        ),
        (
            RowRange(partition="P1", object_id=1, first=(4 << FILE_SHIFT) + 20, last=None),
            ' PARTITION ("P1") AS OF SCN 42 WHERE ROWID >= '
            "CHARTOROWID('AAAAABAAEAAAAAUAAA') AND (x = 1\n)",
        ),
        (
            KeyRange(column="K", first="'a'", last="'b'"),
            " AS OF SCN 42 WHERE \"K\" >= 'a' AND \"K\" < 'b' AND (x = 1\n)",
        ),
    ],
)
def test_statement_of_a_selector(selector: Selector, rest: str) -> None:
    """Each kind of selector is one SELECT, its clauses in Oracle's order, the condition apart."""
    sql = selector_statement('"A"', extract(where="x = 1"), selector)
    assert sql == f'SELECT "A" FROM "HR"."Odd Name"{rest}'


def test_a_query_is_read_at_the_scn() -> None:
    """A query stands in parentheses, whatever comment it ends with, and is read at the SCN too."""
    sql = selector_statement("1", extract(query="SELECT 1 FROM t -- all;"), WholeTable())
    assert sql == "SELECT 1 FROM (SELECT 1 FROM t -- all\n) AS OF SCN 42"


def test_no_scn_without_a_snapshot() -> None:
    """Without a consistent point the statement names none."""
    none = Snapshot(kind="none", value="", taken_at="")
    for snapshot in (None, none):
        sql = selector_statement("1", extract(snapshot=snapshot), WholeTable())
        assert sql == 'SELECT 1 FROM "HR"."Odd Name"'


def test_pieces_are_counted_with_their_partition() -> None:
    """A leaf is counted as a whole, and the table as one."""
    leaf = PartitionInfo(name="P1", position=1)
    assert count_statement(extract(where="y"), leaf) == (
        'SELECT COUNT(*) FROM "HR"."Odd Name" PARTITION ("P1") AS OF SCN 42 WHERE (y\n)'
    )
    assert count_statement(extract(), None) == 'SELECT COUNT(*) FROM "HR"."Odd Name" AS OF SCN 42'


@given(
    st.integers(1, 2**32 - 1),
    st.integers(1, 1022),
    st.integers(0, 2**22 - 1),
)
def test_rowids_of_usual_tablespaces(object_id: int, file: int, block: int) -> None:
    """A ROWID has 18 characters and means the first row of the block."""
    text = rowid_text(object_id, (file << FILE_SHIFT) + block)
    assert text == str(Rowid(object_id, file, block, 0))


def test_rowids_of_bigfile_tablespaces() -> None:
    """The one file of a bigfile tablespace, 1024, is not in its ROWIDs; its blocks take 32 bits."""
    assert rowid_text(0x12015, (1024 << FILE_SHIFT) + 20) == "AAASAVAAAAAAAAUAAA"
    wide = rowid_text(1, (1024 << FILE_SHIFT) + (3 << 22) + 7)
    assert wide == rowid_text(1, (3 << FILE_SHIFT) + 7) == "AAAAABAADAAAAAHAAA"


@given(
    st.lists(
        st.text(st.sampled_from("ab/ \N{LATIN SMALL LETTER U WITH DIAERESIS}"), min_size=1),
        min_size=1,
        max_size=2,
    )
)
def test_names_of_leaves_keep_slashes_apart(levels: list[str]) -> None:
    """The last level is found again whatever characters the names have, and names stay apart."""
    name = partition_name(*levels)
    assert last_level(name) == levels[-1]
    other = partition_name("/".join(levels))
    assert (name == other) is (len(levels) == 1)
