"""The options on Parquet files, from the command line into the file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from writers.parquet.options import supported

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PARQUET = ("--to", "out", "--format", "parquet")


def written(directory: Path) -> Path:
    """Return the only file of a run."""
    (path,) = (directory / "out").glob("*.parquet")
    return path


def test_layout_reaches_the_file_and_the_manifest(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """Row groups by rows, order, and where the rows come from can be read from the file."""
    query = "SELECT * FROM orders ORDER BY id DESC"
    options = ("--row-group-rows", "1000", "--sorted-by", "ID desc", "--data-page-version", "2.0")
    done = unloader("run", database, "--query", query, *PARQUET, *options)
    assert done.returncode == 0, done.stderr
    metadata = pq.read_metadata(written(tmp_path))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000] * 3
    order = pq.SortingColumn(0, descending=True, nulls_first=True)
    assert metadata.row_group(0).sorting_columns == (order,)
    told = pq.read_schema(written(tmp_path))
    assert told.metadata[b"unloader:source"] == b"duckdb"
    assert told.metadata[b"unloader:query"] == query.encode()
    assert b"unloader:table" not in told.metadata
    assert told.field(0).metadata[b"source_type"]
    layout = json.loads((tmp_path / "out" / "_manifest.json").read_text())["options"]["dialect"]
    assert layout["sorted_by"] == [{"name": "id", "descending": True, "nulls_first": True}]
    assert unloader("verify", "out").returncode == 0


def test_two_runs_write_the_same_bytes(unloader: Run, database: str, tmp_path: Path) -> None:
    """Nothing in a file tells when or by which run it was written."""
    found = []
    for _ in range(2):
        done = unloader("run", database, "--table", "orders", *PARQUET, "--overwrite")
        assert done.returncode == 0, done.stderr
        found.append(written(tmp_path).read_bytes())
    assert found[0] == found[1]
    told = pq.read_schema(written(tmp_path)).metadata
    assert (told[b"unloader:schema"], told[b"unloader:table"]) == (b"main", b"orders")


def test_rows_in_another_order_stop_the_run(unloader: Run, database: str, tmp_path: Path) -> None:
    """A file never promises an order that its rows do not have."""
    done = unloader("run", database, "--table", "orders", *PARQUET, "--sorted-by", "id desc")
    assert done.returncode == 6
    assert "row 2 is not after the row before it in the declared order id desc" in done.stderr
    assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--sorted-by", "id sideways"), "is not an order"),
        (("--sorted-by", "nowhere"), "unknown column 'nowhere'"),
        (("--sorted-by", "id,ID desc"), "--sorted-by names 'id' twice"),
        (("--row-group-bytes", "0"), "--row-group-bytes"),
        (("--data-page-version", "3.0"), "--data-page-version"),
    ],
)
def test_impossible_layouts_are_refused(
    unloader: Run, database: str, options: tuple[str, ...], what: str
) -> None:
    """Impossible options are refused before a worker starts."""
    done = unloader("run", database, "--table", "orders", *PARQUET, *options)
    assert done.returncode == 2
    assert what in done.stderr


@pytest.mark.parametrize("option", ["--bloom-filter=id", "--sorted-by=id", "--row-group-bytes=1"])
def test_they_do_not_apply_to_text(unloader: Run, database: str, option: str) -> None:
    """A job for CSV that names an option of Parquet is refused."""
    done = unloader("run", database, "--table", "orders", "--to", "out", option)
    assert done.returncode == 2
    assert f"{option.partition('=')[0]} does not apply to --format csv" in done.stderr


def test_bloom_filter_from_a_job_file(unloader: Run, database: str, tmp_path: Path) -> None:
    """A list in a job file names the columns, in any case; another reader finds the filter."""
    if not supported("bloom_filter_options"):
        pytest.skip("this pyarrow writes no Bloom filters")
    import duckdb

    job = (
        f"source = '{database}'\ntable = 'orders'\nto = 'out'\nformat = 'parquet'\n"
        "bloom-filter = ['NAME']\nsorted-by = ['id nulls first']\n"
    )
    (tmp_path / "job.toml").write_text(job)
    done = unloader("run", "job.toml")
    assert done.returncode == 0, done.stderr
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'name', ?)"
    with duckdb.connect() as connection:
        for value, excluded in (("name 17", False), ("stranger", True)):
            found = connection.execute(probe, [str(written(tmp_path)), value]).fetchall()
            assert found == [(excluded,)]
