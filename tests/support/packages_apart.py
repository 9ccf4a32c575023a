"""Packages in their own directory, for processes that are to import them and no others.

They are fetched once, into `$XDG_CACHE_HOME/unloader-tests`, in the versions of a file of
requirements.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path


class Missing(Exception):
    """They cannot be fetched; the message says why."""


def directory(name: str, requirements: Path) -> Path:
    """Return the directory to put on the import path.

    Args:
        name: The name of its content.
        requirements: The file that names the packages.

    Raises:
        Missing: pip cannot get them.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unloader-tests"
    found = cache / f"{name}-{version}-{digest}"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as started:
            made = Path(started) / "made"
            _install(made, requirements)
            try:
                made.rename(found)
            except OSError:
                # Another process of the tests was first.
                if not found.exists():
                    raise
    return found


def _install(target: Path, requirements: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-input", "--root-user-action", "ignore", "--only-binary", ":all:"),
            *("--target", str(target), "-r", str(requirements)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Missing((done.stderr.strip().splitlines() or ["pip failed"])[-1])
