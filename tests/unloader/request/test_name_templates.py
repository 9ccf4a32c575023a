"""Names of files and directories: what a template becomes, and which templates are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.cli.display import render
from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.model import OutputOptions
from unloader.request.name_templates import (
    DEFAULT_TABLE_TEMPLATE,
    beside,
    check_distinct,
    check_template,
    directory_name,
    existing,
    file_name,
    is_dated,
)
from unloader.storage.directories.directory_storage import LocalDirectories
from writers.model import TextFormat

DEFAULT_TEMPLATE = OutputOptions(destination="/x", format=TextFormat()).file_name
FILE = {
    "schema": "sales",
    "table": "orders",
    "partition": "p2024",
    "unit": "007",
    "part": "",
    "ext": "csv.gz",
    "date": "20240131",
}
RUN = {"schema": "S.1", "table": "T+(x", "date": "20261122", "run_id": "20261122T013000Z-0a1b2c"}


@pytest.mark.parametrize(
    ("template", "part", "name"),
    [
        (DEFAULT_TEMPLATE, None, "orders.007.csv.gz"),
        (DEFAULT_TEMPLATE, 2, "orders.007.002.csv.gz"),
        (DEFAULT_TEMPLATE, 1234, "orders.007.1234.csv.gz"),
        (DEFAULT_TABLE_TEMPLATE, None, "orders.csv.gz"),
        ("{schema}-{partition}-{date}-{unit}.{ext}", None, "sales-p2024-20240131-007.csv.gz"),
        ("{unit}{unit}", None, "007007"),
        ("plain", None, "plain"),
    ],
)
def test_fields_of_a_file_name_are_filled_in(template: str, part: int | None, name: str) -> None:
    """Each field is replaced by its value; parts have a dot and at least three digits."""
    assert file_name(template, {**FILE, "part": "1" if part else ""}, (part or 1) - 1) == name


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/x/{table}/{date}", "/x/T+(x/20261122"),
        ("{schema}.{table}", "S.1.T+(x"),
        ("./-/{run_id}/", "./-/20261122T013000Z-0a1b2c/"),
        ("/.hidden/a-{date}", "/.hidden/a-20261122"),
    ],
)
def test_fields_of_a_directory_are_filled_in(place: str, name: str) -> None:
    """Fields can be anywhere, several in a part; the user's other text is unchanged."""
    assert directory_name(place, RUN) == name


