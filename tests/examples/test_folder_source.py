"""The commented source: found by its entry point, described, planned, run and verified."""

from __future__ import annotations

import configparser
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES

from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.registry import source_of
from unloader.sources.testing import check_source

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "folder_source"

JANUARY = [("1", "a,b"), ("2", None), ("3", "")]
FEBRUARY = [("4", 'say "hi"'), ("5", "two\nlines"), ("6", "é")]
ROWS = [*JANUARY, *FEBRUARY]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the example into a folder of packages, by the entry point in its setup.cfg."""
    site = tmp_path / "site"
    info = site / "unloader_folder-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(EXAMPLE / "folder_source.py", site)
    setup = configparser.ConfigParser()
    setup.read(EXAMPLE / "setup.cfg")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unloader-folder\nVersion: 1.0\n")
    points = setup["options.entry_points"]["unloader.sources"]
    (info / "entry_points.txt").write_text(f"[unloader.sources]\n{points.strip()}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(ROOT))))
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a table of two files, and one without rows."""
    folder = tmp_path / "data"
    for name, rows in (("sales/01.csv", JANUARY), ("sales/02.csv", FEBRUARY), ("none/1.csv", [])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["id,text", *(f"{key},{_field(text)}" for key, text in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _field(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'


def unloader(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "unloader", *arguments], capture_output=True, text=True, check=False
    )


def test_it_keeps_the_contract(folder: Path) -> None:
    """The example passes the check that every source passes."""
    spec = SourceSpec(kind="folder", location=f"folder://{folder}")
    source = source_of("folder")
    check_source(source, spec, parse_table("sales"), ROWS, empty=parse_table("none"))


def test_the_command_line_finds_it(folder: Path) -> None:
    """`sources` lists it by its entry point; `describe` and `plan` show its tables."""
    listed = json.loads(unloader("sources", "--json").stdout)["sources"]
    assert {"folder"} <= {each["scheme"] for each in listed}
    url = f"folder://{folder}"
    described = unloader("describe", url, "--table", "SALES")
    assert described.returncode == 0, described.stderr
    assert "02.csv" in described.stdout
    planned = unloader("plan", url, "--table", "sales", "--to", "unused", "--json")
    assert planned.returncode == 0, planned.stderr
    assert f"read {folder}/sales/01.csv" in planned.stdout


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_it_is_unloaded_and_verified(folder: Path, tmp_path: Path, form: str) -> None:
    """All rows are in the files, and `verify` counts them in the source once more."""
    url, out = f"folder://{folder}", tmp_path / "out"
    command = ("run", url, "--table", "sales", "--to", str(out), "--parallelism", "2", "--numa")
    done = unloader(*command, "off", "--format", form)
    assert done.returncode == 0, done.stderr
    assert sorted(_rows(out, form)) == sorted((key, text or "") for key, text in ROWS)
    verified = unloader("verify", str(out), url)
    assert verified.returncode == 0, verified.stderr
    assert "at the run's snapshot" in verified.stdout + verified.stderr
    (folder / "sales" / "03.csv").write_text("id,text\n7,x\n")
    assert unloader("verify", str(out), url).returncode == 8


def test_partitions_are_files(folder: Path, tmp_path: Path) -> None:
    """`--partition` chooses files by their names."""
    out = tmp_path / "out"
    done = unloader(
        "run", f"folder://{folder}", "--table", "sales", "--partition", "02*", "--to", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert sorted(_rows(out, "csv")) == sorted(FEBRUARY)


@pytest.mark.parametrize("option", ["--where", "--query"])
def test_what_it_cannot_do_is_refused(folder: Path, tmp_path: Path, option: str) -> None:
    """A source without SQL writes no parser: conditions and queries are refused for it."""
    subject = () if option == "--query" else ("--table", "sales")
    url, out = f"folder://{folder}", str(tmp_path / "out")
    done = unloader("run", url, *subject, option, "id > 1", "--to", out)
    assert done.returncode == 2
    assert f"{option} does not apply to this source" in done.stderr


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """No folder is not the same as a folder without tables."""
    done = unloader("describe", f"folder://{tmp_path}/nowhere")
    assert done.returncode == 3
    assert f"the folder {tmp_path}/nowhere does not exist" in done.stderr


def test_a_path_is_decoded(tmp_path: Path) -> None:
    """A character that ends a path in a URL is written as %XX."""
    (tmp_path / "c#1" / "sales").mkdir(parents=True)
    (tmp_path / "c#1" / "sales" / "1.csv").write_text("id\n1\n")
    done = unloader("describe", f"folder://{tmp_path}/c%231")
    assert done.returncode == 0, done.stderr
    assert "sales" in done.stdout


def test_a_broken_package_hides_no_other_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that cannot be made is named with its package; the others are there."""
    metadata = tmp_path / "bad-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[unloader.sources]\nfaulty = json:__name__\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    listed = unloader("sources")
    assert listed.returncode == 0, listed.stderr
    assert "the source 'faulty' of bad (json:__name__) cannot be loaded" in listed.stdout
    assert "duckdb" in listed.stdout
    assert unloader("describe", "faulty:x").returncode == 3


def _rows(out: Path, form: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in sorted(out.glob(f"*.{form}")):
        if form == "parquet":
            table = pq.read_table(path)
            found += [(row["id"], row["text"] or "") for row in table.to_pylist()]
        else:
            with path.open(newline="", encoding="utf-8") as lines:
                found += [(record[0], record[1]) for record in list(csv.reader(lines))[1:]]
    return found
