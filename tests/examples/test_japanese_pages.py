"""The commands of the Japanese pages, in the order of the page, on the demonstration's table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^    ((?:unloader|SOURCE=).*)$", re.MULTILINE)
ELSEWHERE = ("oracle://", "postgresql://", " /extract/")
"""Examples with a server or a directory that no machine of the tests has."""

pytest.importorskip("duckdb", reason="needs the extra duckdb")
pytest.importorskip("psutil", reason="needs the extra sweep")


def test_the_commands_of_the_guide_run_from_top_to_bottom(tmp_path: Path) -> None:
    """Each command ends with status 0, and the record format is the published one."""
    command = tmp_path / "unloader"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m unloader "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNLOADER_")}
    page = (ROOT / "docs" / "ja.md").read_text(encoding="utf-8")
    lines = [line for line in COMMAND.findall(page) if not any(e in line for e in ELSEWHERE)]
    assert len(lines) >= 15
    done = subprocess.run(
        ["sh", "-e", "-x", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}{os.pathsep}{kept['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first = sorted((tmp_path / "loader").glob("*.csv"))[0].read_bytes().split(b"\r\n")[0]
    assert int(first[:10]) == len(first) - 10 + len(b"\r\n")
    assert re.match(rb"\d{10}~~[^~]+~~,~~\d{14}~~,", first)


def test_the_examples_of_the_first_page_are_those_of_the_english_one() -> None:
    """Every example command exists in README.md or docs/, so that they change together."""
    english = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        if path.name != "ja.md"
    )
    for line in COMMAND.findall((ROOT / "README.ja.md").read_text(encoding="utf-8")):
        options = re.findall(r"--[a-z-]+", line)
        assert line.split("  #")[0].split()[1] in english
        assert all(option in english for option in options), line
