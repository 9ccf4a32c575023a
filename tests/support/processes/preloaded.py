"""Builds the small C libraries that real processes are started with, by LD_PRELOAD."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def build(source: Path, directory: Path) -> Path:
    """Compile a library into a directory; skip the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(f"there is no C compiler (cc) to build {source.name}")
    path = directory / source.with_suffix(".so").name
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(source), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"{compiler} does not build {source.name} here: {built.stderr[-300:]}")
    return path
