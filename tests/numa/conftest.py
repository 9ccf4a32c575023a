"""Makes this folder's modules importable: here, and in the pool's children, which get our path."""

import gc
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

from numa.pool import Pool
from numa.processes.fork_server import ForkServer

if os.environ.get("NUMA_TESTS_FORK") == "server":
    # The same with forks of a server: see test_fork_server.py.
    assert Pool.__init__.__kwdefaults__ is not None
    Pool.__init__.__kwdefaults__["server"] = ForkServer("importlib:import_module", "colorsys")
elif os.environ.get("NUMA_TESTS_FORK"):
    # The tests of the pool once more, with forks of this process: see test_forked.py.
    assert Pool.start.__kwdefaults__ is not None
    Pool.start.__kwdefaults__["may_fork"] = True


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
