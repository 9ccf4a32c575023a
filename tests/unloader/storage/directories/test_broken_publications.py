"""A publication that is interrupted at any moment: the view of readers, and the recovery."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking

ROOT = Path(__file__).parents[4]
PROGRAM = ROOT / "tests" / "support" / "publications" / "broken_publications.py"
IN_MEMORY = Path("/dev/shm")
BROKEN = "broken publications"
"""The kind of the long tests."""

ONE = {
    "old": [["_manifest.json=old", "a.csv=old", "b.csv=old", "c.csv=old", "d.csv=old"]],
    "new": [["_manifest.json=new", "a.csv=new", "b.csv=new", "e.csv=new", "f.csv=new"]],
    "nothing": [[]],
}
OF_MANY = {"new": [["_manifest.json=new", "a.csv=new"]], "nothing": [[]]}
TWO = {
    "old": [["_manifest.json=old", "a.csv=old", "c.csv=old"], ["b.csv=old", "d.csv=old"]],
    "new": [["_manifest.json=new", "a.csv=new", "f.csv=new"], ["b.csv=new", "e.csv=new"]],
    "nothing": [[], []],
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that ends processes."""
    return breaking.killing_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: hundreds of syncs take their time on a disk."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="unloader-test-") as path:
        yield Path(path)


def broken(library: Path, where: Path, *settings: str) -> list[dict[str, Any]]:
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(where), *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[-1]["status"] == (77 if "fail" in settings else 0)
    return found


def check_aftermath(found: list[dict[str, Any]], runs: dict[str, Any], settings: set[str]) -> None:
    before = runs["old"] if "overwrite" in settings else runs["nothing"]
    begun = False
    for each in found:
        assert each["completed"] in (before, runs["new"]), each
        # Once begun it is completed at every later moment.
        begun = begun or each["completed"] == runs["new"]
        assert (each["completed"] == runs["new"]) is begun, each
        # A published run is cleared up too, wherever the end came.
        assert not begun or not each["hidden"], each
        if each["after"] != each["completed"]:
            assert "was interrupted while it was published" in each["told"][0], each
        assert each["last"] == [["_manifest.json=last", "z.csv=last"], [], []][: len(before)]
        places = ["x", "y"][: len(before)]
        left = [*places, *(f"{place}/out" for place in places)]
        left += ["x/out/_manifest.json", "x/out/z.csv"]
        if "foreign" in settings:
            left += [f"{place}/out/mine.txt" for place in places]
        assert each["left"] == sorted(left), each
    assert begun


@pytest.mark.parametrize("settings", [("overwrite", "folders"), *also(BROKEN, ((),))])
def test_a_reader_sees_all_of_one_run(
    library: Path, quick: Path, settings: tuple[str, ...]
) -> None:
    """Killed before any system call: all of the old run, all of the new one, or nothing."""
    found = broken(library, quick, *settings)
    before = ONE["old"] if settings else ONE["nothing"]
    for each in found:
        assert each["after"] in (before, ONE["new"]), each
        assert each["status"] in (-signal.SIGKILL, 0)
    check_aftermath(found, ONE, set(settings))


@pytest.mark.long(OTHER_ROUTES)
def test_a_reader_of_each_directory_sees_all_of_one_run(library: Path, quick: Path) -> None:
    """Of several directories each changes in one step, and no manifest stands meanwhile."""
    found = broken(library, quick, "two", "overwrite")
    for each in found:
        seen = [[name for name in names if name[0] != "_"] for names in each["after"]]
        for number, names in enumerate(seen):
            runs = [TWO[run][number] for run in ("old", "new")]
            assert names in [[name for name in run if name[0] != "_"] for run in runs], each
        if any("_manifest.json" in name for name in each["after"][0]):
            assert each["after"] in (TWO["old"], TWO["new"]), each
    check_aftermath(found, TWO, {"overwrite"})


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("run", "why"),
    [
        (("overwrite", "two"), "foreign"),
        *also(
            BROKEN,
            (("overwrite",), "noexchange"),
            (("overwrite", "folders"), "foreign"),
            ((), "foreign"),
            ((), "noexchange"),
            (("overwrite",), "foreign"),
            (("overwrite", "two"), "noexchange"),
        ),
    ],
)
def test_files_that_go_in_one_by_one(
    library: Path, quick: Path, why: str, run: tuple[str, ...]
) -> None:
    """Where a directory cannot be exchanged, old and new never lie side by side.

    A manifest stands only beside all of its files, and anyone who comes next completes it.
    """
    found = broken(library, quick, *run, why)
    runs = TWO if "two" in run else ONE
    for each in found:
        if any("_manifest.json" in name for name in each["after"][0]):
            assert each["after"] in (runs["old"], runs["new"]), each
        for names in each["after"]:
            assert len({name.partition("=")[2] for name in names}) <= 1, each
    check_aftermath(found, runs, {*run, why})


def test_the_file_of_one_of_many_directories_comes_before_its_manifest(
    library: Path, quick: Path
) -> None:
    """Killed before any system call: nothing, the whole file, or both; the next one completes it."""
    found = broken(library, quick, "many")
    for each in found:
        assert each["after"] in ([[]], [["a.csv=new"]], OF_MANY["new"]), each
    check_aftermath(found, OF_MANY, set())


@pytest.mark.long(OTHER_ROUTES)
def test_a_call_that_fails_leaves_nothing_of_one_of_many(library: Path, quick: Path) -> None:
    """A refused system call is reported, and nothing has a final name; or it costs nothing."""
    for each in broken(library, quick, "many", "fail"):
        assert each["after"] == ([[]] if each["status"] == 6 else OF_MANY["new"]), each
        assert each["completed"] == each["after"], each


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    "settings",
    [
        ("overwrite", "two"),
        *also(
            BROKEN,
            (("overwrite",),),
            (("overwrite", "folders", "foreign"),),
            (("overwrite", "two", "foreign"),),
        ),
    ],
)
def test_a_call_that_fails_takes_all_back(
    library: Path, quick: Path, settings: tuple[str, ...]
) -> None:
    """A refused system call is reported, and the old run stands as before; or it costs nothing."""
    found = broken(library, quick, *settings, "fail")
    runs = TWO if "two" in settings else ONE
    statuses = set()
    for each in found:
        statuses.add(each["status"])
        assert each["after"] == (runs["old"] if each["status"] == 6 else runs["new"]), each
        assert each["completed"] == each["after"], each
    assert statuses == {0, 6, 77}
