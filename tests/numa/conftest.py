"""Makes this folder's modules importable: here, and in the pool's children, which get our path."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Last, so that nothing here can hide a real package.
sys.path.append(str(Path(__file__).parent))

from sysfs_tree import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty machine to be filled with nodes."""
    return Machine(tmp_path)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """After each test there are no more processes, threads and descriptors than before."""

    def there() -> tuple[int, int, int]:
        us = psutil.Process()
        return len(us.children()), threading.active_count(), us.num_fds()

    before = there()
    yield
    assert there() == before
