"""`run --part` and `merge`: the parts of a plan, each read alone, are the files of one run."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from plan_parts import contents, merged, planned, run_part
from processes import command
from processes.breaking import kill_after

ROWS = 60_000
TABLE = "SELECT i AS id, i * 7 % 101 AS k, 'text ' || i AS v FROM range({rows}) t(i)"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A DuckDB file with a table that a plan cuts into many units."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as session:
        session.execute(f"CREATE TABLE t AS {TABLE.format(rows=ROWS)}")
    return f"duckdb://{path}"


@pytest.mark.parametrize(
    ("parts", "form"), [(3, "csv"), *also(OTHER_ROUTES, (1, "csv"), (12, "parquet"))]
)
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
    """Its manifest has its number and units; its own rows are counted in the source."""
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
    assert "1 of 2 parts is missing" in error
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
    "missing": "1 of 2 parts is missing",
    "unfinished": "is not finished: part-1-of-2",
    "of_another_plan": "a different plan",
    "of_other_rows": "a different --where",
    "in_another_form": "a different --dialect",
    "of_another_number": "a different number of parts: 2 and 3",
    "twice": "both are part 1 of 2",
    "without_a_file": "is missing",
    "with_a_shorter_file": "bytes, but its manifest records",
    "with_another_run": "has the manifest of another run",
}


@pytest.mark.long("runs in parts")
@pytest.mark.parametrize("what", WRONG)
def test_parts_that_do_not_belong_together_are_not_merged(
    url: str, tmp_path: Path, what: str
) -> None:
    """One error names them, and no manifest covers them."""
    to = tmp_path / "out"
    parts = _Damaged(url, to)
    getattr(parts, what)()
    before = (to / "_manifest.json").exists()
    assert WRONG[what] in command.error_of("merge", str(to), status=6)
    assert (to / "_manifest.json").exists() == before
    assert [path.name for path in to.iterdir() if path.is_file()] == ["_manifest.json"] * before


def test_a_part_whose_new_run_is_interrupted_is_not_merged(url: str, tmp_path: Path) -> None:
    """With --overwrite the earlier files of the part stay until its new run is complete."""
    to = tmp_path / "out"
    plan = planned(url, to, "--parallelism", "1")
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    part = to / "part-1-of-2"
    kill_after(1, part, "run", plan, "--part", "1/2", "--overwrite")
    error = command.error_of("merge", str(to), status=6)
    assert "1 of 2 parts is not finished: part-1-of-2" in error
    assert f"unloader resume {part}" in error
    error = command.error_of("status", str(to), status=6)
    assert f"its directories have runs: {part}, {to / 'part-2-of-2'}. Next:" in error
    command.run("resume", str(part), "--progress", "none")
    assert merged(to)["totals"]["rows"] == ROWS


def test_interrupted_parts_are_resumed_before_any_is_finished(url: str, tmp_path: Path) -> None:
    """The error names them, and its command keeps their finished work units."""
    to = tmp_path / "out"
    plan = planned(url, to, "--parallelism", "1")
    part = to / "part-1-of-2"
    kill_after(1, part, "run", plan, "--part", "1/2")
    error = command.error_of("merge", str(to), status=6)
    assert f"no part of the plan in {to} is finished; begun: part-1-of-2" in error
    assert error.rstrip().endswith(f"unloader resume {part}")
    command.run("resume", str(part), "--progress", "none")
    run_part(plan, "2/2")
    assert merged(to)["totals"]["rows"] == ROWS


def test_a_second_merge_changes_nothing(url: str, tmp_path: Path) -> None:
    """Nor do parallel merges: one of them writes the manifest, and all return it."""
    to = tmp_path / "out"
    plan = planned(url, to)
    for number in (1, 2):
        run_part(plan, f"{number}/2")
    several = [command.Forked("merge", str(to), "--json") for _ in range(4)]
    printed = set()
    for each in several:
        out, err = each.process.communicate()
        assert each.process.returncode == 0, err
        printed.add(out)
    assert len(printed) == 1
    before = (to / "_manifest.json").read_bytes()
    assert json.loads(printed.pop()) == json.loads(before) == merged(to)
    assert (to / "_manifest.json").read_bytes() == before
    assert sorted(path.name for path in to.iterdir()) == [
        "_manifest.json", "part-1-of-2", "part-2-of-2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--part", "0/2"), "the parts are 1 to 2"),
        (("--part", "3/2"), "the parts are 1 to 2"),
        (("--part", "1"), "is not a part"),
        (("--part", "auto/2"), "none of its variables is set"),
        (("--part", "1/2", "--file-per", "table"), "--file-per table does not apply to --part"),
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


@pytest.mark.long("runs in parts")
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


@pytest.mark.long("runs in parts")
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


def key_file(path: Path) -> Path:
    """Write a new key of 32 bytes."""
    path.write_bytes(base64.b64encode(os.urandom(32)))
    path.chmod(0o600)
    return path


@pytest.mark.long("runs in parts")
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
    assert "key differs from the plan's key" in error


@pytest.mark.long("runs in parts")
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
    assert "a different route: text and lake" in command.error_of("merge", str(text), status=6)
