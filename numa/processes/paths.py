"""Where a process that is started here finds its modules."""

import sys
from pathlib import Path


def import_path() -> list[str]:
    """Return our own import path, and the folder of this package wherever that came from."""
    home = str(Path(__file__).resolve().parents[2])
    return [*sys.path, *([] if home in sys.path else [home])]
