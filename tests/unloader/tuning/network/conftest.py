"""The processes of `unloader network`, which are ended after each test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `unloader network` with some arguments; all are ended after the test.

    On a busy machine the other side needs more than the usual ten seconds to start.
    """
    processes = []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNLOADER_")}

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            (sys.executable, "-m", "unloader", "network", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "PYTHONPATH": str(ROOT), "UNLOADER_WAIT": "60"},
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()
