"""scipy in a directory of its own: every process that finds its numpy loads it, so none may by default.

It is fetched once, into `$XDG_CACHE_HOME/unloader-tests`, in the versions of `requirements.txt`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


class Missing(Exception):
    """It cannot be fetched; the message says why."""


def directory() -> Path:
    """Return the directory to put on the import path.

    Raises:
        Missing: pip cannot get it.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unloader-tests"
    found = cache / f"scipy-{version}-{digest}"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as started:
            made = Path(started) / "made"
            _install(made)
            try:
                made.rename(found)
            except OSError:
                # Another process of the tests was first.
                if not found.exists():
                    raise
    return found


def _install(target: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-input", "--root-user-action", "ignore", "--only-binary", ":all:"),
            *("--target", str(target), "-r", str(REQUIREMENTS)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Missing((done.stderr.strip().splitlines() or ["pip failed"])[-1])
