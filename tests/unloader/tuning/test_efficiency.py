"""A run compared with ceilings, and the choice of its codec by a sample."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace
from processes import command
from reports.manifests import manifest

from partition_planner.model import WholeTable, WorkUnit
from unloader import api
from unloader.errors import Interrupted
from unloader.events import Event, Notice
from unloader.model import OutputOptions, Request, Selection, SourceSpec
from unloader.request.names import parse_table
from unloader.resolve.resolution import prepared
from unloader.selection.asked import TablesRequest
from unloader.tuning.ceilings import Ceilings, read_ceilings
from unloader.tuning.codec_choice import (
    BEFORE_A_RUN,
    SAMPLED_UNITS,
    chosen,
    disks_of,
    report,
    scratch,
    spread_units,
)
from writers.model import Compression, TextFormat


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table."""
    path = tmp_path_factory.mktemp("efficiency") / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id FROM range(30000) r(i)")
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def ceilings(tmp_path_factory: pytest.TempPathFactory, database: str) -> Path:
    """What preflight has found for a run of `t`, made once."""
    folder = tmp_path_factory.mktemp("ceilings")
    path = folder / "c.json"
    command.run(
        *("preflight", database, "--table", "t", "--to", str(folder), "--save", str(path)),
        *("--disk-bytes", "256kB", "--rounds", "1", "--overlap-buffer", "64KiB"),
        *("--source-seconds", "10", "--sample", "64kB", "--parallelism", "1", "--quiet"),
    )
    return path


@pytest.fixture(scope="module")
def found(ceilings: Path) -> Ceilings:
    """The same, as the program reads it."""
    return read_ceilings(ceilings)


def unloaded(database: str, to: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    call = ("run", database, "--table", "t", "--to", str(to), "--parallelism", "1", *arguments)
    done = command.ended(*call)
    assert done.returncode == 0, done.stderr
    return command.manifest_of(to), done.stdout + done.stderr


def changed(ceilings: Path, tmp_path: Path, edit: Any) -> str:
    """Return the path of the ceilings as a function has changed them."""
    document = json.loads(ceilings.read_text())
    edit(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_run_says_what_share_it_reached(database: str, ceilings: Path, tmp_path: Path) -> None:
    """Disk, source and encoder are in the manifest with rate, ceiling and share, and on the page."""
    manifest, page = unloaded(database, tmp_path / "out", "--ceilings", str(ceilings))
    found, totals = manifest["efficiency"], manifest["totals"]
    known = json.loads(ceilings.read_text())
    parts = {each["what"]: each for each in found["parts"]}
    assert set(parts) == {"disk", "source", "encoder"}
    assert parts["disk"]["ceiling"] == max(each["bytes_per_second"] for each in known["disks"])
    assert parts["disk"]["rate"] == pytest.approx(totals["bytes"] / totals["seconds"], rel=0.01)
    assert parts["source"]["ceiling"] == known["source"]["levels"][0]["rows_per_second"]
    assert parts["encoder"]["ceiling"] == known["encoder"]["bytes_per_cpu_second"]
    for each in parts.values():
        assert each["share"] == pytest.approx(each["rate"] / each["ceiling"], abs=1e-4)
    assert (found["ceilings"], found["taken_at"]) == ("c.json", known["taken_at"])
    assert found["not_compared"] == []
    assert "% of this disk" in page


@pytest.mark.long(OTHER_ROUTES)
def test_another_machine_is_not_compared(database: str, ceilings: Path, tmp_path: Path) -> None:
    """Ceilings of another machine do not count; the run reports it and is otherwise the same."""
    path = changed(ceilings, tmp_path, lambda each: each["machine"].update(name="db99"))
    manifest, page = unloaded(database, tmp_path / "out", "--ceilings", path)
    assert "efficiency" not in manifest
    assert "the ceilings are of db99" in page
    assert "% of this disk" not in page


@pytest.mark.parametrize(
    ("part", "other", "compared", "reason"),
    [
        ("machine", {"name": "db99"}, [], "the ceilings are of db99"),
        ("source", {"subject": "other"}, ["disk"], "source: the ceilings are of another source"),
        ("source", {"where": "id < 9"}, ["disk"], "source: the ceilings are of another source"),
        ("source", {"partitions": ("P1",)}, ["disk"], "source: the ceilings are of another"),
        ("source", {"columns": 2}, ["disk"], "source: the ceilings are of another source"),
        ("disks", {"mounts": (None,)}, ["source", "encoder"], "disk: the ceilings are of another"),
        ("to", "null:", ["source", "encoder"], "disk: the output was not written to a disk"),
        ("writing", {"direct_io": True}, ["source", "encoder"], "disk: it was measured with"),
        ("encoder", {"format": "parquet"}, ["disk", "source"], "encoder: the ceilings are of"),
        ("totals", {"rows_per_second": None}, ["disk", "encoder"], "source: the rate of the run"),
    ],
)
def test_only_what_was_measured_is_compared(
    found: Ceilings,
    database: str,
    ceilings: Path,
    part: str,
    other: Any,
    compared: list[str],
    reason: str,
) -> None:
    """Other rows leave the disk, another disk the source; each with the reason."""
    to = other if part == "to" else str(ceilings.parent / "out")
    request = Request(
        source=SourceSpec(kind="duckdb", location=database),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=to, format=TextFormat()),
        parallelism=1,
    )
    totals = manifest(units=1, workers=1, failed=0).totals
    totals = replace(totals, uncompressed_bytes=totals.bytes)
    if part == "totals":
        totals = replace(totals, **other)
    elif part == "disks":
        found = replace(found, disks=tuple(replace(each, **other) for each in found.disks))
    elif part != "to":
        found = replace(found, **{part: replace(getattr(found, part), **other)})
    result = found.compared(api.plan(request).run, totals, resumed=False)
    assert [each.what for each in result.parts] == compared
    assert any(each.startswith(reason) for each in result.not_compared)


def test_a_wrong_file_is_refused_before_the_run(database: str, tmp_path: Path) -> None:
    """Nothing is unloaded if the ceilings cannot be read, or are not there."""
    to = tmp_path / "out"
    asked = ("run", database, "--table", "t", "--to", str(to))
    text = command.error_of(*asked, "--ceilings", str(tmp_path / "no.json"), status=3)
    assert "--save" in text
    assert not to.exists()


def unit(number: int) -> WorkUnit:
    """Return a unit; its id tells its place in the table."""
    return WorkUnit(id=f"{number:04d}", selectors=(WholeTable(),))


@pytest.fixture
def job(tmp_path: Path) -> Request:
    """A job on a table of a few rows, whose codec is to be chosen."""
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id FROM range(1000) r(i)")
    return Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{tmp_path}/t.db"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(
            destination=str(tmp_path / "o"), format=TextFormat(), compression="smallest"
        ),
        parallelism=1,
    )


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 100])
def test_sampled_units_are_spread_over_the_table(count: int) -> None:
    """A few, in table order, for any order of the plan, none twice, from begin to end."""
    found = [each.id for each in spread_units(tuple(map(unit, reversed(range(count)))))]
    assert len(found) == min(count, SAMPLED_UNITS)
    assert found == sorted(set(found))
    if count == 100:
        assert found == ["0010", "0030", "0050", "0070", "0090"]


