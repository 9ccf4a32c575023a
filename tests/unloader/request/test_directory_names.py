"""The fields of directories: their values, and the directories that may belong to runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from unloader.cli.display import render
from unloader.errors import ConfigError, OutputFailed
from unloader.request.directory_names import (
    DirectoryValues,
    beside,
    directory_name,
    existing,
    is_dated,
)
from unloader.request.file_names import NameValues, file_name
from unloader.storage.directories.directory_storage import LocalDirectories

VALUES = DirectoryValues(
    schema="S.1", table="T+(x", date="20261122", run_id="20261122T013000Z-0a1b2c"
)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/x/{table}/{date}", "/x/T+(x/20261122"),
        ("{schema}.{table}", "S.1.T+(x"),
        ("./-/{run_id}/", "./-/20261122T013000Z-0a1b2c/"),
        ("/.hidden/a-{date}", "/.hidden/a-20261122"),
    ],
)
def test_what_a_name_becomes(place: str, name: str) -> None:
    """Fields anywhere, more than one in a part; the user's other text is unchanged."""
    assert directory_name(place, VALUES) == name


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("..", "%2E."),
        ("a/b\\c", "a%2Fb%5Cc"),
        ("-rf", "%2Drf"),
        ("_run", "%5Frun"),
        ("a\nb\0", "a%0Ab%00"),
    ],
)
def test_values_that_could_lead_elsewhere(table: str, name: str) -> None:
    """No value is more than one name, hidden, an option, or a run's own directory."""
    values = DirectoryValues(schema="", table=table, date="", run_id="")
    assert directory_name("/x/{table}", values) == f"/x/{name}"
    assert beside("/x/{table}{date}", values)[1].fullmatch(f"{name}20261122")


def test_directories_encode_what_files_encode() -> None:
    """Every character of a table's name becomes the same in both, and no terminal obeys any."""
    for number in (*range(0x800), *range(0x2000, 0x2100), 0xFEFF, 0x1F600):
        for table in (f"a{chr(number)}b", f"{chr(number)}b"):
            values = replace(VALUES, table=table)
            of_file = NameValues(
                schema="", table=table, partition="", unit="", part=None, ext="csv", date=""
            )
            name = directory_name("/x/{table}", values).removeprefix("/x/")
            assert file_name("{table}", of_file) == name
            assert render.one_line(name) == name
            assert beside("/x/{table}{date}", values)[1].fullmatch(f"{name}20261122")


@pytest.mark.parametrize(("schema", "what"), [("", "is empty"), ("x" * 300, "has 300 bytes")])
def test_names_that_cannot_be(schema: str, what: str) -> None:
    """An empty part would be the directory above; a long one has no place."""
    values = DirectoryValues(schema=schema, table="t", date="", run_id="")
    with pytest.raises((ConfigError, OutputFailed), match=what):
        directory_name("/x/{schema}/y", values)


@pytest.mark.parametrize(
    ("place", "dated"),
    [
        ("/x/{date}", True),
        ("/{table}/a{run_id}/", True),
        ("{date}", True),
        ("/x/{table}", False),
        ("/{date}/x", False),
        ("/{date}/{run_id}", False),
    ],
)
def test_directories_that_lie_side_by_side(place: str, dated: bool) -> None:
    """Day or run must be in the last part only."""
    assert is_dated(place) == dated


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("T+(x-20200101", True),
        ("T+(x-2020010", False),
        ("TT(x-20200101", False),
        ("T+(x-20200101.bak", False),
        (".removed-T+(x-20200101", False),
    ],
)
def test_names_of_earlier_runs(name: str, ours: bool) -> None:
    """They match as a whole, and special characters of patterns are literal."""
    parent, pattern = beside("/x/{schema}/{table}-{date}", VALUES)
    assert parent == "/x/S.1"
    assert bool(pattern.fullmatch(name)) == ours


def test_directories_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories of any table on one day, the newest first; no file and no link."""
    names = ("A/20261122T01", "B/20261122T02", "A/20261121T01", "A/x", "20261122T01")
    for name in names:
        (tmp_path / "d" / name).mkdir(parents=True)
    (tmp_path / "d" / "A" / "20261122T03").write_text("")
    (tmp_path / "d" / "A" / "20261122T04").symlink_to(tmp_path)
    found = existing(
        f"{tmp_path}/d/{{table}}/{{date}}T{{schema}}/", "20261122", LocalDirectories().levels
    )
    assert found == (f"{tmp_path}/d/B/20261122T02", f"{tmp_path}/d/A/20261122T01")
    monkeypatch.chdir(tmp_path / "d")
    assert existing("{table}/{date}T01", "20261122", LocalDirectories().levels) == (
        "A/20261122T01",
    )
    assert existing("./{date}T01", "20261122", LocalDirectories().levels) == ("./20261122T01",)
    assert existing("/nowhere/{date}", "20261122", LocalDirectories().levels) == ()
