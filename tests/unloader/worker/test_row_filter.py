"""A condition on rows, evaluated for some batches at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unloader.errors import OutputFailed
from unloader.worker.outputs import RowFilter
from writers.large_rows import LargeRow


def batch(*numbers: int | None) -> pa.RecordBatch:
    """Return a batch of a column and the condition's column."""
    texts = pa.array([f"t{number}" for number in numbers])
    return pa.RecordBatch.from_arrays(
        [texts, pa.array(numbers, pa.int64())], names=["text", "number"]
    )


def test_each_batch_has_its_own_rows() -> None:
    """This holds for batches taken together; NULL is left out, and None means all rows."""
    batches = [batch(1, 2, 3), batch(4, 6), batch(), batch(None, 8), batch(5)]
    found = RowFilter("number % 2 = 0", pa.schema([("number", pa.int64())]), (1,))
    kept = found.kept(batches)
    assert [None if each is None else each.to_pylist() for each in kept] == [
        *([False, True, False], None, None, [False, True], [False])
    ]
    assert found.kept([batch(2)]) == [None]
    assert found.keeps(LargeRow(row=batch(2), values=()))
    assert not found.keeps(LargeRow(row=batch(3), values=()))
    found.close()


def test_a_failure_shows_no_value() -> None:
    """The error of a condition that fails on a row names neither the row nor its values."""
    wrong = RowFilter("text::INTEGER > 1", pa.schema([("text", pa.string())]), (0,))
    with pytest.raises(OutputFailed, match="the filter fails on a row") as known:
        wrong.kept([batch(4711)])
    assert "t4711" not in f"{known.value} {known.value.__cause__}"
    wrong.close()
