"""Files that were made to do harm, or that pretend to be another kind."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plan(unloader: Run, database: str, tmp_path: Path) -> dict[str, Any]:
    """A plan file's content."""
    made = ("plan", database, "--table", "orders", "--output", str(tmp_path / "p.json"))
    assert unloader(*made, "--quiet").returncode == 0
    found: dict[str, Any] = json.loads((tmp_path / "p.json").read_text())
    return found


def test_an_edited_job_of_a_plan_is_refused(
    unloader: Run, plan: dict[str, Any], tmp_path: Path
) -> None:
    """A condition that was put into a plan file by hand would read other rows than were planned."""
    plan["job"]["where"] = "id < 3"
    (tmp_path / "p.json").write_text(json.dumps(plan))
    result = unloader("run", str(tmp_path / "p.json"), "--to", "out")
    assert result.returncode == 5
    assert "edited" in result.stderr


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda plan: (plan.update(format_version=7), plan["job"].update({"later-option": 1})),
            "the plan has format version 7",
        ),
        (lambda plan: plan["request"].update(fetch_bytes=1), "edited"),
        (lambda plan: plan["extract"].update(where="id < 3"), "edited"),
        (lambda plan: plan["outputs"].clear(), "edited"),
        (lambda plan: plan.pop("seating"), "missing required field `seating`"),
    ],
    ids=["newer", "request", "extract", "outputs", "seating"],
)
def test_a_run_that_was_edited_or_is_of_another_version_is_refused(
    unloader: Run,
    plan: dict[str, Any],
    tmp_path: Path,
    edit: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    """A plan that was edited in any of its parts is refused."""
    edit(plan)
    (tmp_path / "p.json").write_text(json.dumps(plan))
    result = unloader("run", str(tmp_path / "p.json"), "--to", "out")
    assert result.returncode == 5
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_id_of_a_unit_is_no_path(unloader: Run, plan: dict[str, Any], tmp_path: Path) -> None:
    """Ids become names of files, so one that leads out of the destination is refused."""
    inner = plan["plan"]
    inner["units"][0]["id"] = "../../evil"
    content = {name: inner[name] for name in ("table", "partitions", "units", "limits")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    inner["digest"] = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "p.json").write_text(json.dumps(plan))
    result = unloader("run", str(tmp_path / "p.json"), "--to", "out")
    assert result.returncode == 5
    assert "units[0].id" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("run", "x.json", "--to", "out"), 3),
        (("run", "x.toml", "--to", "out"), 3),
        (("verify", "dest"), 6),
        (("describe", "postgresql://u@127.0.0.1:1/d", "--password-file", "endless"), 3),
    ],
)
def test_a_file_without_an_end_is_not_read(
    unloader: Run, tmp_path: Path, arguments: tuple[str, ...], status: int
) -> None:
    """A device in the place of a plan, job, manifest or password is refused immediately."""
    (tmp_path / "dest").mkdir()
    for name in ("x.json", "x.toml", "dest/_manifest.json", "endless"):
        (tmp_path / name).symlink_to("/dev/zero")
    assert unloader(*arguments).returncode == status


def test_a_file_of_sqlite_is_not_opened_as_duckdb(unloader: Run, tmp_path: Path) -> None:
    """DuckDB would look for an extension on the network."""
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("CREATE TABLE t (i)")
    result = unloader("describe", f"duckdb://{tmp_path}/t.db")
    assert result.returncode == 3
    assert f"sqlite://{tmp_path}/t.db" in result.stderr


@pytest.mark.parametrize(
    "source",
    [
        "postgresql://u@[Hunter2Xyzzy]/d",
        "postgresql://u@127.0.0.1:99999/d",
        "sqlite:////tmp/x?key=Hunter2Xyzzy",
        "duckdb:////tmp/x#Hunter2Xyzzy",
    ],
)
def test_a_url_with_more_in_it_is_not_shown(unloader: Run, source: str) -> None:
    """What no grammar has a place for may be a secret."""
    result = unloader("describe", source)
    assert result.returncode == 2
    assert "Hunter2Xyzzy" not in result.stdout + result.stderr


def test_many_workers_for_a_small_table(unloader: Run, database: str) -> None:
    """The largest parallelism there is costs a small table no more planning than a small one."""
    planned = unloader("plan", database, "--table", "orders", "--parallelism", "65535", "--json")
    assert len(json.loads(planned.stdout)["seats"]) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_lengths_behind_a_byte_order_mark_are_verified(
    unloader: Run, database: str, encoding: str
) -> None:
    """The mark does not count in the first record's length."""
    lengths = ("--dialect", "sqlldr-var", "--encoding", encoding, "--verify", "full")
    result = unloader("run", database, "--table", "orders", "--to", "out", *lengths)
    assert result.returncode == 0, result.stderr
    assert unloader("verify", "out").returncode == 0
