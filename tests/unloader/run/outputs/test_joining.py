"""`--file-per table`: the files of the work units become one, unless a signal comes before."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from unloader import api
from unloader.errors import Interrupted
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from writers.model import ParquetFormat, TextFormat


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_signal_ends_the_joining(tmp_path: Path, kind: str) -> None:
    """It is looked for between pieces: the units' files stay, the half of a joined one goes."""
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(500000)")
    shape = TextFormat() if kind == "csv" else ParquetFormat()
    out = tmp_path / "out"
    job = Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{tmp_path}/t.db"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=str(out), format=shape, file_per="table"),
        parallelism=2,
        unit_bytes=1 << 20,
        seats=SeatOptions(numa="off"),
    )
    staged = out / "_run" / "staged"

    def stop() -> bool:
        return bool(list(staged.glob("table.*")))

    with pytest.raises(Interrupted, match="before the files had their final names"):
        api.unload(job, stop=stop)
    left = sorted(path.name.partition(".")[0] for path in staged.iterdir())
    assert left == [f"{unit:04d}-a1" for unit in range(1, len(left) + 1)]
    assert len(left) > 1
    assert [path.name for path in out.iterdir()] == ["_run"]
