"""`unloader report`, and the page that a run writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from reports.reading import Page, agrees, at

from unloader.cli.reporting import write_report
from unloader.errors import FollowUpFailed

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_run_writes_its_page(unloader: Run, database: str, tmp_path: Path) -> None:
    """`run --report` writes the page that `unloader report` makes of the manifest later."""
    where = ("--table", "orders", "--to", "out", "--parallelism", "2", "--unit-bytes", "20kB")
    ran = unloader("run", database, *where, "--report", "run.html", "--split", "range", "--json")
    manifest = json.loads(ran.stdout)
    page = Page((tmp_path / "run.html").read_text("utf-8"))
    later = json.loads(unloader("report", "out", "--json").stdout)
    assert page.document == later
    assert later["totals"] == manifest["totals"]
    assert sum(bar["rows"] for bar in later["bars"]) == manifest["totals"]["rows"]
    assert {"name": "parallelism", "value": "2", "from": "command line"} in later["settings"]
    assert [each for each in page.figures if not agrees(each, at(later, each.key))] == []

    told = unloader("report", "out", "--output", "later.html")
    assert told.stdout == "report  later.html\n"
    assert Page((tmp_path / "later.html").read_text("utf-8")).document == later
    elsewhere = tmp_path / "kept.json"
    elsewhere.write_bytes((tmp_path / "out" / "_manifest.json").read_bytes())
    assert json.loads(unloader("report", "kept.json", "--json").stdout) == later


def test_timeline_of_a_run(unloader: Run, database: str) -> None:
    """Units of a worker follow each other, and end before the run does."""
    where = ("--table", "orders", "--to", "out", "--parallelism", "2", "--unit-bytes", "20kB")
    manifest = json.loads(unloader("run", database, *where, "--split", "range", "--json").stdout)
    ends = dict.fromkeys(range(2), 0.0)
    assert len(manifest["units"]) > 4
    for unit in sorted(manifest["units"], key=lambda unit: unit["started_s"]):
        # The clock of the worker and that of its parent differ by what a message takes.
        assert unit["started_s"] >= ends[unit["worker"]] - 0.05
        ends[unit["worker"]] = unit["started_s"] + unit["seconds"]
    assert 0 < max(ends.values()) <= manifest["totals"]["seconds"]
    samples = manifest["samples"]
    assert samples[-1]["rows"] == manifest["totals"]["rows"]
    assert [each["at_s"] for each in samples] == sorted(each["at_s"] for each in samples)


def test_what_is_found_out_before_the_run(unloader: Run, database: str, tmp_path: Path) -> None:
    """A page that cannot be written is refused before anything is read."""
    where = ("--table", "orders", "--to", "out", "--report", "missing/run.html")
    refused = unloader("run", database, *where)
    assert refused.returncode == 3
    assert "there is no directory missing" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_page_that_cannot_be_written(unloader: Run, database: str, tmp_path: Path) -> None:
    """The run is complete all the same: that is status 10, with what to do."""
    (tmp_path / "run.html").mkdir()
    ran = unloader("run", database, "--table", "orders", "--to", "out", "--json")
    manifest = json.loads(ran.stdout)
    refused = unloader("report", "out", "--output", "run.html")
    assert (refused.returncode, "is a directory" in refused.stderr) == (2, True)
    with pytest.raises(FollowUpFailed, match="the run is complete, but the report") as raised:
        write_report({"report": str(tmp_path / "gone" / "run.html")}, manifest)
    assert raised.value.exit_code == 10
    assert "unloader report DEST" in raised.value.hint


def test_no_run_no_page(unloader: Run, tmp_path: Path) -> None:
    """Without a manifest the command says where to look for one."""
    (tmp_path / "empty").mkdir()
    refused = unloader("report", "empty", "--json")
    assert refused.returncode == 6
    assert "holds no finished run" in refused.stderr
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert "format version" in unloader("report", "other.json", "--json").stderr
