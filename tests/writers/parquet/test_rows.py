"""Row groups: as many rows or bytes as asked for, whatever batches they come in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from amounts import examples
from encoders.parquet_files import write
from hypothesis import given, settings
from hypothesis import strategies as st

from writers.parquet.rows import RowGroups


def group_rows(path: Path) -> list[int]:
    """Return the rows of each row group."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def test_usual_row_group_has_32_mib(tmp_path: Path) -> None:
    """Without options a row group has 32 MiB in memory, or a million rows."""
    wide = pa.array([bytes(1 << 20)] * 40, pa.binary())
    (path,) = write(tmp_path, pa.table({"lob": wide}), 40)
    assert group_rows(path) == [32, 8]
    (path,) = write(tmp_path, pa.table({"n": pa.nulls(1_100_000, pa.bool_())}), 1_100_000)
    assert group_rows(path) == [1_048_576, 51_424]


VALUES = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=20),
        "list": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
        "flag": st.none() | st.booleans(),
        "struct": st.none() | st.fixed_dictionaries({"b": st.binary(max_size=9)}),
    }
)
SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("list", pa.list_(pa.string())),
        ("flag", pa.bool_()),
        ("struct", pa.struct([("b", pa.binary())])),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(VALUES, min_size=1, max_size=40),
    cuts=st.lists(st.integers(1, 9), min_size=1),
    size=st.integers(1, 200),
    most=st.integers(1, 15),
)
def test_cuts_depend_on_rows_alone(
    rows: list[dict[str, object]], cuts: list[int], size: int, most: int
) -> None:
    """Any batches of the same rows, slices among them, give the same row groups; none is lost."""
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    pieces, start, turn = [], 0, 0
    while start < len(rows):
        pieces.append(whole.slice(start, cuts[turn % len(cuts)]))
        start, turn = start + cuts[turn % len(cuts)], turn + 1
    found = []
    for batches in ([whole], pieces):
        groups = RowGroups(most, size)
        done: list[list[pa.RecordBatch]] = [[]]
        for batch in batches:
            for piece, ends in groups.cut(batch):
                done[-1].append(piece)
                done.extend([[]] if ends else [])
        tables = [pa.Table.from_batches(group, SCHEMA) for group in done]
        found.append([table.num_rows for table in tables])
        assert pa.concat_tables(tables).to_pylist() == rows
    assert found[0] == found[1]
    assert max(found[0]) <= most
