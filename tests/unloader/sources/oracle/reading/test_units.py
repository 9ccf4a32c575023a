"""Statements of units: word for word, and ROWIDs as Oracle writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oracle_server.model import Rowid

from unloader.sources.oracle.reading.units import (
    FILE_SHIFT,
    last_level,
    partition_name,
    rowid_text,
)


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
    """The last level is found again for any characters in the names, and names stay distinct."""
    name = partition_name(*levels)
    assert last_level(name) == levels[-1]
    other = partition_name("/".join(levels))
    assert (name == other) is (len(levels) == 1)
