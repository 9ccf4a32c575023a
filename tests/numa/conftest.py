"""Makes this folder's modules importable: here, and in the pool's children, which get our path."""

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Last, so that nothing here can hide a real package.
sys.path.append(str(Path(__file__).parent))

from sysfs_tree import Machine

if os.environ.get("NUMA_TESTS_FORK") == "no":
    # The tests of the pool once more, with new interpreters: see test_fork_server.py.
    multiprocessing.set_start_method("spawn")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty machine to be filled with nodes."""
    return Machine(tmp_path)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """After each test there are no more processes, threads and descriptors than before."""

    def there() -> dict[str, int]:
        us = psutil.Process()
        return {
            "children": len(us.children()),
            "threads": threading.active_count(),
            "descriptors": us.num_fds(),
        }

    # What earlier tests have left to the collector may go at any time, and is not ours.
    gc.collect()
    before = there()
    yield
    assert {name: count for name, count in there().items() if count > before[name]} == {}
