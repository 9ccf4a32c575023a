"""Makes this folder's modules importable: here, and in the pool's children, which get our path."""

import sys
from pathlib import Path

import pytest

# Last, so that nothing here can hide a real package.
sys.path.append(str(Path(__file__).parent))

from sysfs_tree import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty machine to be filled with nodes."""
    return Machine(tmp_path)
