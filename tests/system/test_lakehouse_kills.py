"""Runs into tables in an object store, killed around their commit: the rows come once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from amounts import amount
from lakehouse.catalogs import Lake, lake, rows_of_files
from object_stores.faults import Faults, Rule, faulty
from object_stores.s3_server import CREDENTIALS, S3Server
from processes import command

pytestmark = pytest.mark.long("runs into tables of a lakehouse")

ROWS = 1000

AT_THE_COMMIT = "_delta_log/0"
BEHIND_IT = "_committed.json"
_PLACE = ("--format", "parquet", "--to", "iceberg://lake/ns.t")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 1,000 rows in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range({ROWS}) r(i)")
    return f"duckdb://{path}"


def killed_when(reached: Callable[[], bool], *arguments: str) -> None:
    """Start a command, and kill it with all its workers once something has come."""
    running = command.Forked(*arguments)
    running.wait_until(reached, "the moment to be killed at")
    # A locked catalog holds its commit up, and that not for ever.
    with suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.communicate()


def healed(faults: Faults) -> None:
    """Let all pass from now on."""
    faults.rules = ()


def until(reached: Callable[[], bool]) -> None:
    """Wait for requests on their way."""
    end = time.monotonic() + command.PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("rule", "commits"),
    [
        pytest.param(Rule("put", "held", key=AT_THE_COMMIT), 1, id="before it"),
        pytest.param(Rule("put", "unanswered", key=AT_THE_COMMIT), 2, id="within it"),
        pytest.param(Rule("put", "held", key=BEHIND_IT), 2, id="behind it"),
    ],
)
def test_delta(source: str, s3: S3Server, rule: Rule, commits: int) -> None:
    """A commit that has not reached the store is made by resume; one that has is not made again."""
    import polars
    from deltalake import DeltaTable

    key = f"delta-{rule.action}-{commits}-{rule.key.strip('_')[:5]}"

    def log() -> int:
        return len([name for name in s3.objects(f"{key}/_delta_log/") if name.endswith(".json")])

    with faulty(s3) as (store, faults):
        asked = ("run", source, "--table", "t", "--format", "parquet")
        asked = (*asked, "--to", f"delta:{store.place(key)}", "--save-mode")
        command.run(*asked, "create")
        faults.rules = (rule,)
        killed_when(lambda: rule.done > 0, *asked, "append")
        healed(faults)
        # The store executes requests that were sent before the kill.
        until(lambda: log() == commits)
        command.run("resume", f"delta:{store.place(key)}")
        assert log() == 2
        command.run(*asked, "append", "--where", "i < 10")
        options = {
            "AWS_ENDPOINT_URL": s3.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            **CREDENTIALS,
        }
        table = DeltaTable(f"s3://{s3.bucket}/{key}", storage_options=options)
    assert table.version() == 2
    found = sorted(table.to_pyarrow_dataset().to_table()["i"].to_pylist())
    assert found == sorted([*range(ROWS), *range(ROWS), *range(10)])
    seen = polars.read_delta(f"s3://{s3.bucket}/{key}", storage_options=options)
    assert sorted(seen["i"].to_list()) == found


def killed_at_random(source: str, place: str, state: Callable[[], tuple[int, list[int]]]) -> None:
    """Kill runs that append to a table; each has committed all its rows once, or none of them.

    Args:
        source: Of the rows.
        place: The table.
        state: Returns how many commits it has, and the first column.
    """
    moments = random.Random(1)
    asked = ("run", source, "--table", "t", "--format", "parquet", "--to", place, "--save-mode")
    command.run(*asked, "create")
    began = time.monotonic()
    command.run(*asked, "append")
    seconds = time.monotonic() - began
    commits = 2
    for _ in range(amount("UNLOADER_TEST_TABLE_KILLS", 3, 5)):
        running = command.Forked(*asked, "append")
        time.sleep(moments.uniform(0.3, 1.1) * seconds)
        if running.process.poll() is None:
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
        done = command.ended("resume", place)
        assert done.returncode == 0, done.stderr
        now, found = state()
        if now == commits:
            # It died before it had a record: only an earlier run is known there.
            assert "there is nothing left to do" in done.stderr
        else:
            assert now == commits + 1
        commits = now
        assert sorted(found) == sorted([*range(ROWS)] * commits)


def test_delta_on_a_disk_at_random_moments(source: str, tmp_path: Path) -> None:
    """After any kill each run has committed all its rows once, or none of them."""
    from deltalake import DeltaTable

    def state() -> tuple[int, list[int]]:
        table = DeltaTable(str(tmp_path / "table"))
        return table.version() + 1, table.to_pyarrow_dataset().to_table()["i"].to_pylist()

    killed_at_random(source, f"delta:{tmp_path / 'table'}", state)


def test_iceberg_on_a_disk_at_random_moments(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, by the catalog."""
    made = on_disk(tmp_path, monkeypatch)

    def state() -> tuple[int, list[int]]:
        table = made.table("t")
        return len(table.snapshots()), [row[0] for row in rows_of_files(table, "i")]

    killed_at_random(source, "iceberg://lake/ns.t", state)


