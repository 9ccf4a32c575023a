"""`unloader report`, and the page that a run writes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes.breaking import kill_after
from reports.reading import Page, agrees, at

from unloader.cli.watching import write_report
from unloader.errors import FollowUpFailed

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def check_timeline(manifest: dict[str, Any]) -> None:
    """Units of a worker follow each other, and end before the run does."""
    ends = dict.fromkeys(range(2), 0.0)
    assert len(manifest["units"]) > 4
    for unit in sorted(manifest["units"], key=lambda unit: unit["started_s"]):
        # Each of the three times was rounded.
        assert unit["started_s"] >= ends[unit["worker"]] - 0.002
        ends[unit["worker"]] = unit["started_s"] + unit["seconds"]
    assert 0 < max(ends.values()) <= manifest["totals"]["seconds"]
    samples = manifest["samples"]
    assert samples[-1]["rows"] == manifest["totals"]["rows"]
    assert [each["at_s"] for each in samples] == sorted(each["at_s"] for each in samples)


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_writes_its_page(unloader: Run, database: str, tmp_path: Path) -> None:
    """`run --report` writes the page that `unloader report` makes of the manifest later."""
    where = ("--table", "orders", "--to", "out", "--parallelism", "2", "--unit-bytes", "20kB")
    ran = unloader("run", database, *where, "--report", "run.html", "--split", "range", "--json")
    manifest = json.loads(ran.stdout)
    check_timeline(manifest)
    page = Page((tmp_path / "run.html").read_text("utf-8"))
    later = json.loads(unloader("report", "out", "--json").stdout)
    assert page.document == later
    assert later["manifest"]["totals"] == manifest["totals"]
    assert sum(bar["rows"] for bar in later["bars"]) == manifest["totals"]["rows"]
    workers = {"name": "parallelism", "value": "2", "from": "command line"}
    assert workers in later["manifest"]["settings"]
    assert [each for each in page.figures if not agrees(each, at(later, each.key))] == []

    told = unloader("report", "out", "--output", "later.html")
    assert told.stdout == "report  later.html\n"
    assert Page((tmp_path / "later.html").read_text("utf-8")).document == later
    elsewhere = tmp_path / "kept.json"
    elsewhere.write_bytes((tmp_path / "out" / "_manifest.json").read_bytes())
    assert json.loads(unloader("report", "kept.json", "--json").stdout) == later


@pytest.mark.long("a run with ceilings")
def test_ceilings_and_changes_of_the_workers(unloader: Run, database: str, tmp_path: Path) -> None:
    """The page of a steered run that was given ceilings has both as the manifest has them."""
    disk = ("--to", "out", "--parallelism", "1", "--disk-bytes", "256kB", "--rounds", "1")
    small = ("--overlap-buffer", "64KiB", "--save", "ceilings.json", "--quiet")
    measured = unloader("preflight", *disk, *small)
    assert measured.returncode == 0, measured.stderr
    where = ("--table", "orders", "--to", "out", "--unit-bytes", "20kB", "--split", "range")
    # The run begins with all its workers, and then finds that there may be one.
    minute, before = (
        time.strftime("%H:%M", time.localtime(time.time() - ago)) for ago in (3600, 3660)
    )
    slow = ("--slow-between", f"{minute}-{before}", "--slow-parallelism", "1")
    steered = ("--parallelism", "2", *slow)
    told = ("--ceilings", "ceilings.json", "--report", "run.html", "--json")
    ran = unloader("run", database, *where, *steered, *told)
    manifest = json.loads(ran.stdout)
    page = Page((tmp_path / "run.html").read_text("utf-8"))
    document = page.document
    assert document["manifest"]["efficiency"] == manifest["efficiency"]
    (disk_part,) = manifest["efficiency"]["parts"]
    shown = {each.key: each.shown for each in page.figures}
    assert shown["manifest.efficiency.parts.0.share"] == f"{disk_part['share']:.1%}"
    assert shown["manifest.efficiency.parts.0.rate"].endswith(" MB/s")
    steps = manifest["parallelism_steps"]
    assert steps
    assert document["manifest"]["parallelism_steps"] == steps
    assert shown["manifest.parallelism_steps.0.workers"] == str(steps[0]["workers"])
    assert shown["manifest.parallelism_steps.0.reason"] == steps[0]["reason"]
    first = min(unit["started_s"] for unit in manifest["units"])
    assert 0 < steps[0]["seconds"] <= round(first, 1) + 0.1, "by the clock of the units"


@pytest.mark.long("a killed run")
def test_page_of_a_resumed_run(unloader: Run, tmp_path: Path) -> None:
    """Units that an earlier process did are counted, and are on no timeline."""
    path = tmp_path / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, 'text ' || i AS v FROM range(20000) r(i)")
    out = tmp_path / "out"
    where = ("--table", "t", "--to", str(out), "--unit-bytes", "64kB", "--parallelism", "1")
    kept = kill_after(2, out, "run", f"duckdb://{path}", *where)
    resumed = unloader("resume", str(out), "--report", "run.html", "--json")
    manifest = json.loads(resumed.stdout)
    earlier = {unit["id"] for unit in manifest["units"] if unit["started_s"] is None}
    assert earlier == kept.keys()
    page = Page((tmp_path / "run.html").read_text("utf-8"))
    document = page.document
    assert document["spread"]["units_kept"] == len(kept)
    assert document["spread"]["units"] == len(manifest["units"])
    bars = document["bars"]
    assert sum(bar["units"] for bar in bars) == len(manifest["units"]) - len(kept)
    assert not earlier & {bar["unit"] for bar in bars}
    assert "units were done by an earlier process of this run" in page.text
    assert [each for each in page.figures if not agrees(each, at(document, each.key))] == []
    slow = [each for each in page.figures if each.key.endswith(".started_s")]
    assert {each.shown for each in slow if each.value == ""} <= {"–"}


def test_a_page_replaces_no_manifest(unloader: Run, database: str, tmp_path: Path) -> None:
    """A file that is not a page is left as it is, and so is the run that it describes."""
    assert unloader("run", database, "--table", "orders", "--to", "out").returncode == 0
    before = (tmp_path / "out" / "_manifest.json").read_bytes()
    refused = unloader("report", "out", "--output", "out/_manifest.json")
    assert refused.returncode == 3
    assert "not a page" in refused.stderr
    assert (tmp_path / "out" / "_manifest.json").read_bytes() == before


def test_what_is_found_out_before_the_run(unloader: Run, database: str, tmp_path: Path) -> None:
    """A page that cannot be written is refused before anything is read."""
    where = ("--table", "orders", "--to", "out", "--report", "missing/run.html")
    refused = unloader("run", database, *where)
    assert refused.returncode == 3
    assert "the directory missing does not exist" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.long("a page that cannot be written")
def test_a_page_that_cannot_be_written(unloader: Run, database: str, tmp_path: Path) -> None:
    """The run is complete all the same: that is status 10, with what to do."""
    (tmp_path / "run.html").mkdir()
    ran = unloader("run", database, "--table", "orders", "--to", "out", "--json")
    manifest = json.loads(ran.stdout)
    refused = unloader("report", "out", "--output", "run.html")
    assert (refused.returncode, "is a directory" in refused.stderr) == (2, True)
    with pytest.raises(FollowUpFailed, match="complete, but cannot write the report") as raised:
        write_report(str(tmp_path / "gone" / "run.html"), manifest)
    assert raised.value.exit_code == 10
    assert "unloader report DEST" in raised.value.hint


def test_no_run_no_page(unloader: Run, tmp_path: Path) -> None:
    """Without a manifest the command says where to look for one."""
    (tmp_path / "empty").mkdir()
    refused = unloader("report", "empty", "--json")
    assert refused.returncode == 6
    assert "has no finished run" in refused.stderr
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert "format version" in unloader("report", "other.json", "--json").stderr
