"""Workers that are forks of the process that starts them: what they have from it, and what not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux only")

HERE = Path(__file__).parent

PROGRAM = """
import atexit, colorsys, json, logging, os, signal, sys, threading
sys.path.append({here!r})
from numa.model import Finished
from numa.placement import place
from numa.pool import Pool, can_fork
from numa.topology import detect

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda *_: print("handled in", os.getpid()))
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
logging.basicConfig(handlers=[logging.StreamHandler()])
atexit.register(lambda: print("the end of", os.getpid(), flush=True))
kept = open(__file__)
print("half a line", end="")

def state(pool, worker):
    pool.start(worker, may_fork=True)
    pool.assign(worker, ("state", None))
    while True:
        for event in pool.wait(60):
            if isinstance(event, Finished):
                return event.result

with Pool(place(detect(), 3), "pool_tasks:do") as pool:
    found = [state(pool, 0), state(pool, 1)]
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    assert not can_fork()
    found.append(state(pool, 2))
    over.set()
print()
print(json.dumps([os.getpid(), found]))
"""


def test_a_fork_has_what_is_loaded_and_nothing_else(tmp_path: Path) -> None:
    """It has the modules, one descriptor, no handler and no duty at the end; else it is no fork."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(here=str(HERE)))
    done = subprocess.run(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        timeout=120,
    )
    half, said, end = done.stdout.splitlines()
    pid, found = json.loads(said)
    assert (half, end) == ("half a line", f"the end of {pid}")
    for worker, state in enumerate(found):
        forked = worker < 2
        check(state, worker)
        assert state["loaded"] is forked
        assert ("-c" in state["cmdline"]) is not forked


def check(state: dict[str, Any], worker: int) -> None:
    """Compare what a process has with what a new one has."""
    assert f"worker-{worker}" in state["cmdline"]
    assert any("numa.processes.member" in word for word in state["cmdline"])
    assert state["session"]
    assert (state["blocked"], state["handled"], state["handlers"]) == ([], [], 0)
    assert state["ignored"]
    (pipe,) = state["leading somewhere"]
    assert pipe.startswith("socket:")


@pytest.mark.long(OTHER_ROUTES)
def test_the_pool_keeps_its_promises_with_forks() -> None:
    """All tests of the pool pass in a process that may fork, which one of several here may not."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    files = (HERE / "test_pool.py", HERE / "test_pool_deaths.py")
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=HERE.parents[1],
        env={**os.environ, "NUMA_TESTS_FORK": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
