"""One example script in a process, with directories that are watched for leftovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = "{directory}"
"""Replaced in arguments by a directory that must be empty in the end."""


def report(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script with `--json`, and return its answer; nothing of it may be left on the disk."""
    # Sockets have short paths only, and the PostgreSQL server has its own user.
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        directory, temporary = Path(place, "d"), Path(place, "t")
        for path in (Path(place), directory, temporary):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / script), "--json",
             *(each.replace(HERE, str(directory)) for each in arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
            capture_output=True, text=True, check=False, timeout=3600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert not list(directory.iterdir())
        assert not list(temporary.glob("unloader-*"))
    found: dict[str, Any] = json.loads(done.stdout)
    return found
