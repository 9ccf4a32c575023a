"""A plain run of the tests reports the tests that it leaves out; options run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES, also

FOLDER = Path(__file__).parent / "vm"
FILE = FOLDER / "test_fake_nodes.py"


@pytest.mark.parametrize(
    ("arguments", "everything", "is_run"),
    [
        ((str(FOLDER),), "", False),
        ((str(FOLDER),), "1", True),
        *also(
            OTHER_ROUTES,
            ((str(FOLDER), "-n", "1"), "", False),
            ((str(FOLDER), "-m", "long"), "", True),
            ((str(FILE),), "", True),
            ((f"{FILE}::test_memory_is_local",), "", True),
        ),
    ],
)
def test_long_tests_are_left_out_aloud(
    arguments: tuple[str, ...], everything: str, is_run: bool
) -> None:
    """A folder of long tests is left out with its number and kind, or run as it was asked for."""
    env = {**os.environ, "UNLOADER_TEST_ALL": everything}
    # Skipped immediately: only whether they are collected counts here.
    listed = ("--setup-plan",) if "-n" in arguments else ("--collect-only",)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *listed, *arguments],
        cwd=FOLDER.parents[1], env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = re.search(r"left out: (\d+) long tests \(\1 of virtual machines\)", done.stdout)
    assert (said is None) is is_run, done.stdout + done.stderr
    assert done.returncode == (0 if is_run else 5), done.stdout + done.stderr
