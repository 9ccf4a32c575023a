"""Workers that are forks of a server: their inherited state, and their end with the server."""

import logging
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
from numa.pool import Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux only")

HERE = Path(__file__).parent
ENTRY = "pool_tasks:do"


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool whose server has loaded a module that no test needs."""
    with Pool(seats(2), ENTRY, warm_up=("load", "colorsys")) as found:
        yield found


def state(pool: Pool, worker: int = 0) -> dict[str, object]:
    """Return the state that a worker's process has inherited."""
    pool.assign(worker, ("state", None))
    (end,) = (each for each in gather(pool, 1) if isinstance(each, Finished))
    assert isinstance(end.result, dict)
    return end.result


def test_a_program_with_threads_and_handlers_has_forks(pool: Pool) -> None:
    """They have the server's modules, and nothing of this process except one descriptor."""
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for worker in (0, 1):
            pool.start(worker)
            found = state(pool, worker)
            pid = pool.pids()[worker]
            assert os.sched_getaffinity(pid) == set(seats(2)[worker].cpus)
            assert found["loaded"]
            title = found["cmdline"]
            assert isinstance(title, list)
            assert title[:3] == ["python", "numa.processes.member", f"worker-{worker}"]
            assert (found["session"], found["handlers"]) == (True, 0)
            assert (found["blocked"], found["handled"]) == ([], [])
            (pipe,) = found["leading somewhere"]  # type: ignore[misc]
            assert pipe.startswith("socket:")
        server = psutil.Process(pid).parent()
        assert server.ppid() == os.getpid()
    finally:
        over.set()
        signal.signal(signal.SIGUSR1, before)
    pool.close()
    assert not server.is_running()
    assert not psutil.pid_exists(pid)


def test_a_server_has_one_thread_and_no_warning(tmp_path: Path) -> None:
    """Python warns of a fork with threads from 3.12 on; the server never does one."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*command, str(HERE / "test_fork_server.py"), "-k", "threads_and_handlers"],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_end_of_the_server_ends_its_forks(pool: Pool) -> None:
    """Also while they work. The next worker has another server."""
    pool.start(0)
    state(pool)
    first = psutil.Process(pool.pids()[0])
    first.parent().kill()
    assert psutil.wait_procs([first], timeout=PATIENCE_SECONDS)[1] == []
    (lost,) = gather(pool, 1, (Lost,))
    assert isinstance(lost, Lost)
    assert lost.exit_code == -signal.SIGKILL
    pool.start(0)
    assert state(pool)["loaded"]


@pytest.mark.parametrize(
    ("warm_up", "reason"),
    [
        (("crash_as_server", None), "ended while it loaded"),
        (("start_a_thread", None), "has 2 threads"),
    ],
)
def test_a_worker_without_a_server(
    warm_up: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a new interpreter where the server dies or has threads; one line of the log says why."""
    caplog.set_level(logging.INFO, "numa")
    with Pool(seats(2), ENTRY, warm_up=warm_up) as pool:
        for worker in (0, 1):
            pool.start(worker)
            found = state(pool, worker)
            assert "-c" in found["cmdline"]  # type: ignore[operator]
            assert f"worker-{worker}" in found["cmdline"]  # type: ignore[operator]
            parent = psutil.Process(pool.pids()[worker]).parent()
            assert parent.pid == os.getpid()
    (line,) = (each.getMessage() for each in caplog.records)
    assert "new interpreter" in line
    assert reason in line


@pytest.mark.long(OTHER_ROUTES)
def test_the_pool_keeps_its_promises_without_a_server() -> None:
    """The tests of the pool pass with new interpreters."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    files = (HERE / "test_pool.py", HERE / "test_pool_deaths.py")
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=HERE.parents[1],
        env={**os.environ, "NUMA_TESTS_FORK": "no", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
