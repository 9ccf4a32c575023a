"""`run --part` and `merge`: the parts of a plan, each read by itself, are what one run would write."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from postgres import gates
from processes import command

ROWS = 60_000
TABLE = "SELECT i AS id, i * 7 % 101 AS k, 'text ' || i AS v FROM range({rows}) t(i)"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A DuckDB file with a table that a plan cuts into many units."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as session:
        session.execute(f"CREATE TABLE t AS {TABLE.format(rows=ROWS)}")
    return f"duckdb://{path}"


def planned(source: str, to: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """Make a plan for a directory; return its file."""
    file = to.with_name("plan.json")
    command.run(
        "plan", source, "--table", "t", "--to", str(to), "--unit-bytes", "1MiB",
        "--output", str(file), "--quiet", *options, env=env,
    )  # fmt: skip
    return str(file)


def run_part(plan: str, part: str, *options: str, env: dict[str, str] | None = None) -> None:
    """Run one part of a plan."""
    command.run("run", plan, "--part", part, "--progress", "none", *options, env=env)


def contents(*places: Path, pattern: str = "*") -> dict[str, bytes]:
    """Return the files of some directories by name, without their manifests."""
    return {
        path.name: path.read_bytes()
        for place in places
        for path in place.glob(pattern)
        if path.is_file() and path.name != "_manifest.json"
    }


def merged(to: Path) -> dict[str, Any]:
    """Merge the parts; return the manifest, as it was printed and as it lies there."""
    printed = json.loads(command.run("merge", str(to), "--json"))
    manifest = command.manifest_of(to)
    assert printed == manifest
    return manifest


@pytest.mark.parametrize("parts", [1, 3, *also(OTHER_ROUTES, 12)])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_parts_have_the_files_of_one_run(
    url: str, tmp_path: Path, parts: int, form: str
) -> None:
    """Byte for byte, also with more parts than units: the last ones have nothing to do."""
    to, whole = tmp_path / "out", tmp_path / "whole"
    plan = planned(url, to, "--format", form)
    units = len(json.loads(Path(plan).read_bytes())["plan"]["units"])
    assert 3 < units < 12
    for number in range(1, parts + 1):
        run_part(plan, f"{number}/{parts}")
    manifest = merged(to)
    command.run("run", plan, "--to", str(whole), "--progress", "none")
    busy = sorted(path for path in to.iterdir() if path.is_dir())
    assert len(busy) == min(parts, units)
    assert contents(*busy) == contents(whole)
    one = command.manifest_of(whole)
    assert manifest["plan"] == one["plan"]
    assert manifest["snapshot"] == one["snapshot"] | {"taken_at": manifest["snapshot"]["taken_at"]}
    assert manifest["columns"] == one["columns"]
    assert [each["id"] for each in manifest["units"]] == [each["id"] for each in one["units"]]
    assert [each["rows"] for each in manifest["units"]] == [each["rows"] for each in one["units"]]
    assert manifest["verified"] == {"level": "count", "source_rows": ROWS, "result": "ok"}
    for key in ("rows", "bytes", "files"):
        assert manifest["totals"][key] == one["totals"][key]
        assert sum(each[key] for each in manifest["parts"]) == one["totals"][key]
    assert "subset" not in manifest
    command.run("verify", str(to), url)
    # Another directory, as another machine would see it.
    moved = to.rename(tmp_path / "moved")
    command.run("verify", str(moved), "--level", "count")


def test_a_part_says_which_one_it_is(url: str, tmp_path: Path) -> None:
    """In its manifest, with what it read; its own rows are counted in the source."""
    to = tmp_path / "out"
    plan = planned(url, to)
    run_part(plan, "2/3")
    manifest = command.manifest_of(to / "part-2-of-3")
    document = json.loads(Path(plan).read_bytes())
    assert manifest["subset"]["part"] == {
        "number": 2,
        "of": 3,
        "of_units": len(document["plan"]["units"]),
        "plan_digest": document["plan"]["digest"],
    }
    assert 0 < manifest["totals"]["rows"] < ROWS
    assert manifest["verified"]["source_rows"] == manifest["totals"]["rows"]
    command.run("verify", str(to / "part-2-of-3"), url)


def test_a_part_without_units_ends_well(url: str, tmp_path: Path) -> None:
    """Who starts a job array cannot know how many units there will be."""
    plan = planned(url, tmp_path / "out")
    done = command.ended("run", plan, "--part", "999/999", "--progress", "none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "part 999 of 999 has no work unit" in done.stderr
    shown = json.loads(command.run("run", plan, "--part", "999/999", "--json", "--quiet"))
    assert (shown["part"]["number"], shown["part"]["units"]) == (999, 0)
    assert not (tmp_path / "out").exists()


def test_a_source_that_has_changed_since_is_refused(url: str, tmp_path: Path) -> None:
    """No part is read at another moment than the others."""
    to = tmp_path / "out"
    plan = planned(url, to)
    run_part(plan, "1/2")
    with duckdb.connect(url.removeprefix("duckdb://")) as session:
        session.execute("INSERT INTO t VALUES (-1, 0, 'new')")
    error = command.error_of("run", plan, "--part", "2/2", "--progress", "none", status=4)
    assert "the snapshot of the plan cannot be read any more" in error
    assert not (to / "part-2-of-2").exists()
    error = command.error_of("merge", str(to), status=6)
    assert "1 of 2 parts are missing" in error
    assert "--part 2/2" in error


def test_a_part_that_is_started_again_is_done(url: str, tmp_path: Path) -> None:
    """Of this plan and moment it is left as it is; of another one it is not taken for it."""
    to = tmp_path / "out"
    plan = planned(url, to)
    again = ("run", plan, "--part", "1/2", "--resume-or-start", "--progress", "none")
    command.run(*again)
    before = (to / "part-1-of-2" / "_manifest.json").read_bytes()
    command.run(*again)
    assert (to / "part-1-of-2" / "_manifest.json").read_bytes() == before
    with duckdb.connect(url.removeprefix("duckdb://")) as session:
        session.execute("INSERT INTO t VALUES (-1, 0, 'new')")
    planned(url, to)
    assert "is not empty" in command.error_of(*again, status=6)
    command.run(*again, "--overwrite")
    assert (to / "part-1-of-2" / "_manifest.json").read_bytes() != before


class _Damaged:
    """Parts 1 and 2 of 2, and what may be wrong with them."""

    def __init__(self, url: str, to: Path) -> None:
        self.url, self.to = url, to
        self.plan = planned(url, to)
        for number in (1, 2):
            run_part(self.plan, f"{number}/2")

    def missing(self) -> None:
        shutil.rmtree(self.to / "part-1-of-2")

    def unfinished(self) -> None:
        (self.to / "part-1-of-2" / "_manifest.json").unlink()
        (self.to / "part-1-of-2" / "_run").mkdir()

    def of_another_plan(self) -> None:
        planned(self.url, self.to, "--unit-bytes", "2MiB")
        run_part(self.plan, "1/2", "--overwrite")

    def of_other_rows(self) -> None:
        planned(self.url, self.to, "--where", "k < 50")
        run_part(self.plan, "1/2", "--overwrite")

    def in_another_form(self) -> None:
        run_part(self.plan, "1/2", "--overwrite", "--delimiter", ";")

    def of_another_number(self) -> None:
        run_part(self.plan, "2/3")

    def twice(self) -> None:
        shutil.copytree(self.to / "part-1-of-2", self.to / "copy")

    def without_a_file(self) -> None:
        next((self.to / "part-2-of-2").glob("*.csv")).unlink()

    def with_a_shorter_file(self) -> None:
        file = next((self.to / "part-2-of-2").glob("*.csv"))
        os.truncate(file, file.stat().st_size - 1)

    def with_another_run(self) -> None:
        other = self.to.with_name("other")
        command.run("run", self.url, "--table", "t", "--to", str(other), "--progress", "none")
        shutil.copy(other / "_manifest.json", self.to)


WRONG = {
    "missing": "1 of 2 parts are missing",
    "unfinished": "are not finished: part-1-of-2",
    "of_another_plan": "parts of different plans",
    "of_other_rows": "different values of --where",
    "in_another_form": "different values of --dialect",
    "of_another_number": "one is of 2 parts, the other of 3",
    "twice": "both are part 1 of 2",
    "without_a_file": "is not there",
    "with_a_shorter_file": "bytes, and its manifest says",
    "with_another_run": "has the manifest of another run",
}


@pytest.mark.parametrize("what", WRONG)
def test_parts_that_do_not_belong_together_are_not_merged(
    url: str, tmp_path: Path, what: str
) -> None:
    """One error says which, and there is no manifest over them."""
    to = tmp_path / "out"
    parts = _Damaged(url, to)
    getattr(parts, what)()
    before = (to / "_manifest.json").exists()
    assert WRONG[what] in command.error_of("merge", str(to), status=6)
    assert (to / "_manifest.json").exists() == before
    assert [path.name for path in to.iterdir() if path.is_file()] == ["_manifest.json"] * before


def test_a_second_merge_changes_nothing(url: str, tmp_path: Path) -> None:
    """Nor do several at once: one of them writes the manifest, and all return it."""
    to = tmp_path / "out"
    plan = planned(url, to)
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    several = [command.Running("merge", str(to), "--json") for _ in range(4)]
    printed = set()
    for each in several:
        out, err = each.process.communicate(timeout=command.PATIENCE_SECONDS)
        assert each.process.returncode == 0, err
        printed.add(out)
    assert len(printed) == 1
    before = (to / "_manifest.json").read_bytes()
    assert json.loads(printed.pop()) == json.loads(before) == merged(to)
    assert (to / "_manifest.json").read_bytes() == before
    assert sorted(path.name for path in to.iterdir()) == [
        "_manifest.json", "part-1-of-2", "part-2-of-2",
    ]  # fmt: skip


def test_nothing_to_merge(tmp_path: Path) -> None:
    """A directory without parts, and none at all."""
    assert "holds no finished part" in command.error_of("merge", str(tmp_path), status=6)
    assert "cannot be read" in command.error_of("merge", str(tmp_path / "x"), status=6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--part", "0/2"), "parts 1 to 2"),
        (("--part", "3/2"), "parts 1 to 2"),
        (("--part", "1"), "is no part"),
        (("--part", "auto/2"), "none of its variables is set"),
        (("--part", "1/2", "--file-per", "table"), "--file-per table is one file"),
        (("--part", "1/2", "--to", "out/{run_id}"), "{date}"),
        (("--part", "1/2", "--to", "out/{date}", "--keep", "3"), "--keep"),
    ],
)
def test_what_makes_no_sense_is_refused(
    url: str, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    """Before anything is read, with the reason."""
    plan = planned(url, tmp_path / "out")
    assert reason in command.error_of("run", plan, *options, status=2)
    assert not (tmp_path / "out").exists()


def test_a_part_needs_a_plan(url: str, tmp_path: Path) -> None:
    """Plans made one by one may cut the table in different ways."""
    error = command.error_of(
        "run", url, "--table", "t", "--to", str(tmp_path / "out"), "--part", "1/2", status=2
    )
    assert "unloader plan" in error


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("SLURM_ARRAY_TASK_ID", "3", 3),
        ("JOB_COMPLETION_INDEX", "0", 1),
        ("AWS_BATCH_JOB_ARRAY_INDEX", "2", 3),
    ],
)
def test_a_scheduler_says_which_part(
    url: str, tmp_path: Path, variable: str, value: str, part: int
) -> None:
    """Slurm by the number of the task, the others by an index from 0."""
    to = tmp_path / "out"
    run_part(planned(url, to), "auto/3", env={variable: value})
    assert [path.name for path in to.iterdir()] == [f"part-{part}-of-3"]


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_ARRAY_TASK_ID": "0"},
        {"SLURM_ARRAY_TASK_ID": "4"},
        {"JOB_COMPLETION_INDEX": "3"},
        {"JOB_COMPLETION_INDEX": "x"},
        {"JOB_COMPLETION_INDEX": "1", "SLURM_ARRAY_TASK_ID": "1"},
    ],
)
def test_a_number_of_a_scheduler_that_cannot_be_is_refused(
    url: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    """With the name of the variable."""
    plan = planned(url, tmp_path / "out")
    error = command.error_of("run", plan, "--part", "auto/3", status=2, env=variables)
    assert all(name in error for name in variables)


def test_several_directories(url: str, tmp_path: Path) -> None:
    """Each part spreads its files over the same directories, and the merged manifest lists all."""
    first, second = tmp_path / "a", tmp_path / "b"
    plan = planned(url, first)
    for number in (1, 2):
        run_part(plan, f"{number}/2", "--to", f"{first},{second}")
    manifest = merged(first)
    assert len(manifest["directories"]) == 5
    assert len(contents(*first.iterdir(), *second.iterdir())) == manifest["totals"]["files"]
    command.run("verify", str(first), url)
    next((second / "part-2-of-2").glob("*.csv")).write_text("")
    command.run("verify", str(first), status=8)


def test_a_sample_in_parts(url: str, tmp_path: Path) -> None:
    """The parts of a sample are that sample, and the database counts its units."""
    to = tmp_path / "out"
    plan = planned(url, to, "--sample", "40%")
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    manifest = merged(to)
    subset = manifest["subset"]
    assert "part" not in subset
    assert subset["units"] == len(manifest["units"]) < subset["of_units"]
    assert manifest["totals"]["rows"] < ROWS
    command.run("verify", str(to), url)


def key_file(path: Path) -> Path:
    """Write a new key of 32 bytes."""
    path.write_bytes(base64.b64encode(os.urandom(32)))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("how", ["masked", "encrypted"])
def test_all_parts_have_the_keys_of_the_plan(url: str, tmp_path: Path, how: str) -> None:
    """One key for all, so that tokens join; another one is refused before anything is read."""
    to, key = tmp_path / "out", key_file(tmp_path / "key")
    options = {
        "masked": ("--mask", "k=hmac,key=k", "--mask-key", f"k=file:{key}"),
        "encrypted": ("--format", "parquet", "--parquet-key-file", str(key)),
    }[how]
    plan = planned(url, to, *options)
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    manifest = merged(to)
    assert manifest["totals"]["rows"] == ROWS
    first = command.manifest_of(to / "part-1-of-2")
    assert manifest["columns"] == first["columns"]
    assert manifest["options"] | {"to": ""} == first["options"] | {"to": ""}
    if how == "masked":
        files = str(to / "*" / "*.csv")
        assert duckdb.sql(f"SELECT count(DISTINCT k) FROM '{files}'").fetchall() == [(101,)]
    else:
        command.run("verify", str(to), "--parquet-key-file", str(key), "--level", "count")
    key_file(key)
    error = command.error_of("run", plan, "--part", "1/2", "--overwrite", status=5)
    assert "key is not that of the plan" in error


def test_routes_in_parts(url: str, tmp_path: Path) -> None:
    """Each output has its parts and its own merged manifest."""
    text, lake = tmp_path / "text", tmp_path / "lake"
    plan = str(tmp_path / "plan.json")
    command.run(
        "plan", url, "--table", "t", "--unit-bytes", "1MiB", "--output", plan, "--quiet",
        "--route", f"text:to={text}", "--route", f"lake:to={lake},format=parquet,columns=id",
    )  # fmt: skip
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    for to, name in ((text, "text"), (lake, "lake")):
        manifest = merged(to)
        assert (manifest["route"]["name"], manifest["totals"]["rows"]) == (name, ROWS)
        command.run("verify", str(to), url)
    shutil.rmtree(text / "part-2-of-2")
    (text / "_manifest.json").unlink()
    shutil.copytree(lake / "part-2-of-2", text / "part-2-of-2")
    assert "they are of the routes 'text' and 'lake'" in command.error_of(
        "merge", str(text), status=6
    )


# --- servers


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables with a place for records of this test alone; no keeper is left at the end."""
    found = {"XDG_STATE_HOME": str(tmp_path / "state")}
    yield found
    command.run("keepers", "--end-all", env=found)


