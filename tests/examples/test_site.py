"""mkdocs makes a site of docs/ without a warning, with a search, and without links that lead out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="needs the extra docs")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """A page that is not in the menu, a missing page and a missing heading are warnings."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {each.stem for each in (ROOT / "docs").glob("*.md")}
    assert {each.name for each in tmp_path.iterdir()} >= pages | {"index.html"}
    searched = json.loads((tmp_path / "search" / "search_index.json").read_text("utf-8"))
    assert any("--keep-snapshot" in each["text"] for each in searched["docs"])
    for page in tmp_path.glob("**/*.html"):
        for link in re.findall(r'href="([^"#:]+)[#"]', page.read_text("utf-8")):
            target = (tmp_path / link.lstrip("/")) if link[0] == "/" else page.parent / link
            assert target.exists(), (page, link)
