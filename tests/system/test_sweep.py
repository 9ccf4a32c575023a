"""`unloader sweep` on real tables: its measurements, its limits, and its end."""

from __future__ import annotations

import csv
import json
import signal
import socket
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

ROWS = 60_000
PARTS = 12
QUICK = ("--repeats", "1", "--warm-up", "0", "--progress", "none")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of twelve partitions."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, hash(i)::VARCHAR AS s FROM range({ROWS}) r(i)"
        )
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            f" 'p' || range AS partition_name, range AS position, range * {ROWS // PARTS} AS"
            f" first_rowid, (range + 1) * {ROWS // PARTS} - 1 AS last_rowid FROM range({PARTS})"
        )
    return f"duckdb://{path}"


def swept(database: str, *arguments: str) -> dict[str, Any]:
    """Return the JSON of a sweep that went well."""
    found: dict[str, Any] = json.loads(
        command.run("sweep", database, "--table", "t", "--json", *QUICK, *arguments)
    )
    return found


def test_points_and_what_they_cost(database: str, tmp_path: Path) -> None:
    """Every combination is measured on the whole table, with all its figures, and files go again.

    The CSV has a line for each measurement.
    """
    (tmp_path / "mine.txt").write_text("mine")
    points_file = tmp_path / "points.csv"
    out = tmp_path / "new" / "out"
    options = ("--parallelism", "2", "--compression", "none,zstd:1", "--csv", str(points_file))
    found = swept(database, "--to", str(out), *options)
    settings = [point["settings"] for point in found["points"]]
    assert settings == [{"parallelism": "2", "compression": codec} for codec in ("none", "zstd:1")]
    sizes = set()
    for point in found["points"]:
        (each,) = point["measurements"]
        assert (each["rows"], each["units"], each["complete"]) == (ROWS, PARTS, True)
        assert len(each["timeline"]) == PARTS
        costs = each["costs"]
        assert all(costs[stage] > 0 for stage in ("fetch", "encode", "write", "total"))
        assert (costs["compress"] > 0) == (point["settings"]["compression"] == "zstd:1")
        stages = sum(costs[stage] for stage in ("fetch", "encode", "compress", "write", "rest"))
        assert stages == pytest.approx(costs["total"], rel=0.5)
        load = each["load"]
        assert load["queued"] >= 0
        # So short a run may be less than a tick of the system's clocks.
        assert all(0 <= load[what] <= 1 for what in ("source", "output", "workers"))
        assert load["database"] is None
        assert each["peak_worker_bytes"] > 10_000_000
        sizes.add(each["bytes"])
    assert len(sizes) == 2, "one size for each codec"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "points.csv"]
    lines = [line for line in points_file.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert len(rows) == 2
    assert [(row["parallelism"], row["compression"]) for row in rows] == [
        tuple(each.values()) for each in settings
    ]
    assert {row["rows"] for row in rows} == {str(ROWS)}


def test_a_sample_is_the_same_for_all_points(database: str, tmp_path: Path) -> None:
    """Whole units from all of the table are read, at least one for each worker, by every point."""
    options = ("--to", "null:", "--parallelism", "1,2", "--sample", "25%")
    found = swept(database, *options)
    assert (found["sample"]["units"], found["sample"]["of_units"]) == (3, PARTS)
    measured = [each for point in found["points"] for each in point["measurements"]]
    assert {each["rows"] for each in measured} == {3 * ROWS // PARTS}
    read = [{unit["unit"] for unit in each["timeline"]} for each in measured]
    assert read[0] == read[1]
    assert any("small for 2 workers" in notice for notice in found["notices"])
    assert found["points"][0]["state"] == "once"


@pytest.mark.long(OTHER_ROUTES)
def test_the_answer(database: str, tmp_path: Path) -> None:
    """Each curve has its own answer; a file of one curve gives the same answer by --replay.

    The time of the whole table follows from the sample's time. The page shows the curve, and the
    job file runs as it is, with the options of the sweep and the recommended ones.
    """
    points_file = tmp_path / "points.csv"
    out, job, page = tmp_path / "out", tmp_path / "job.toml", tmp_path / "page.html"
    options = ("--to", str(out), "--parallelism", "1,2,3", "--sample", "50%", "--json", *QUICK)
    read = ("--where", "s <> '\\\"'", "--null", "\\N", "--compression", "zstd:1")
    files = ("--csv", str(points_file), "--job", str(job), "--report", str(page))
    sweep = ("sweep", database, "--table", "t", *options, *read)
    found = json.loads(command.run(*sweep, *files))
    again = json.loads(command.run("sweep", "--replay", str(points_file), "--json"))
    for key in ("knee", "recommended", "outliers", "limits"):
        assert found[key] == again[key]
    whole = found["whole_table"]
    assert (whole["rows"], whole["parallelism"]) == (ROWS, found["recommended"])
    (level,) = (each for each in found["levels"] if each["parallelism"] == found["recommended"])
    assert whole["seconds"] == pytest.approx(2 * level["seconds"], rel=0.001)
    assert found["recommended_options"] == {"parallelism": str(found["recommended"])}
    assert "<svg" in page.read_text()
    command.run("run", str(job))
    manifest = json.loads((out / "_manifest.json").read_text())
    assert manifest["totals"]["rows"] == ROWS
    asked = {each["name"]: each["value"] for each in manifest["settings"]}
    assert asked["where"] == read[1]
    assert asked["null"] == read[3]
    assert asked["compression"] == read[5]
    assert asked["parallelism"] == str(found["recommended"])


@pytest.mark.long(OTHER_ROUTES)
def test_the_database_on_this_machine_is_told_apart(postgres: Any) -> None:
    """The share of PostgreSQL's processes is separate from the workers and the rest."""
    url = postgres.database("swept")
    # Each row costs the server and the worker something that the system's clocks can tell, and all
    # of them take longer than a look at the machine.
    postgres.run(
        "CREATE VIEW t AS SELECT g AS id, md5(repeat(g::text, 30000)) AS s, "
        "repeat('wide', 10000) AS w, pg_sleep(0.002)::text AS z FROM generate_series(1, 2500) g",
        url=url,
    )
    # A connection of the caller does not count as a session of the sweep.
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        found = swept(url, "--to", "null:", "--parallelism", "1")
    (each,) = found["points"][0]["measurements"]
    shares = each["load"]
    assert shares["workers"] > 0, shares
    assert shares["database"] > 0, shares


@pytest.mark.long(OTHER_ROUTES)
def test_time_ends_a_measurement(postgres: Any) -> None:
    """The rows so far count, of units that were not finished, too."""
    url = postgres.database("swept_slowly")
    postgres.run(
        "CREATE VIEW t AS SELECT g AS id, repeat('x', 2000) AS s, pg_sleep(0.001)::text AS z "
        "FROM generate_series(1, 30000) g",
        url=url,
    )
    found = swept(url, "--to", "null:", "--parallelism", "1", "--seconds", "8")
    (each,) = found["points"][0]["measurements"]
    assert not each["complete"]
    assert 0 < each["rows"] < 30_000
    assert each["seconds"] >= 8


@pytest.mark.parametrize("name", ["_manifest.json", "_run"])
def test_a_run_is_left_alone(database: str, tmp_path: Path, name: str) -> None:
    """A directory that holds a run, finished or not, is refused before anything is read."""
    (tmp_path / name).mkdir()
    error = command.error_of(
        *("sweep", database, "--table", "t", "--to", str(tmp_path)), *QUICK, status=6
    )
    assert "holds a run" in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "the points have no destination"),
        (("--to", "-"), "accepts data only once"),
        (("--to", "out/{date}"), "has fields"),
        (("--to", "null:", "--parallelism", "4..1:2"), "does not lead from 4 to 1"),
        (("--to", "null:", "--compression", "snappy"), "snappy"),
        (("--to", "null:", "--numa", "auto,none"), "is not one of auto, off, require"),
        (("--to", "null:", "--sample", "0%"), "above 0"),
        (("--to", "null:", "--csv", "/nowhere/x.csv"), "cannot be written"),
        (("--to", "null:", "--job", "job.txt"), "not be recognized as a job file"),
    ],
)
def test_what_cannot_be_swept(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    text: str,
) -> None:
    """A mistake is reported before anything is measured, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    status = 6 if "--csv" in options else 2
    error = command.error_of("sweep", database, "--table", "t", *options, *QUICK, status=status)
    assert text in error
    assert not list(tmp_path.iterdir())


def test_a_signal_ends_with_what_is_done(database: str, tmp_path: Path) -> None:
    """The points so far are shown and marked as interrupted; the status is 130; no file stays."""
    options = ("--repeats", "90", "--warm-up", "0", "--parallelism", "1,2", "--json")
    log = ("--progress", "log", "--log-format", "json")
    running = command.Running(
        *("sweep", database, "--table", "t", "--to", str(tmp_path / "out"), *options), *log
    )
    assert running.process.stderr is not None
    events = map(json.loads, running.process.stderr)
    told = next(each for each in events if each["event"] == "point_measured")
    assert (told["number"], told["of"]) == (1, 180)
    assert told["settings"] == f"--parallelism {told['parallelism']}"
    assert told["rows_per_second"] > 0
    running.signal(signal.SIGINT)
    status, text, err = running.finish()
    assert status == 130, err
    found = json.loads(text)
    assert found["interrupted"]
    done = sum(len(point["measurements"]) for point in found["points"])
    assert 1 <= done < 90
    assert not list(tmp_path.iterdir())
