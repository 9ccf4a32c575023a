"""The sample of a codec choice, its place, and jobs whose sample fails."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace

from partition_planner.model import WholeTable, WorkUnit
from unloader import api
from unloader.errors import Interrupted
from unloader.events import Event, Notice
from unloader.model import OutputOptions, PlanOptions, Request, Selection, SourceSpec
from unloader.request.names import parse_table
from unloader.resolve.resolution import prepared
from unloader.selection.choice import TablesRequest
from unloader.tuning.codec_choice import (
    BEFORE_A_RUN,
    SAMPLED_UNITS,
    chosen,
    disks_of,
    scratch,
    spread_units,
)
from writers.model import Compression, TextFormat


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
        limits=PlanOptions(parallelism=1),
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
    with pytest.raises(Interrupted):
        api.measure_codecs(job, budget=BEFORE_A_RUN, stop=lambda: True)


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
