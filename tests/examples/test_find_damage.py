"""The script that damages finished runs: all that it does is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from long_tests import OTHER_ROUTES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long(OTHER_ROUTES)
def test_all_damage_is_found_and_named(tmp_path: Path) -> None:
    """At a reduced number: every flipped bit and every edit, by the name of its file."""
    flips = amount("UNLOADER_TEST_FLIPS", 60, 400)
    edits = amount("UNLOADER_TEST_EDITS", 80, 120)
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "find_damage.py"), "--json",
         "--flips", str(flips), "--edits", str(edits)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["found_and_named"] == report["total"] == flips + edits
    assert report["tried"]["flip"] == flips
    assert len(report["tried"]) == 9
    assert not list(tmp_path.iterdir())