@pytest.fixture
def database(postgres: Any) -> str:
    """A PostgreSQL database with a table of four partitions."""
    found: str = postgres.database("parts")
    postgres.run(
        "CREATE TABLE t (k int, v text) PARTITION BY LIST (k);"
        + "".join(f"CREATE TABLE t_{n} PARTITION OF t FOR VALUES IN ({n});" for n in range(4))
        + "INSERT INTO t SELECT g % 4, 'old ' || g FROM generate_series(1, 2000) g",
        url=found,
    )
    return found


def test_parts_of_postgres_at_the_snapshot_of_the_plan(
    postgres: Any, database: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """Rows change between the parts, one is killed and resumed; the keeper goes with the file."""
    to = tmp_path / "out"
    plan = tmp_path / "plan.json"
    command.run(
        "plan", database, "--table", "t", "--to", str(to), "--output", str(plan), "--quiet",
        "--split", "partition", "--where", f"{gates.PASSING} = ''", "--keep-snapshot", "2h",
        env=variables,
    )  # fmt: skip
    postgres.run("DELETE FROM t WHERE k = 1; UPDATE t SET v = 'new'", url=database)
    run_part(str(plan), "1/2", env=variables)
    postgres.run("INSERT INTO t SELECT k, 'newer' FROM t", url=database)
    with gates.closed(postgres, database) as gate:
        running = command.Running("run", str(plan), "--part", "2/2", env=variables)
        command.wait_for(lambda: gate.waiting() > 0, "a worker at the gate")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
    error = command.error_of("merge", str(to), status=6)
    assert f"unloader resume {to}/part-2-of-2" in error
    command.run("resume", str(to / "part-2-of-2"), "--progress", "none", env=variables)
    manifest = merged(to)
    assert manifest["totals"]["rows"] == manifest["verified"]["source_rows"] == 2000
    text = b"".join(contents(*to.iterdir(), pattern="*.csv").values()).decode()
    assert sorted(text.replace("k,v\n", "").split()) == sorted(
        word for g in range(1, 2001) for word in (f"{g % 4},old", str(g))
    )
    command.run("verify", str(to), database, env=variables)
    (keeper,) = json.loads(command.run("keepers", "--json", env=variables))["keepers"]
    assert keeper["run_id"] == json.loads(plan.read_bytes())["run_id"]


def test_without_a_keeper_the_snapshot_of_a_plan_is_gone(database: str, tmp_path: Path) -> None:
    """The error says how the plan is to be made."""
    to = tmp_path / "out"
    plan = planned(database, to)
    error = command.error_of("run", plan, "--part", "1/2", "--progress", "none", status=4)
    assert "--keep-snapshot" in error
    assert not to.exists()


def test_a_plan_keeps_its_snapshot_with_its_file_alone(database: str, tmp_path: Path) -> None:
    """Without a file nobody could use it. In a variable or a job file it is about runs."""
    arguments = ("plan", database, "--table", "t", "--to", str(tmp_path / "out"))
    error = command.error_of(*arguments, "--keep-snapshot", "1h", status=2)
    assert "--output" in error
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    command.run(*arguments, "--quiet", env={**state, "UNLOADER_KEEP_SNAPSHOT": "1h"})
    assert json.loads(command.run("keepers", "--json", env=state))["keepers"] == []


def test_parts_of_oracle_at_the_scn_of_the_plan(oracle: OracleLeg, tmp_path: Path) -> None:
    """Rows are deleted and added between the parts; what was there when it was planned is there."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="V", type=Type(name="VARCHAR2", length=20)),
    )
    partitions = ", ".join(f"PARTITION P{n} VALUES LESS THAN ({n}000)" for n in range(1, 5))
    oracle.create("PARTED", columns, key=("ID",), tail=f"PARTITION BY RANGE (ID) ({partitions})")
    oracle.load("PARTED", columns, ((number, f"old {number}") for number in range(4000)))
    oracle.settle()
    to, plan = tmp_path / "out", tmp_path / "plan.json"
    command.run(
        "plan", oracle.url, "--table", "PARTED", "--to", str(to), "--output", str(plan),
        "--quiet", "--split", "partition", env=oracle.environment,
    )  # fmt: skip
    with oracle.writer() as writer:
        writer.run("DELETE FROM PARTED WHERE ID = 7")
        writer.commit()
        run_part(str(plan), "1/2", env=oracle.environment)
        writer.run("DELETE FROM PARTED WHERE ID = 3007")
        writer.run("UPDATE PARTED SET V = 'new' WHERE ID = 1007")
        writer.commit()
    run_part(str(plan), "2/2", env=oracle.environment)
    manifest = merged(to)
    assert manifest["snapshot"]["kind"] == "scn"
    text = b"".join(contents(*to.iterdir(), pattern="*.csv").values()).decode()
    rows = sorted(line for line in text.splitlines() if line != "ID,V")
    assert rows == sorted(f"{number},old {number}" for number in range(4000))
    command.run("verify", str(to), oracle.url, env=oracle.environment)


def test_sqlite_in_parts(tmp_path: Path) -> None:
    """Each part holds the file as it is, and finds it as it was."""
    path, to = tmp_path / "t.sqlite", tmp_path / "out"
    with sqlite3.connect(path) as session:
        session.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        session.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"v{n}") for n in range(30_000)])
    session.close()
    plan = planned(f"sqlite://{path}", to, "--unit-bytes", "64KiB")
    units = len(json.loads(Path(plan).read_bytes())["plan"]["units"])
    for number in range(1, 3):
        run_part(plan, f"{number}/2")
    manifest = merged(to)
    assert len(manifest["units"]) == units
    assert manifest["totals"]["rows"] == 30_000
