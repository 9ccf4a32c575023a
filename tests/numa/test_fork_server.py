"""Workers that are forks of a server: what they have from it, and what becomes of them with it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from long_tests import OTHER_ROUTES
from test_pool import gather, seats
from waiting import PATIENCE_SECONDS

from numa.model import Finished, Lost
from numa.pool import Pool, can_fork
from numa.processes.fork_server import ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux only")

HERE = Path(__file__).parent
ENTRY = "pool_tasks:do"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """A server that has loaded a module which no test needs."""
    found = ForkServer("importlib:import_module", "colorsys")
    yield found
    found.close()


def state(pool: Pool) -> dict[str, object]:
    """Return what the process of worker 0 has from the one that started it."""
    pool.assign(0, ("state", None))
    (end,) = (each for each in gather(pool, 1) if isinstance(each, Finished))
    assert isinstance(end.result, dict)
    return end.result


def test_a_program_with_threads_has_forks(server: ForkServer) -> None:
    """They have what the server has loaded, and of this process one descriptor."""
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    try:
        assert not can_fork()
        with Pool(seats(1), ENTRY, server=server) as pool:
            pool.start(0)
            found = state(pool)
            pid = pool.pids()[0]
            assert os.sched_getaffinity(pid) == set(seats(1)[0].cpus)
    finally:
        over.set()
    assert found["loaded"]
    assert "worker-0" in found["cmdline"]  # type: ignore[operator]
    assert (found["session"], found["handlers"]) == (True, 0)
    (pipe,) = found["leading somewhere"]  # type: ignore[misc]
    assert pipe.startswith("socket:")
    assert not psutil.pid_exists(pid)


def test_one_that_is_killed_is_told_and_replaced(server: ForkServer) -> None:
    """With the signal that ended it; the next one is a fork, too."""
    with Pool(seats(1), ENTRY, server=server) as pool:
        pool.start(0)
        state(pool)
        os.kill(pool.pids()[0], signal.SIGUSR1)
        (lost,) = gather(pool, 1, (Lost,))
        assert isinstance(lost, Lost)
        assert lost.exit_code == -signal.SIGUSR1
        assert "SIGUSR1" in lost.detail
        pool.start(0)
        assert state(pool)["loaded"]


def test_the_end_of_the_server_ends_its_forks(server: ForkServer) -> None:
    """Also while they work. The next worker has another server."""
    with Pool(seats(1), ENTRY, server=server) as pool:
        pool.start(0)
        state(pool)
        first = psutil.Process(pool.pids()[0])
        first.parent().kill()
        assert psutil.wait_procs([first], timeout=PATIENCE_SECONDS)[1] == []
        gather(pool, 1, (Lost,))
        pool.start(0)
        assert state(pool)["loaded"]


def test_one_that_cannot_be_had_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is an interpreter of its own where the server cannot prepare itself."""
    server = ForkServer("importlib:import_module", "there_is_no_such_module")
    with Pool(seats(1), ENTRY, server=server) as pool:
        pool.start(0)
        found = state(pool)
    server.close()
    assert not found["loaded"]


@pytest.mark.long(OTHER_ROUTES)
def test_the_pool_keeps_its_promises_with_a_server() -> None:
    """The tests of the pool pass with forks of a server."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*command, str(HERE / "test_pool.py")],
        cwd=HERE.parents[1],
        env={**os.environ, "NUMA_TESTS_FORK": "server", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
