"""How the supervisor's runs end early, and what they leave behind: nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE_SECONDS, alive, until

from numa.errors import PoolError
from numa.model import Outcome, SupervisorOptions
from numa.placement import place
from numa.supervisor import Supervisor
from numa.topology import detect

ENTRY = "pool_tasks:do"

pytestmark = pytest.mark.usefixtures("nothing_left")


def supervise(workers: int, attempts: int = 2) -> Supervisor:
    """Return a supervisor of so many workers on this machine."""
    return Supervisor(place(detect(), workers), ENTRY, SupervisorOptions(attempts=attempts))


def cancelled_run(supervisor: Supervisor, act: Callable[[], None]) -> list[Outcome]:
    """Run tasks that sleep and one that waits for its retry; act once all of them are begun."""
    begun: set[int] = set()

    def heard(index: int, payload: object) -> None:
        begun.add(index)
        if begun == {0, 1}:
            act()

    tasks = [("sleep", 600), ("sleep", 600), ("double", 1), ("double", 2)]
    started = time.monotonic()
    found = list(supervisor.run(iter(tasks), heard=heard))
    assert time.monotonic() - started < PATIENCE_SECONDS
    return found


def check_cancelled(supervisor: Supervisor, found: list[Outcome]) -> None:
    """Every task taken has come out, no process is busy, and nothing more is begun."""
    assert {outcome.index for outcome in found} == {0, 1}
    assert {outcome.failure.kind for outcome in found if outcome.failure} == {"cancelled"}
    assert all(outcome.attempts == 1 and outcome.worker is not None for outcome in found)
    assert not supervisor.pids()
    assert list(supervisor.run([("double", 1)])) == []


def test_cancelled_by_another_thread() -> None:
    """A thread ends the run at once; what ran comes out as cancelled."""
    with supervise(2) as supervisor:
        timer = threading.Timer(0.1, supervisor.cancel)
        check_cancelled(supervisor, cancelled_run(supervisor, timer.start))
        timer.join()


def test_cancelled_by_a_signal_handler() -> None:
    """A handler may cancel while its own thread waits."""
    with supervise(2) as supervisor:
        before = signal.signal(signal.SIGUSR1, lambda number, frame: supervisor.cancel())
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            check_cancelled(supervisor, cancelled_run(supervisor, timer.start))
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)


def test_cancelled_by_its_consumer() -> None:
    """Cancelled between two outcomes, those that have ended come out with their results."""
    with supervise(1, attempts=9) as supervisor:
        found = []
        for outcome in supervisor.run(("double", number) for number in range(1000)):
            found.append(outcome)
            if len(found) == 10:
                supervisor.cancel()
    assert [outcome.index for outcome in found] == [*range(len(found))]
    assert 10 <= len(found) <= 10 + 2
    supervisor.cancel()


def test_a_run_closed_early_ends_what_is_busy() -> None:
    """The busy process is gone when the iterator is closed, and the seat works on after it."""
    with supervise(2) as supervisor:
        run = supervisor.run(iter([("sleep", 600), ("double", 1)]))
        assert next(run).result == 2
        pids = supervisor.pids()
        run.close()
        assert len(supervisor.pids()) == 1
        assert sum(map(alive, pids.values())) == 1
        assert [outcome.result for outcome in supervisor.run([("double", 5)])] == [10]


def test_an_error_of_the_consumer_leaves_nothing() -> None:
    """Leaving the block by an exception ends every process, also those that are busy."""
    pids: dict[int, int] = {}

    def consume() -> None:
        with supervise(2) as supervisor:
            for _ in supervisor.run(iter([("sleep", 600), ("double", 1)])):
                pids.update(supervisor.pids())
                raise LookupError

    with pytest.raises(LookupError):
        consume()
    assert len(pids) == 2
    assert not any(map(alive, pids.values()))


def test_a_closed_supervisor_refuses() -> None:
    """After its block a supervisor runs nothing."""
    with supervise(1) as supervisor:
        pass
    with pytest.raises(PoolError, match="closed"):
        next(supervisor.run([]))


PROGRAM = """
import sys
sys.path.append({tasks!r})
from numa.placement import place
from numa.supervisor import Supervisor
from numa.topology import detect

with Supervisor(place(detect(), 2), "pool_tasks:do") as supervisor:
    tasks = iter([("sleep", 600), ("sleep", 600)])
    say = lambda index, payload: print(*supervisor.pids().values(), flush=True)
    for outcome in supervisor.run(tasks, heard=say):
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C while tasks run, or a kill of the program, ends its processes, busy or not."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(tasks=str(Path(__file__).parent)))
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline(), program.stdout.readline()]
        pids = [int(word) for word in lines[1].split()]
        assert len(pids) == 2
        program.send_signal(number)
        _, said = program.communicate(timeout=PATIENCE_SECONDS)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in said
    until(lambda: not any(map(alive, pids)))
