"""How many records a piece of text holds, for the display."""

from __future__ import annotations

from unloader.worker.unit import RowEstimate


def test_rows_in_memory_that_serves_again_are_counted_and_a_large_row_is_one() -> None:
    """Both are views; the second cannot be written to. Later pieces go by the size of the first."""
    rows = RowEstimate()
    chunk = memoryview(bytearray(b"1,a\n2,b\n3,c\n"))
    large = memoryview(b"4," + b"x" * 1000 + b"\n")
    assert rows((chunk,)) == 3
    assert rows((large,)) == 1
    assert rows((chunk[:8], large)) == 3
    assert rows((b"5,e\n",)) == 1