def test_a_run_that_was_killed_before_it_was_on_record(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the table does not mean that one: there is nothing of it to go on with."""
    made = on_disk(tmp_path, monkeypatch)
    command.run("run", source, "--table", "t", *_PLACE)
    empty = made.home("t").with_name("29991231T235959Z-00000000000")
    (empty / "_run" / "staged").mkdir(parents=True)
    done = command.ended("resume", "iceberg://lake/ns.t")
    assert done.returncode == 0, done.stderr
    assert "there is nothing left to do" in done.stderr
    command.run("verify", "iceberg://lake/ns.t", source)
    command.run("clean", "iceberg://lake/ns.t")
    assert not (empty / "_run").exists()


def test_delta_commit_whose_answer_is_lost(source: str, s3: S3Server) -> None:
    """The repeated request is refused by the store; the run finds its own commit, and ends well."""
    rule = Rule("put", "lost", 1, key=AT_THE_COMMIT)
    with faulty(s3, rule) as (store, _):
        place = f"delta:{store.place('delta-lost')}"
        command.run("run", source, "--table", "t", "--format", "parquet", "--to", place)
        assert rule.done == 1
    log = [name for name in s3.objects("delta-lost/_delta_log/") if name.endswith(".json")]
    assert log == ["00000000000000000000.json"]


@pytest.mark.parametrize(
    ("moment", "last"), [("before", "/_manifest.json"), ("within", ".metadata.json")]
)
def test_iceberg(
    source: str,
    tmp_path: Path,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    last: str,
) -> None:
    """A run that has published, or has even written the table's next metadata, commits by resume.

    Its commit waits for the catalog, which another user writes to, until it is killed.
    """
    prefix = f"iceberg-{moment}"
    made = on_s3(tmp_path, s3, monkeypatch, prefix)
    place = (*_PLACE, "--save-mode")
    command.run("run", source, "--table", "t", *place, "create")

    def keys(ending: str) -> list[str]:
        # The manifest in `_run` is not published yet.
        found = s3.objects(f"{prefix}/")
        return sorted(key for key in found if key.endswith(ending) and "/_run/" not in key)

    before = len(keys(last))
    with made.held("IMMEDIATE"):
        killed_when(
            lambda: len(keys(last)) > before, "run", source, "--table", "t", *place, "append"
        )
    assert len(opened(made, s3).snapshots()) == 1
    (home,) = {key.rpartition("/")[0] for key in keys("/_manifest.json")} - {
        key.rpartition("/")[0] for key in keys(BEHIND_IT)
    }
    for _ in range(2):
        command.run("resume", f"s3://{s3.bucket}/{prefix}/{home}{_options(s3)}")
        table = opened(made, s3)
        assert len(table.snapshots()) == 2
        found = sorted(table.scan().to_arrow()["i"].to_pylist())
        assert found == sorted([*range(ROWS), *range(ROWS)])


def test_two_runs_at_once_by_way_of_glue(
    source: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog of another kind: the run that comes second commits after the first."""
    # Half a second, which every process that collects the tests would take.
    from pyiceberg.catalog.glue import GlueCatalog

    values = {"type": "glue", "warehouse": f"s3://{s3.bucket}/glue"}
    for service in ("glue", "s3"):
        values[f"{service}.endpoint"] = s3.endpoint
        values[f"{service}.region"] = "us-east-1"
        values[f"{service}.access-key-id"] = CREDENTIALS["AWS_ACCESS_KEY_ID"]
        values[f"{service}.secret-access-key"] = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    for name, value in values.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{variable}", value)
    catalog = GlueCatalog("lake", **values)
    catalog.create_namespace("ns")
    asked = ("run", source, "--table", "t", *_PLACE, "--save-mode")
    command.run(*asked, "create")
    for each in [command.Forked(*asked, "append") for _ in range(2)]:
        status, _, log = each.finish()
        assert status == 0, log
    table = catalog.load_table("ns.t")
    assert len(table.snapshots()) == 3
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == sorted([*range(ROWS)] * 3)


def test_iceberg_whose_receipt_was_not_written(
    source: str, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run leaves it that is killed after its commit: the table reports it."""
    made = on_s3(tmp_path, s3, monkeypatch, "receipts")
    command.run("run", source, "--table", "t", *_PLACE)
    (key,) = (key for key in s3.objects("receipts/") if key.endswith(BEHIND_IT))
    receipt = f"receipts/{key}"
    s3.client().delete_object(Bucket=s3.bucket, Key=receipt)
    command.run("resume", f"s3://{s3.bucket}/{receipt.rpartition('/')[0]}{_options(s3)}")
    assert receipt in s3.objects()
    table = opened(made, s3)
    assert len(table.snapshots()) == 1
    assert table.scan().to_arrow().num_rows == ROWS


def on_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Make a catalog in a directory, whose warehouse is there, too."""
    made = lake(root)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def on_s3(root: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch, prefix: str) -> Lake:
    """Make a catalog in a directory, whose warehouse is in a store."""
    made = Lake(root, warehouse=f"s3://{s3.bucket}/{prefix}")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", s3.endpoint)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__REGION", "us-east-1")
    made.open(**_s3_options(s3)).create_namespace("ns")
    return made


def opened(made: Lake, s3: S3Server) -> Any:
    """Return the table as it is now."""
    return made.open(**_s3_options(s3)).load_table("ns.t")


def _s3_options(s3: S3Server) -> dict[str, str]:
    return {"s3.endpoint": s3.endpoint, "s3.region": "us-east-1"}


def _options(s3: S3Server) -> str:
    return f"?{s3.place('').partition('?')[2]}"
