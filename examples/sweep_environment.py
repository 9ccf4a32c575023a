"""The variables of a sweep that an example starts; for the examples beside this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """Return the variables of a sweep, which needs scipy; that of the tests where there is no
    other."""
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        import scipy  # noqa: F401
    except ImportError:
        sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
        from sweeps import scipy_packages

        paths.insert(0, str(scipy_packages.directory()))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
