"""The commands on the home of a run over several tables: interrupted, and finished."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command
from reports.reading import Page, agrees, at
from schemas.json_schema import check
from several_tables import break_off, made, requests_of, unload

from unloader.errors import OutputFailed
from unloader.events import Event, UnitFinished
from unloader.model import SourceSpec
from unloader.status.reading import statuses_below
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import RUN_RECORD

SIZES = {"large": 9000, "middle": 2000, "small": 10, "empty": 0}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceSpec:
    """A DuckDB file of four tables."""
    return made(tmp_path_factory.mktemp("source") / "s.db", SIZES)


@pytest.fixture(scope="module")
def finished(source: SourceSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that is complete; not to be changed."""
    home = tmp_path_factory.mktemp("finished")
    unload(requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES)))
    return home


@pytest.fixture(scope="module")
def broken(source: SourceSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that was stopped when its largest table was published; to be copied."""
    home = tmp_path_factory.mktemp("broken") / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES))
    break_off(requests, "main.large", "main.middle")
    return home


def copied(home: Path, to: Path) -> Path:
    """Return a copy of a home."""
    return Path(shutil.copytree(home, to / "home", symlinks=True))


def answer_of(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Return what a command answers in JSON."""
    done = command.ended(*arguments, "--json")
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bytes_of(home: Path) -> dict[str, bytes]:
    """Return the data files of a home."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.csv")}


@pytest.mark.long(OTHER_ROUTES)
def test_a_broken_run_is_continued_with_the_same_bytes(
    broken: Path, finished: Path, tmp_path: Path
) -> None:
    """Tables that were published are not touched; the home may have been moved."""
    home = copied(broken, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (home / "main.large").iterdir()}
    hook = f"env > {tmp_path}/facts"
    answer = answer_of("resume", str(home), "--on-success", hook, "--log-format", "json")
    check(answer)
    facts = dict(line.split("=", 1) for line in (tmp_path / "facts").read_text().splitlines())
    told = {name.removeprefix("UNLOADER_RUN_"): value for name, value in facts.items()}
    assert told["MANIFEST"] == f"{home}/_manifest.json"
    assert (told["TABLES"], told["TABLES_DONE"], told["TABLES_FAILED"]) == ("4", "4", "0")
    assert {each["table"]["name"]: each["rows"] for each in answer["tables"]} == SIZES
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert bytes_of(home) == bytes_of(finished)
    assert not list(home.rglob("_run"))
    assert "there is nothing left to do" in command.ended("resume", str(home)).stderr


@pytest.mark.long(OTHER_ROUTES)
def test_a_new_snapshot_replaces_what_the_run_has_published(broken: Path, tmp_path: Path) -> None:
    """All tables are of the new run then."""
    home = copied(broken, tmp_path)
    answer = answer_of("resume", str(home), "--new-snapshot")
    ids = {json.loads(path.read_text())["run_id"] for path in sorted(home.rglob("_manifest.json"))}
    assert ids == {answer["run_id"]}
    assert len(list(home.glob("main.*/_manifest.json"))) == len(SIZES)


def test_one_table_of_a_broken_run_is_not_continued_alone(broken: Path, tmp_path: Path) -> None:
    """The error names the home; so do the answers of `status` and `stop`."""
    home = copied(broken, tmp_path)
    left = str(home / "main.middle")
    assert f"unloader resume {home}" in command.error_of("resume", left, status=6)
    found = answer_of("status", left, status=7)
    assert (found["home"], found["table"]) == (str(home), "main.middle")


def test_the_status_of_a_home(broken: Path, finished: Path, tmp_path: Path) -> None:
    """Status shows how many tables are complete, and the remaining work of the others."""
    home = copied(broken, tmp_path)
    found = answer_of("status", str(home), status=7)
    assert found["state"] == "interrupted"
    assert (found["tables"]["total"], found["tables"]["done"]) == (len(SIZES), 1)
    page = command.ended("status", str(home)).stdout
    assert "keeps 1 finished work unit of 3 incomplete tables" in page
    found = answer_of("status", str(finished))
    assert (found["state"], found["finished"]["tables"]) == ("finished", len(SIZES))
    assert found["finished"]["rows"] == sum(SIZES.values())
    assert found["finished"]["verified"] == "ok"


def test_runs_lists_a_run_over_several_tables_once(
    broken: Path, finished: Path, tmp_path: Path
) -> None:
    """A line for each table would hide the other runs."""
    for name, home in (("one", broken), ("two", finished)):
        shutil.copytree(home, tmp_path / name)
    found = answer_of("runs", str(tmp_path))["runs"]
    assert [(each["destination"], each["state"]) for each in found] == [
        (f"{tmp_path}/one", "interrupted"),
        (f"{tmp_path}/two", "finished"),
    ]


def test_verify_checks_every_table_and_names_the_damaged_one(
    finished: Path, source: SourceSpec, tmp_path: Path
) -> None:
    """Against the source, too; of a table's own directory as of any run."""
    answer = answer_of("verify", str(finished), f"duckdb://{source.location}")
    assert (answer["rows"], answer["source_rows"]) == (sum(SIZES.values()),) * 2
    assert [each["table"] for each in answer["tables"]] == [f"main.{name}" for name in SIZES]
    home = copied(finished, tmp_path)
    damaged = next((home / "main.small").glob("*.csv"))
    damaged.write_bytes(damaged.read_bytes()[:-2] + b"x\n")
    error = command.error_of("verify", str(home), status=8)
    assert "1 of 4 tables" in error
    assert "main.small: " in error
    command.error_of("verify", str(home / "main.small"), status=8)
    command.run("verify", str(home / "main.large"))


@pytest.mark.long(OTHER_ROUTES)
def test_verify_finds_a_table_of_another_run(
    finished: Path, source: SourceSpec, tmp_path: Path
) -> None:
    """One that was unloaded again since, one that is gone, and one that an earlier run has left."""
    home = copied(finished, tmp_path)
    url = f"duckdb://{source.location}"
    command.run("run", url, "--table", "small", "--to", str(home / "main.small"), "--overwrite")
    shutil.rmtree(home / "main.empty")
    command.run("run", url, "--table", "small", "--to", str(home / "main.old"))
    error = command.error_of("verify", str(home), status=8)
    assert "main.small: " in error
    assert "unloaded again" in error
    assert "main.empty: " in error
    assert "main.old" not in error
    assert f"{home}/main.old" in command.error_of("verify", str(home), "--strict", status=8)


@pytest.mark.long(OTHER_ROUTES)
def test_clean_removes_what_is_staged_of_all_tables(source: SourceSpec, tmp_path: Path) -> None:
    """Published tables stay, also with everything else gone."""
    home = tmp_path / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES))
    break_off(requests, "main.large", "main.middle")
    dry = answer_of("clean", str(home), "--dry-run")
    assert {each["directory"] for each in dry["removed"]} == {
        str(path.parent) for path in home.rglob("_run")
    }
    command.run("clean", str(home))
    assert not list(home.rglob("_run"))
    command.run("verify", str(home / "main.large"))


