"""What else a run in a cluster may be asked for: plans and their parts, places, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from clusters.cluster import cluster
from object_stores.s3_server import CREDENTIALS, S3Server, s3_server
from plan_parts import contents, merged, planned, run_part
from processes import command

ROWS = 100_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of some units in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, 'row number ' || i AS v FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of two workers that have the credentials of the object store; its address."""
    with cluster(tmp_path_factory.mktemp("two")) as found:
        found.add(2, env=CREDENTIALS)
        yield found.address


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    """A server of S3's protocol."""
    with s3_server() as running:
        yield running


def run(source: str, place: str, *options: str) -> tuple[str, ...]:
    """Return the run of the table to a place, in some units."""
    return (
        *("run", source, "--table", "t", "--to", place, "--unit-bytes", "300kB"),
        *("--parallelism", "2", "--progress", "none", *options),
    )


@pytest.mark.long("runs in clusters")
def test_a_plan_and_its_parts(source: str, address: str, tmp_path: Path) -> None:
    """Each part writes its units, as it does on one machine, and the parts go together."""
    to, there, here = tmp_path / "parts", tmp_path / "there", tmp_path / "here"
    plan = planned(source, to, "--parallelism", "2")
    for number in (1, 2):
        run_part(plan, f"{number}/2", "--cluster", address)
    assert merged(to)["totals"]["rows"] == ROWS
    command.run("run", plan, "--to", str(there), "--progress", "none", "--cluster", address)
    command.run("run", plan, "--to", str(here), "--progress", "none")
    assert contents(there) == contents(here)
    assert contents(*(path for path in to.iterdir() if path.is_dir())) == contents(here)


@pytest.mark.long("runs in clusters")
def test_an_object_store(
    source: str, address: str, store: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every machine finds its own credentials, and the file that proves the place."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    command.run(*run(source, store.place("out"), "--cluster", address))
    command.run(*run(source, str(tmp_path / "here")))
    found = store.objects("out/")
    assert found.pop("_manifest.json")
    assert found == contents(tmp_path / "here")
    assert store.uploads("out/") == []
    command.run("verify", store.place("out"), source)


@pytest.mark.long("runs in clusters")
def test_as_many_workers_as_pay(source: str, address: str, tmp_path: Path) -> None:
    """It begins with few of the cluster's workers, and each that it takes has its units."""
    options = ("--parallelism", "adaptive", "--max-sessions", "2")
    command.run(*run(source, str(tmp_path / "there"), *options, "--cluster", address))
    command.run(*run(source, str(tmp_path / "here")))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    manifest = command.manifest_of(tmp_path / "there")
    assert manifest["options"]["adaptive"] is True
    assert sum(each["units"] for each in manifest["workers"]) == len(manifest["units"])
