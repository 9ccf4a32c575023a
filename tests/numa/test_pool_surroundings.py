"""The pool and its surroundings: helpers of processes, the kernel, CPUs, and wake-ups."""

import os
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from long_tests import OTHER_ROUTES
from waiting import PATIENCE_SECONDS, alive, until

from numa.model import Finished, Lost, Message, Ready, WorkerEvent
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

ENTRY = "pool_tasks:do"
FREEZER = Path("/sys/fs/cgroup/freezer")
CPUSET = Path("/sys/fs/cgroup/cpuset")

Kind = TypeVar("Kind", bound=WorkerEvent)

pytestmark = pytest.mark.usefixtures("nothing_left")


class Listener:
    """A pool's events one after the other."""

    def __init__(self, pool: Pool) -> None:
        """Listen to the pool."""
        self._pool = pool
        self._events: deque[WorkerEvent] = deque()

    def next(self, kind: type[Kind]) -> Kind:
        """Return the next event of a kind; others that come before it are dropped."""
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, kind):
                    return event
            fresh = self._pool.wait(PATIENCE_SECONDS)
            assert fresh, "nothing more came"
            self._events.extend(fresh)


def test_wake_ends_one_wait() -> None:
    """A wait that nothing else would end is ended by `wake`, and the next one waits again."""
    with Pool(place(detect(), 1), ENTRY) as pool:
        pool.wake()
        assert pool.wait(PATIENCE_SECONDS) == ()
        timer = threading.Timer(0.1, pool.wake)
        timer.start()
        assert pool.wait(PATIENCE_SECONDS) == ()
        timer.join()
        started = time.monotonic()
        assert pool.wait(0.1) == ()
        assert time.monotonic() - started >= 0.1
    pool.wake()


def test_what_a_task_started_dies_with_its_process() -> None:
    """A driver's helper is ended with the process: crashed, killed or asked to leave."""
    with Pool(place(detect(), 1), ENTRY) as pool:
        heard = Listener(pool)
        pool.start(0)
        pool.assign(0, ("start_a_helper", 0.0))
        crashed = heard.next(Message).payload
        heard.next(Lost)
        until(lambda: not alive(crashed))
        heard.next(Ready)
        pool.assign(0, ("start_a_helper", 600))
        killed = heard.next(Message).payload
        assert alive(killed)
        pool.stop({0: None})
        until(lambda: not alive(killed))
        pool.start(0)
        pool.assign(0, ("start_a_helper_and_return", None))
        left = heard.next(Finished).result
        assert alive(left)
    until(lambda: not alive(left))


def group(controller: Path) -> Path:
    """Make an empty control group of version 1; skip where that cannot be."""
    path = controller / f"numa-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    return path


@pytest.mark.long(OTHER_ROUTES)
def test_a_process_that_cannot_be_killed_is_left_behind() -> None:
    """One that waits inside the kernel holds up neither the pool nor its seat.

    A frozen control group simulates a file server that does not answer: there SIGKILL waits, too.
    """
    place_of_ice = group(FREEZER)
    with Pool(place(detect(), 1), ENTRY) as pool:
        heard = Listener(pool)
        try:
            pool.start(0)
            pool.assign(0, ("sleep", 600))
            stuck = pool.pids()[0]
            heard.next(Message)
            (place_of_ice / "cgroup.procs").write_text(str(stuck))
            (place_of_ice / "freezer.state").write_text("FROZEN")
            until(lambda: (place_of_ice / "freezer.state").read_text() == "FROZEN\n")
            pool.stop({0: None})
            pool.start(0)
            pool.assign(0, ("double", 4))
            lost = heard.next(Lost)
            assert (lost.exit_code, lost.task) == (-signal.SIGKILL, ("sleep", 600))
            assert heard.next(Finished).result == 8
            assert alive(stuck)
        finally:
            (place_of_ice / "freezer.state").write_text("THAWED")
        while psutil.pid_exists(stuck):
            assert pool.wait(0.1) == ()
    place_of_ice.rmdir()


def test_cpus_that_go_away_in_mid_run() -> None:
    """A worker whose CPU is taken is moved by the kernel, and replaced on the remaining CPUs.

    A control group that loses a CPU simulates a CPU that is switched off: the kernel moves the
    worker off it and then refuses it, in the same way.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this process has one CPU only")
    fewer = group(CPUSET)
    seats = place(detect(), 2, bind="core")
    try:
        memory = (CPUSET / "cpuset.mems").read_text()
        (fewer / "cpuset.mems").write_text(memory)
        (fewer / "cpuset.cpus").write_text(",".join(map(str, allowed)))
        (fewer / "cgroup.procs").write_text(str(os.getpid()))
        with Pool(seats, ENTRY) as pool:
            heard = Listener(pool)
            pool.start(1)
            pool.assign(1, ("chatter", 0.5))
            heard.next(Message)
            left = sorted(set(allowed) - set(seats[1].cpus))
            (fewer / "cpuset.cpus").write_text(",".join(map(str, left)))
            assert heard.next(Finished).result == "said it all"
            pool.stop({1: None})
            pool.start(1)
            pool.assign(1, ("where", None))
            bound = heard.next(Ready).bound
            found = heard.next(Finished).result
        assert isinstance(found, dict)
        assert found["affinity"] == left == list(bound.cpus or ())
        assert "refused" in (bound.note or "")
    finally:
        for pid in (fewer / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CPUSET / "cgroup.procs").write_text(pid)
        os.sched_setaffinity(0, allowed)
        fewer.rmdir()
