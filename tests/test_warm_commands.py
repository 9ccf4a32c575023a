"""A call made as a fork of a warm program ends and writes as one made by a new Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from processes import command, warm

CALLS = [
    ("--version",),
    ("formats",),
    ("run",),
    ("run", "--no-such-option"),
    ("run", "duckdb:///none.db", "--table", "t", "--to", "out"),
    ("describe", "no-such-job.toml"),
]


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_warm_call_is_as_any_other(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit status and both streams are the same, also with variables and a directory of its own."""
    env = {**os.environ, "UNLOADER_PARALLELISM": "nonsense"}
    assert warm.suits(env)
    found = warm.run(arguments, env=env, cwd=tmp_path)
    done = subprocess.run(
        [*command.UNLOADER, *arguments], env={**env, "PYTHONPATH": str(warm.ROOT)}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (done.returncode, done.stdout)
    assert found.stderr.replace("python -m unloader", "unloader") == done.stderr.replace(
        "python -m unloader", "unloader"
    )


@pytest.mark.parametrize("name", ["LC_ALL", "LD_PRELOAD", "PYTHONPATH", "UNLOADER_NATIVE_LIBRARY"])
def test_what_python_reads_at_its_start_makes_no_warm_call(name: str) -> None:
    """A variable that a running Python has read already makes a new process."""
    assert not warm.suits({**os.environ, name: "/nonsense"})
