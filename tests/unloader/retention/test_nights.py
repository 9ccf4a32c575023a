"""`--keep` and `--latest-link` of runs over several tables, whose directories lie in one each night."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from several_tables import made, requests_of, unload

from unloader.errors import OutputFailed
from unloader.events import Event, Notice
from unloader.model import SourceSpec

SIZES = {"first": 30, "second": 5}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceSpec:
    """A DuckDB file of two tables."""
    return made(tmp_path_factory.mktemp("source") / "s.db", SIZES)


def night(
    source: SourceSpec, to: Path, names: tuple[str, ...] = tuple(SIZES), **output: Any
) -> str:
    told: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            told.append(event.text)

    found = unload(
        requests_of(source, f"{to}/{{run_id}}/{{schema}}/{{table}}", names, **output), None, listen
    )
    return f"{found.run_id} {' '.join(told)}"


@pytest.mark.long(OTHER_ROUTES)
def test_the_link_and_the_kept_ones_are_whole_nights(source: SourceSpec, tmp_path: Path) -> None:
    """A table that is not unloaded any more goes with the night that it is of."""
    nights = [
        night(source, tmp_path, keep=2, latest_link="latest"),
        night(source, tmp_path, ("first",), keep=2, latest_link="latest"),
        night(source, tmp_path, keep=2, latest_link="latest"),
    ]
    ids = [each.partition(" ")[0] for each in nights]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*ids[1:], "latest"])
    assert os.readlink(tmp_path / "latest") == ids[2]
    assert f"removed run {ids[0]} in {tmp_path / ids[0]}" in nights[2]
    manifest = json.loads((tmp_path / "latest" / "_manifest.json").read_text())
    assert [each["directory"] for each in manifest["tables"]] == ["main/first", "main/second"]


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("notes.txt", "is not a table of the run"),
        ("main/first/x.csv", "is not a file of the run"),
    ],
)
def test_a_night_with_anything_else_in_it_stays(
    source: SourceSpec, tmp_path: Path, path: str, why: str
) -> None:
    """Someone has put it there, and may need it."""
    first = night(source, tmp_path).partition(" ")[0]
    strange = tmp_path / first / path
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("x")
    assert why in night(source, tmp_path, keep=1)
    assert strange.exists()
    assert (tmp_path / first / "_manifest.json").exists()


def test_what_has_the_name_of_the_link_is_told_before_anything_is_read(
    source: SourceSpec, tmp_path: Path
) -> None:
    """Of the directory of all tables, not of each."""
    (tmp_path / "latest").mkdir()
    with pytest.raises(OutputFailed, match="is not a symbolic link"):
        night(source, tmp_path, latest_link="latest")
    shutil.rmtree(tmp_path / "latest")


@pytest.mark.long(OTHER_ROUTES)
def test_tables_with_dated_directories_have_links_of_their_own(
    source: SourceSpec, tmp_path: Path
) -> None:
    """As if each had been unloaded alone."""
    template = f"{tmp_path}/{{table}}/{{run_id}}"
    for _ in range(2):
        requests = requests_of(
            source, template, tuple(SIZES), keep=1, latest_link="latest", overwrite=True
        )
        (tmp_path / "_manifest.json").unlink(missing_ok=True)
        found = unload(requests)
        for name in SIZES:
            assert os.readlink(tmp_path / name / "latest") == found.run_id
            assert len(list((tmp_path / name).iterdir())) == 2
