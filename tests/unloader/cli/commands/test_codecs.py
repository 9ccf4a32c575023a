"""Codecs measured on the user's own rows: the command that shows them, and the presets of run."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import zstandard
from long_tests import OTHER_ROUTES, also

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PRESETS = ("fastest", "balanced", "smallest")


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON object of a command that went well."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ids(path: Path) -> list[int]:
    """Return the first column of a file, by what its name says it is."""
    if path.suffix == ".parquet":
        return [int(each) for each in pq.read_table(path).column(0).to_pylist()]
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            data = reader.read()
    elif path.suffix == ".lz4":
        data = subprocess.run(["lz4", "-dc", str(path)], capture_output=True, check=True).stdout
    return [int(row[0]) for row in list(csv.reader(data.decode().splitlines()))[1:]]


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table of several row groups, and an empty one."""
    path = tmp_path_factory.mktemp("codecs") / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'name ' || i % 100 AS name FROM range(130000) r(i)"
        )
        connection.execute("CREATE TABLE empty (id INTEGER, name VARCHAR)")
    return f"duckdb://{path}"


@pytest.mark.parametrize("shape", ["csv", *also(OTHER_ROUTES, "parquet")])
def test_every_codec_has_its_figures(
    unloader: Run, ranges: str, tmp_path: Path, shape: str
) -> None:
    """Each codec of the format is there, quickest first, and each preset takes one of them."""
    found = answered(
        unloader(
            *("codecs", ranges, "--table", "t", "--format", shape, "--sample", "1MiB", "--json"),
            *("--split", "range", "--unit-bytes", "1MiB", "--parallelism", "2", "--quiet"),
        )
    )
    codecs = found["codecs"]
    expected = {"none", "lz4", "zstd", "gzip"} | ({"snappy"} if shape == "parquet" else set())
    assert {each["codec"] for each in codecs} == expected
    times = [each["predicted_seconds"] for each in codecs]
    assert times == sorted(times)
    assert all(each["ratio"] > 1.5 for each in codecs if each["codec"] in ("zstd", "gzip"))
    assert set(found["presets"]) == set(PRESETS)
    assert found["sample"]["units"] > 1
    assert 0 < found["sample"]["rows"] < 130_000
    assert found["disks"] == [str(tmp_path)]
    assert found["disk_bytes_per_second"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long(OTHER_ROUTES)
def test_the_table_names_disk_and_rule(unloader: Run, ranges: str, tmp_path: Path) -> None:
    """People see the codecs, the presets, the disk and how the seconds came about."""
    done = unloader(
        *("codecs", ranges, "--table", "t", "--sample", "256KiB", "--to", "new/dir"),
        *("--progress", "none"),
    )
    assert done.returncode == 0, done.stderr
    assert all(each in done.stdout for each in (*PRESETS, "zstd:9", f"MB/s into {tmp_path}"))
    assert "seconds are" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long(OTHER_ROUTES)
def test_a_named_codec_is_measured_too(unloader: Run, ranges: str) -> None:
    """`--compression` adds a level that is not in the list."""
    found = answered(
        unloader(
            *("codecs", ranges, "--table", "t", "--sample", "64KiB", "--json"),
            *("--compression", "zstd:5"),
        )
    )
    assert ("zstd", 5) in {(each["codec"], each["level"]) for each in found["codecs"]}


def test_an_empty_table_has_no_figures(unloader: Run, ranges: str) -> None:
    """A table without rows to measure does not fail."""
    assert answered(unloader("codecs", ranges, "--table", "empty", "--json"))["codecs"] == []
    assert "no rows" in unloader("codecs", ranges, "--table", "empty").stdout


def test_what_is_wrong_with_the_source_is_told(unloader: Run, ranges: str) -> None:
    """A query that fails while rows are read ends the command as it would a run."""
    done = unloader("codecs", ranges, "--query", "SELECT CAST(name AS INTEGER) AS n FROM t")
    assert done.returncode == 4, done.stderr
    assert "name 0" in done.stderr
    assert "Next: " in done.stderr


@pytest.mark.parametrize(
    ("preset", "shape"),
    [("balanced", "parquet"), *also("codecs", *((each, "csv") for each in PRESETS))],
)
def test_a_preset_runs_with_what_it_measured(
    unloader: Run, ranges: str, tmp_path: Path, preset: str, shape: str
) -> None:
    """With any choice the rows read back, and manifest and notice have the choice and its reason."""
    done = unloader(
        *("run", ranges, "--table", "t", "--to", "out", "--compression", preset, "--json"),
        *("--format", shape, "--split", "range", "--unit-bytes", "1MiB", "--verify", "full"),
        *("--where", "id < 30000"),
    )
    manifest = answered(done)
    options = manifest["options"]
    choice = options["compression_choice"]
    assert choice["preset"] == preset
    assert options["compression"] == {key: choice[key] for key in ("codec", "level")}
    measured = [(each["codec"], each["level"]) for each in choice["candidates"]]
    assert (choice["codec"], choice["level"]) in measured
    assert ("none", None) in measured
    assert f" for {preset}: {choice['reason']}" in done.stderr
    files = sorted(path for path in (tmp_path / "out").iterdir() if path.name != "_manifest.json")
    assert sorted(each for path in files for each in ids(path)) == list(range(30_000))


def test_an_empty_table_takes_a_fixed_codec(unloader: Run, ranges: str, tmp_path: Path) -> None:
    """A preset without rows does not fail, and reports that it did not measure."""
    manifest = answered(
        unloader(
            *("run", ranges, "--table", "empty", "--to", "out", "--compression", "smallest"),
            "--json",
        )
    )
    assert manifest["options"]["compression"]["codec"] == "zstd"
    assert "no rows" in manifest["options"]["compression_choice"]["reason"]


@pytest.mark.long(OTHER_ROUTES)
def test_a_plan_keeps_what_was_measured(unloader: Run, ranges: str, tmp_path: Path) -> None:
    """The plan file names the codec and why; its run measures nothing and says the same."""
    made = answered(
        unloader(
            *("plan", ranges, "--table", "t", "--compression", "smallest", "--json"),
            *("--output", "plan.json"),
        )
    )
    choice = made["compression_choice"]
    assert made["job"]["compression"] == f"{choice['codec']}:{choice['level']}"
    done = unloader("run", "plan.json", "--to", "out", "--json")
    options = answered(done)["options"]
    assert (options["compression"]["codec"], options["compression_choice"]) == ("zstd", choice)
    assert "for smallest" not in done.stderr


@pytest.mark.long(OTHER_ROUTES)
def test_what_was_measured_for_another_format_is_not_claimed(
    unloader: Run, ranges: str, tmp_path: Path
) -> None:
    """A plan for CSV that is run as Parquet keeps its codec, but nothing was measured for that."""
    unloader("plan", ranges, "--table", "t", "--compression", "smallest", "--output", "plan.json")
    done = answered(unloader("run", "plan.json", "--to", "o", "--format", "parquet", "--json"))
    assert done["options"]["compression"]["codec"] == "zstd"
    assert done["options"]["compression_choice"] is None


def test_a_codec_asked_for_by_name_is_not_measured(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """Without a preset nothing is chosen; the manifest names the library and its settings."""
    manifest = answered(
        unloader(
            "run", database, "--table", "orders", "--to", "o", "--compression", "gzip", "--json"
        )
    )
    assert manifest["options"]["compression_choice"] is None
    assert manifest["options"]["compression_library"]
    totals = manifest["totals"]
    assert totals["uncompressed_bytes"] > totals["bytes"]
    assert totals["compress_cpu_seconds"] >= 0
    assert {"fetch_s", "encode_s", "compress_s", "write_s"} <= set(manifest["units"][0]["stages"])
    (file,) = (tmp_path / "o").glob("*.csv.gz")
    assert len(gzip.decompress(file.read_bytes())) == totals["uncompressed_bytes"]


@pytest.mark.long(OTHER_ROUTES)
def test_text_that_the_database_renders_is_measured(
    unloader: Run, postgres: Any, tmp_path: Path
) -> None:
    """Where PostgreSQL makes the text, that text is the sample."""
    url = postgres.database("codecs")
    postgres.run(
        "CREATE TABLE t AS SELECT i AS id, 'name ' || i % 100 AS name "
        "FROM generate_series(0, 49999) i; ANALYZE t",
        url=url,
    )
    found = answered(unloader("codecs", url, "--table", "t", "--sample", "256KiB", "--json"))
    assert found["sample"]["route"] == "encoded"
    assert {each["codec"] for each in found["codecs"]} == {"none", "lz4", "zstd", "gzip"}
    done = unloader("run", url, "--table", "t", "--to", "o", "--compression", "balanced", "--json")
    assert answered(done)["totals"]["rows"] == 50_000
    files = [path for path in (tmp_path / "o").iterdir() if path.name != "_manifest.json"]
    assert sorted(each for path in files for each in ids(path)) == list(range(50_000))


@pytest.mark.long(OTHER_ROUTES)
def test_a_source_of_one_writer_is_measured(unloader: Run, tmp_path: Path) -> None:
    """SQLite's rows are sampled beside the parent's hold on the database."""
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as lite, lite:
        lite.execute("CREATE TABLE t (id INTEGER, name TEXT)")
        lite.executemany("INSERT INTO t VALUES (?, ?)", ((i, f"v{i % 9}") for i in range(5000)))
    done = unloader(
        *("run", f"sqlite://{tmp_path}/t.sqlite", "--table", "t", "--to", "o", "--json"),
        *("--compression", "smallest", "--file-per", "table"),
    )
    choice = answered(done)["options"]["compression_choice"]
    assert len(choice["candidates"]) > 1
    (file,) = (path for path in (tmp_path / "o").iterdir() if path.name != "_manifest.json")
    assert ids(file) == list(range(5000))
