"""Conditions that Oracle would take and that do not mean the same in every work unit."""

from __future__ import annotations

import pytest

from unloader.errors import SourceError
from unloader.sources.oracle.catalog import refuse_row_numbers


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
        "ID IN (SELECT MAX(ID) FROM (SELECT ID FROM T ORDER BY ID) WHERE ROWNUM <= NVL(10, 1))",
    ],
)
def test_what_only_looks_like_them_is_taken(where: str) -> None:
    """Literals, names, comments and subqueries may contain the word."""
    refuse_row_numbers(where)