@pytest.mark.parametrize(
    ("table", "written"),
    [
        ("a/b\\c", "a%2Fb%5Cc"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("..", "%2E."),
        ("_manifest.json", "%5Fmanifest.json"),
        ("a\nb\rc\0", "a%0Ab%0Dc%00"),
        ("Größe 𝄞", "Größe 𝄞"),
        ("{unit}", "{unit}"),
        ("\x1b]0;title\x07", "%1B]0;title%07"),
        ("\x9b2J", "%C2%9B2J"),
        ("invoice\u202efdp.exe", "invoice%E2%80%AEfdp.exe"),
        ("two\u2028lines", "two%E2%80%A8lines"),
        ("right\u200fto\u061cleft", "right%E2%80%8Fto%D8%9Cleft"),
        ("-rf", "%2Drf"),
        ("~root", "~root"),
    ],
)
def test_unsafe_characters_of_a_table_are_written_in_hex(table: str, written: str) -> None:
    """No value leads elsewhere, is hidden, is an option, a name of ours, or a terminal's command.

    Spark and Hive read no file whose name begins with a dot or an underscore.
    """
    assert file_name("{table}", {**FILE, "table": table}) == written
    assert file_name("x{table}.csv", {**FILE, "table": f"a{table}"}).startswith("xa")
    values = {**RUN, "table": table}
    assert directory_name("/x/{table}", values) == f"/x/{written}"
    assert beside("/x/{table}{date}", values)[1].fullmatch(f"{written}20261122")


def test_directories_encode_what_files_encode() -> None:
    """Every character of a table's name becomes the same in both, and is safe on a terminal."""
    for number in (*range(0x800), *range(0x2000, 0x2100), 0xFEFF, 0x1F600):
        for table in (f"a{chr(number)}b", f"{chr(number)}b"):
            name = directory_name("/x/{table}", {**RUN, "table": table}).removeprefix("/x/")
            assert file_name("{table}", {**FILE, "table": table}) == name
            assert "/" not in name
            assert render.one_line(name) == name


def test_long_and_empty_names_are_refused() -> None:
    """File systems take 255 bytes; nothing is cut off. An empty part is the directory above."""
    assert len(file_name("{table}", {**FILE, "table": "x" * 255})) == 255
    for table in ("x" * 256, "ü" * 128, "日" * 100):
        with pytest.raises(OutputFailed, match=r"has \d+ bytes, and file systems take 255"):
            file_name("{table}", {**FILE, "table": table})
        with pytest.raises(OutputFailed, match=r"take 255.*--to"):
            directory_name("/x/{table}/y", {**RUN, "table": table})
    with pytest.raises(ConfigError, match="is empty"):
        directory_name("/x/{schema}/y", {**RUN, "schema": ""})


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{table}.{nope}{unit}", "{nope}"),
        ("{table}.{}", "unknown field"),
        ("{table}.{ext}", "add {unit}"),
        ("{unit", "not closed"),
        ("dir/{unit}", "plain file name"),
        ("/tmp/{unit}", "plain file name"),
        ("../{unit}", "plain file name"),
        (".{unit}", "plain file name"),
        ("_{unit}", "plain file name"),
        ("-{unit}", "plain file name"),
        ("a\x1b[2J{unit}", "plain file name"),
        ("\u202e{unit}", "plain file name"),
    ],
)
def test_a_template_that_cannot_serve_is_refused(template: str, what: str) -> None:
    """Unknown fields, one name for several files, paths, hidden and unsafe names are errors."""
    with pytest.raises(UsageError) as caught:
        check_template(template, per_unit=True, parts=False)
    assert what in str(caught.value)
    assert "--file-name" in str(caught.value)


def test_a_template_needs_the_fields_in_which_files_differ() -> None:
    """{part} is needed where units have several files, {unit} where there are several units."""
    check_template(DEFAULT_TEMPLATE, per_unit=True, parts=True)
    check_template("{table}.{ext}", per_unit=False, parts=False)
    check_template("{unit}", per_unit=True, parts=False)
    with pytest.raises(UsageError, match=r"\{part\}"):
        check_template("{unit}", per_unit=True, parts=True)


def test_names_must_differ_by_more_than_case() -> None:
    """Two names that a file system without case takes for one are refused."""
    check_distinct(["a.csv", "b.csv"])
    for names in (["a.csv", "a.csv"], ["a.csv", "A.csv"], ["straße", "STRASSE"]):
        with pytest.raises(ConfigError, match="two files would be named"):
            check_distinct(names)


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
def test_runs_are_side_by_side_if_the_last_part_differs(place: str, dated: bool) -> None:
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
    parent, pattern = beside("/x/{schema}/{table}-{date}", RUN)
    assert parent == "/x/S.1"
    assert bool(pattern.fullmatch(name)) == ours


def test_existing_directories_of_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories of any table on one day, the newest first; no file and no link."""
    names = ("A/20261122T01", "B/20261122T02", "A/20261121T01", "A/x", "20261122T01")
    for name in names:
        (tmp_path / "d" / name).mkdir(parents=True)
    (tmp_path / "d" / "A" / "20261122T03").write_text("")
    (tmp_path / "d" / "A" / "20261122T04").symlink_to(tmp_path)
    levels = LocalDirectories().levels
    found = existing(f"{tmp_path}/d/{{table}}/{{date}}T{{schema}}/", "20261122", levels)
    assert found == (f"{tmp_path}/d/B/20261122T02", f"{tmp_path}/d/A/20261122T01")
    monkeypatch.chdir(tmp_path / "d")
    assert existing("{table}/{date}T01", "20261122", levels) == ("A/20261122T01",)
    assert existing("./{date}T01", "20261122", levels) == ("./20261122T01",)
    assert existing("/nowhere/{date}", "20261122", levels) == ()
