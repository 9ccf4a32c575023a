"""One scan into several outputs: each is what a run of its own would have written."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from processes import command

ROWS = 30_000
LAKE = 'lake:to={to}/lake,format=parquet,columns="day,id,amount",filter="id % 3 = 1 AND price > 2"'
TEXT = "text:to={to}/text,delimiter=;,exclude=price"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table whose columns are read for CSV and Parquet in different ways."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name, (i % 1000) / 7.0 AS price,"
            " (i * 37.5)::DECIMAL(12, 2) AS amount, DATE '2020-01-01' + (i % 900)::INT AS day,"
            " CASE WHEN i % 11 = 0 THEN NULL ELSE 'x\"y,' || i END AS note"
            f" FROM range({ROWS}) t(i)"
        )
    return f"duckdb://{path}"


def job(source: str, *options: str) -> tuple[str, ...]:
    """Return a run of some ten units."""
    units = ("--unit-bytes", "100kB", "--parallelism", "2")
    return ("run", source, "--table", "orders", *units, *options)


def routes(to: Path, *texts: str) -> list[str]:
    """Return routes as options."""
    return [part for text in texts for part in ("--route", text.format(to=to))]


@pytest.fixture(scope="module")
def written(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two routes whose values were read back."""
    to = tmp_path_factory.mktemp("routes")
    command.run(*job(source, *routes(to, LAKE, TEXT), "--verify", "full"))
    return to


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the data files of a directory."""
    return {path.name: path.read_bytes() for path in directory.glob("orders.*")}


def test_each_route_is_what_its_own_run_writes(source: str, written: Path, tmp_path: Path) -> None:
    """Files are equal to the byte, in Parquet and in text, with a filter and without."""
    lake, text = tmp_path / "lake", tmp_path / "text"
    command.run(
        *job(source, "--to", str(lake), "--format", "parquet", "--columns", "day,id,amount"),
        *("--filter", "id % 3 = 1 AND price > 2"),
    )
    command.run(*job(source, "--to", str(text), "--delimiter", ";", "--exclude", "price"))
    assert len(files_of(lake)) > 5
    assert files_of(written / "lake") == files_of(lake)
    assert files_of(written / "text") == files_of(text)


def test_the_manifest_of_a_route_tells_what_it_left_out(written: Path) -> None:
    """Both are of one run at one snapshot; rows kept and rows left out are those of the source."""
    lake, text = (command.manifest_of(written / name) for name in ("lake", "text"))
    assert lake["run_id"] == text["run_id"]
    assert lake["snapshot"] == text["snapshot"]
    other = {"name": "text", "to": str(written / "text")}
    assert lake["route"] == {"name": "lake", "others": [other], "dropped": []}
    assert text["route"]["name"] == "text"
    kept = lake["totals"]["rows"]
    assert 0 < kept < ROWS
    assert lake["verified"]["source_rows"] == ROWS == kept + lake["verified"]["filtered_rows"]
    assert "filtered_rows" not in text["verified"]
    assert text["totals"]["rows"] == ROWS
    assert [each["name"] for each in lake["columns"]] == ["day", "id", "amount"]
    assert lake["options"]["filter"] == "id % 3 = 1 AND price > 2"
    assert not (written / "lake" / "_run").exists()


def test_each_route_is_verified_by_itself(source: str, written: Path) -> None:
    """`verify` reads its files, compares their values, and counts the source's rows."""
    command.run("verify", str(written / "lake"), source)
    command.run("verify", str(written / "lake"), "--level", "full")
    command.run("verify", str(written / "text"), source, "--level", "source")


def test_a_filter_takes_the_rows_that_where_takes(source: str, tmp_path: Path) -> None:
    """A condition that both understand alike leads to the same text."""
    condition = "note IS NULL OR day >= DATE '2021-05-01'"
    command.run(*job(source, "--to", str(tmp_path / "filter"), "--filter", condition))
    command.run(*job(source, "--to", str(tmp_path / "where"), "--where", condition))
    assert files_of(tmp_path / "filter") == files_of(tmp_path / "where")


def test_routes_of_a_job_file(source: str, written: Path, tmp_path: Path) -> None:
    """[[route]] says what --route says; `run` answers with the manifests of all."""
    path = tmp_path / "job.toml"
    path.write_text(
        f"""
source = "{source}"
table = "orders"
unit-bytes = "100kB"
parallelism = 2

[[route]]
name = "lake"
to = "{tmp_path}/lake"
format = "parquet"
columns = ["day", "id", "amount"]
filter = "id % 3 = 1 AND price > 2"

[[route]]
name = "text"
to = "{tmp_path}/text"
delimiter = ";"
exclude = ["price"]
""",
        encoding="utf-8",
    )
    answer = json.loads(command.run("run", str(path), "--json"))
    assert [each["route"]["name"] for each in answer["routes"]] == ["lake", "text"]
    for name in ("lake", "text"):
        assert files_of(tmp_path / name) == files_of(written / name)