def test_the_page_of_a_home_has_a_line_for_each_table(
    finished: Path, broken: Path, tmp_path: Path
) -> None:
    """Incomplete tables of an interrupted run have one, too, with the reason."""
    page = Page(command.run("report", str(finished)))
    assert page.document["report"] == "tables"
    assert sorted(each["table"]["name"] for each in page.document["tables"]) == sorted(SIZES)
    assert [each for each in page.figures if not agrees(each, at(page.document, each.key))] == []
    assert {"tables.3.rows", "manifest.totals.tables"} <= {each.key for each in page.figures}
    found = answer_of("report", str(broken))
    assert [each["table"]["name"] for each in found["tables"]] == ["large"]
    assert len(found["missing"]) == 3
    assert {each["status"] for each in found["missing"]} == {"failed"}


@pytest.mark.long(OTHER_ROUTES)
def test_a_failed_table_leaves_the_others_whole(tmp_path: Path) -> None:
    """Status, message and hook name it; the partial manifest has all tables."""
    spec = made(tmp_path / "s.db", {"good": 5, "other": 7})
    with duckdb.connect(spec.location) as connection:
        connection.execute("CREATE VIEW bad AS SELECT error('no luck') AS e FROM good")
    home = tmp_path / "out"
    hook = f'echo "$UNLOADER_RUN_PARTIAL_MANIFEST $UNLOADER_RUN_TABLES_FAILED" > {tmp_path}/told'
    error = command.error_of(
        *("run", f"duckdb://{spec.location}", "--table", "*", "--table", "bad"),
        *("--to", f"{home}/{{table}}", "--on-table-failure", "continue", "--on-failure", hook),
        status=7,
    )
    assert "1 of 3 tables is not complete: main.bad: " in error
    assert "no luck" in error
    assert f"unloader resume {home}" in error
    path, failed = (tmp_path / "told").read_text().split()
    assert failed == "1"
    partial = json.loads(Path(path).read_text())
    check(partial)
    assert {each["table"]["name"]: each["status"] for each in partial["tables"]} == {
        "bad": "failed",
        "good": "complete",
        "other": "complete",
    }
    for name in ("good", "other"):
        command.run("verify", str(home / name))
    again = ("run", f"duckdb://{spec.location}", "--table", "bad", "--table", "good")
    error = command.error_of(*again, "--to", f"{tmp_path}/again/{{table}}", status=4)
    assert "main.bad: " in error


