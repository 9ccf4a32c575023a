"""A condition on rows, evaluated for some batches at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unloader.errors import OutputFailed
from unloader.worker.outputs import row_filter
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
    found = row_filter("number % 2 = 0", batches[0].schema, [1])
    kept = found.kept(batches)
    assert [None if each is None else each.to_pylist() for each in kept] == [
        *([False, True, False], None, None, [False, True], [False])
    ]
    assert found.kept([batch(2)]) == [None]
    assert found.keeps(LargeRow(row=batch(2), values=()))
    assert not found.keeps(LargeRow(row=batch(3), values=()))
    found.close()


def test_a_filter_is_left_to_the_next_unit() -> None:
    """Only a filter for the same condition and columns is reused; a failure is not shown."""
    schema = batch(1).schema
    first = row_filter("number > 1", schema, [1])
    second = row_filter("number > 1", schema, [1])
    assert first is not second
    first.keep()
    second.keep()
    other = row_filter("text > 't1'", schema, [0])
    assert other not in (first, second)
    again = row_filter("number > 1", schema, [1])
    assert again is first
    assert again.kept([batch(1, 2)])[0].to_pylist() == [False, True]
    again.close()
    other.close()
    wrong = row_filter("text::INTEGER > 1", schema, [0])
    with pytest.raises(OutputFailed, match="the filter fails on a row") as known:
        wrong.kept([batch(4711)])
    assert "t4711" not in f"{known.value} {known.value.__cause__}"
    wrong.close()
