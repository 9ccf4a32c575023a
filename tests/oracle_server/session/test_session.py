"""What a logged-in client can ask for: statements, binds, cursors, LOBs, attributes, transactions."""

from __future__ import annotations

import pytest

MODES = pytest.mark.parametrize("mode", ["19c", "21c", "23ai"])


@MODES
@pytest.mark.parametrize("prefetch", [0, 1, 2, 1000])
@pytest.mark.parametrize("arraysize", [1, 100])
def test_every_size_of_fetch(serve, connect, mode, prefetch, arraysize) -> None:
    """All rows come, whether the last reply is full, short or empty."""
    connection = connect(serve(mode=mode))
    for count in (0, 1, 2, 99, 100, 101, 200):
        cursor = connection.cursor()
        cursor.prefetchrows, cursor.arraysize = prefetch, arraysize
        for _ in range(2):
            cursor.execute(f"select {count} rows")
            assert cursor.fetchall() == [(n, f"name {n}") for n in range(count)]
            assert cursor.rowcount == count
