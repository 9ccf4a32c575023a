"""Arrow's CSV writer as a joiner of columns: the bytes are those of joining them in another way."""

from __future__ import annotations

import pyarrow as pa
import pytest

import writers.text.arrow_csv
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, dialect


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_without_arrows_options_the_bytes_are_the_same(name, monkeypatch):
    """Versions of Arrow whose writer ends lines in LF only write every dialect just the same."""
    texts = ["plain", None, "", "a,b", 'q"q', "x~y", "日本\\", "two\nlines"]
    batch = pa.record_batch(
        [
            pa.array(texts),
            pa.array([t and t.replace('"', "") for t in texts], pa.large_string()),
            pa.array([None, 1, 2, 3, 4, 5, 6, 7], pa.int64()),
            pa.array([0, None, 2, 3, 4, 5, 6, 7], pa.timestamp("s")),
        ],
        names=["a", "b", "c", "d"],
    )

    def encoded(rows):
        return bytes(PlainEncoder(rows.schema, dialect(name)).encode(rows))

    parts = [batch, batch.slice(0, 3), batch.slice(5, 2)]
    found = [encoded(part) for part in parts]
    monkeypatch.setattr(writers.text.arrow_csv, "_can_end_lines", lambda: False)
    assert [encoded(part) for part in parts] == found