@pytest.mark.long(OTHER_ROUTES)
def test_what_is_left_out_stays_missing(source: SourceSpec, tmp_path: Path) -> None:
    """A run that is continued does not pass for complete without it."""
    home = tmp_path / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", [*SIZES, "nowhere"])
    break_off(requests, "main.large", "main.middle", on_failure="continue")
    for _ in range(2):
        error = command.error_of("resume", str(home), status=7)
        assert "1 of 5 tables is not complete: nowhere: " in error
        assert "it was left out when the run was first started: " in error
        assert "start the command of the run with --resume-or-start" in error
    assert not (home / "_manifest.json").exists()
    partial = json.loads((home / "_run" / "_manifest.json").read_text())
    assert partial["tables"][-1]["status"] == "left out"


def test_the_record_of_all_tables_is_not_read_for_each(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of runs takes as long as their tables are many, and not the square of that."""
    home = copied(broken, tmp_path)
    read: list[str] = []
    method = LocalDirectories.record

    def counted(self: LocalDirectories, place: str, name: str) -> bytes:
        if (place, name) == (str(home), RUN_RECORD):
            read.append(place)
        return method(self, place, name)

    monkeypatch.setattr(LocalDirectories, "record", counted)
    (found,) = statuses_below(str(tmp_path), 3)
    assert (found.destination, found.state) == (str(home), "interrupted")
    # Three tables are open still.
    assert len(read) <= 3


def test_a_home_that_is_removed_meanwhile_is_no_way_to_go_on(
    source: SourceSpec, tmp_path: Path
) -> None:
    """One error reports it; the tables are whole, and the run is not marked as complete."""
    home = tmp_path / "night"

    def remove(event: Event) -> None:
        if isinstance(event, UnitFinished):
            shutil.rmtree(home / "_run", ignore_errors=True)

    with pytest.raises(OutputFailed) as caught:
        unload(requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES)), observe=remove)
    assert f"{home}/_run/lock was removed" in caught.value.message
    assert "unloader resume" not in str(caught.value)
    assert not (home / "_manifest.json").exists()
    for name in SIZES:
        command.run("verify", str(home / f"main.{name}"), "--quiet")


def test_a_broken_run_is_verified_as_far_as_it_is_published(broken: Path) -> None:
    """The error has the command that completes it."""
    error = command.error_of("verify", str(broken), status=7)
    assert f"the run of 4 tables in {broken} is not complete" in error
    assert f"unloader resume {broken}" in error
    command.run("verify", str(broken / "main.large"), "--quiet")