def test_the_disk_is_that_of_the_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new directory counts as its parent; two on one disk are one disk."""

    def disks(*places: str) -> tuple[str, ...]:
        first, *others = places
        return disks_of(OutputOptions(destination=first, others=tuple(others), format=TextFormat()))

    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert disks(str(tmp_path / "a" / "b")) == (str(tmp_path),)
    assert disks(str(tmp_path / "a"), str(tmp_path / "b")) == (str(tmp_path),)
    assert disks("") == (str(tmp_path),)
    assert disks("-") == disks("pipe:p") == disks(str(tmp_path / "file" / "x")) == ()


def test_rows_on_their_way_are_nobodys_to_read() -> None:
    """The passing files lie where only this user gets at them, and are gone at the end."""
    with scratch(1) as directory:
        assert os.stat(directory).st_mode & 0o077 == 0
    assert not os.path.exists(directory)


def test_a_signal_ends_the_measuring(job: Request) -> None:
    """Nothing is chosen once the user has stopped."""
    with prepared(TablesRequest.one(job)) as opened, pytest.raises(Interrupted):
        report(opened.tables[0], budget=BEFORE_A_RUN, stop=lambda: True)


def test_a_source_that_gives_no_sample_does_not_end_the_run(job: Request) -> None:
    """The preset takes its default, and the notice has the reason."""
    told: list[Event] = []
    with prepared(TablesRequest.one(job)) as opened:
        ready = opened.tables[0]
        broken = replace(ready.extract, where="nonsense")
        choice = chosen(
            replace(ready, extract=broken), "smallest", observe=told.append, stop=lambda: False
        )
    assert choice.compression == Compression(codec="zstd", level=9)
    assert choice.candidates == ()
    (notice,) = told
    assert isinstance(notice, Notice)
    assert "no codec could be measured" in notice.text
    assert "nonsense" in notice.text
