"""A run without processes: the same files as with workers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from unloader import api
from unloader.engine.in_process import InProcessExecutor
from unloader.model import (
    OutputOptions,
    PlanOptions,
    Request,
    SeatOptions,
    Selection,
    SourceSpec,
)
from unloader.request.names import parse_table
from unloader.resolve.resolution import resolved
from unloader.run.run import run
from unloader.selection.choice import TablesRequest
from unloader.worker.process import release, run_unit
from writers.model import TextFormat


def request_of(tmp_path: Path, to: str) -> Request:
    """Return a request for a table of an SQLite file in several units."""
    path = tmp_path / "t.db"
    if not path.exists():
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
            connection.executemany(
                "INSERT INTO t VALUES (?, ?)", ((k, "x" * 90) for k in range(1000))
            )
            connection.commit()
    return Request(
        source=SourceSpec(kind="sqlite", location=f"sqlite://{path}"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=str(tmp_path / to), format=TextFormat()),
        limits=PlanOptions(parallelism=2, split="range", unit_bytes=16384),
        seats=SeatOptions(numa="off"),
    )


def test_a_whole_run_in_this_process_writes_the_same_bytes(tmp_path: Path) -> None:
    """Files and counts equal a run with workers; the manifest has one worker."""
    api.unload(request_of(tmp_path, "workers"))
    job = request_of(tmp_path, "here")
    asked = TablesRequest.one(job)
    with resolved(asked) as ready, closing(InProcessExecutor(run_unit)) as executor:
        manifests = run(ready, executor, observe=lambda event: None, stop=lambda: False)
        assert isinstance(manifests, tuple)
        (manifest,) = manifests
    release()
    assert [each.units for each in manifest.workers] == [len(ready.tables[0].plan.units)]
    assert manifest.totals.rows == 1000
    written = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.csv")}
        for name in ("workers", "here")
    ]
    assert len(written[0]) == len(ready.tables[0].plan.units) > 1
    assert written[0] == written[1]
