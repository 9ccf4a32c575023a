"""Many runs are looked at by several threads."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from processes import command

COPIES = 16

LISTING = """
import sys
sys.setswitchinterval(1e-6)
from unloader.status.reading import statuses_below
print(*(each.state for each in statuses_below(sys.argv[1], 1)))
"""
"""Threads that change often read the records at the same moment."""


def test_many_interrupted_runs_are_listed(tmp_path: Path) -> None:
    """Threads that read the first records together do not crash the process."""
    source, listed = tmp_path / "s.sqlite", tmp_path / "listed"
    with sqlite3.connect(source) as connection:
        for name, value in (("bad", "text"), ("good", 1)):
            connection.execute(f"CREATE TABLE {name} (i INTEGER)")
            connection.execute(f"INSERT INTO {name} VALUES (?)", (value,))
    command.run(
        *("run", f"sqlite://{source}", "--table", "*", "--to", f"{tmp_path}/out/{{table}}"),
        *("--on-table-failure", "continue", "--quiet"),
        status=7,
    )
    for number in range(COPIES):
        shutil.copytree(tmp_path / "out" / "_run", listed / str(number) / "_run")
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", LISTING, str(listed)],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
