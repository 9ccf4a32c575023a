"""Outputs that filter and change rows, from unit to unit of one worker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unloader.errors import OutputFailed
from unloader.model import OutputTask, Projection
from unloader.transforms.model import Step, TransformOptions
from unloader.worker.outputs import RowFilter, UnitOutput
from writers.large_rows import LargeRow
from writers.model import Compression, OutputSpec, ParquetFormat
from writers.registry import open_writer

DOUBLED = TransformOptions(steps=(Step(step="compute", column="b", sql="a * 2"),))
SCHEMA = pa.schema([("a", pa.int64())])
PROJECTION = Projection(columns=(), route="arrow", schema="", filters=((0,),))


def opened(to: Path, name: str) -> UnitOutput:
    """Open a Parquet file without the rows where a is 0, whose column b is twice its column a."""
    spec = OutputSpec(
        directory=str(to), format=ParquetFormat(), compression=Compression(codec="none")
    )
    output = UnitOutput(
        OutputTask(spec=spec, stem=name, transform=DOUBLED, filter="a > 0"),
        PROJECTION,
        SCHEMA,
        lambda schema: open_writer(spec, schema, name),
        checksums=True,
    )
    output.open()
    return output


def batch(*values: int) -> pa.RecordBatch:
    """Return rows of column a."""
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def doubled(to: Path, name: str) -> list[int]:
    """Return what column b has in a file."""
    (path,) = to.glob(f"{name}*")
    values: list[int] = pq.read_table(path).column("b").to_pylist()
    return values


def test_units_after_each_other_and_at_once_have_their_own_rows(tmp_path: Path) -> None:
    """Reused objects do not mix the rows of units, even if a finished unit is given up late."""
    first = opened(tmp_path, "first")
    first.write(batch(1, 0, 2))
    first.close(3)
    assert first.filtered == 1
    content = first.content(None)
    assert content is not None
    assert content.rows == 2
    second, third = opened(tmp_path, "second"), opened(tmp_path, "third")
    second.write(batch(3))
    third.write(batch(5, 6))
    third.close(2)
    second.close(1)
    assert [doubled(tmp_path, name) for name in ("first", "second", "third")] == [
        [2, 4],
        [6],
        [10, 12],
    ]
    third.abort()
    for name in ("fourth", "fifth"):
        later = opened(tmp_path, name)
        later.write(batch(7))
        later.close(1)
        assert doubled(tmp_path, name) == [14]


def test_a_unit_that_is_given_up_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    """The rows that it held do not appear in the next unit."""
    given_up = opened(tmp_path, "lost")
    given_up.write(batch(1, 2, 3))
    given_up.abort()
    assert not list(tmp_path.glob("lost*"))
    output = opened(tmp_path, "kept")
    output.write(batch(4))
    output.close(1)
    assert doubled(tmp_path, "kept") == [8]


def numbered(*numbers: int | None) -> pa.RecordBatch:
    """Return a batch of a column and the condition's column."""
    texts = pa.array([f"t{number}" for number in numbers])
    return pa.RecordBatch.from_arrays(
        [texts, pa.array(numbers, pa.int64())], names=["text", "number"]
    )


def test_each_batch_has_its_own_rows() -> None:
    """This holds for batches taken together; NULL is left out, and None means all rows."""
    batches = [numbered(1, 2, 3), numbered(4, 6), numbered(), numbered(None, 8), numbered(5)]
    found = RowFilter("number % 2 = 0", pa.schema([("number", pa.int64())]), (1,))
    kept = found.kept(batches)
    assert [None if each is None else each.to_pylist() for each in kept] == [
        *([False, True, False], None, None, [False, True], [False])
    ]
    assert found.kept([numbered(2)]) == [None]
    assert found.keeps(LargeRow(row=numbered(2), values=()))
    assert not found.keeps(LargeRow(row=numbered(3), values=()))
    found.close()


def test_a_failure_shows_no_value() -> None:
    """The error of a condition that fails on a row names neither the row nor its values."""
    wrong = RowFilter("text::INTEGER > 1", pa.schema([("text", pa.string())]), (0,))
    with pytest.raises(OutputFailed, match="the filter fails on a row") as known:
        wrong.kept([numbered(4711)])
    assert "t4711" not in f"{known.value} {known.value.__cause__}"
    wrong.close()
