"""The script that kills runs into an object store, with few kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "store_kills.py"
KILLS = amount("UNLOADER_TEST_STORE_KILLS", 5, 5)


@pytest.mark.long("runs into object stores")
def test_what_has_its_final_name_is_whole_and_no_upload_stays() -> None:
    """Commands are killed at any moment, and so are those that put right what was left."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--kills", str(KILLS), "--seed", "3", "--json"],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["broken"], report["kills"]) == ("", KILLS)
