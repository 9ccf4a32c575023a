"""The pool with real processes: each kept seat has a process, after any end of the last."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES
from processes.program import Program
from waiting import PATIENCE_SECONDS, alive, until

from numa.model import (
    Finished,
    Lost,
    Message,
    PoolError,
    ProcessLimits,
    Raised,
    Ready,
    StartError,
    WorkerEvent,
)
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

ENTRY = "pool_tasks:do"
MIB = 1 << 20

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="this system does not tell a process's memory"
)
pytestmark = pytest.mark.usefixtures("nothing_left")


def supervise(workers: int, entry: str = ENTRY, **limits: float) -> Pool:
    """Return a pool that keeps that number of workers on this machine."""
    seats = place(detect(), workers, bind="core")
    pool = Pool(seats, entry, ProcessLimits(**limits))  # type: ignore[arg-type]
    pool.keep(range(workers))
    return pool


def events_until(pool: Pool, enough: Callable[[list[WorkerEvent]], object]) -> list[WorkerEvent]:
    """Return the events that come until there are enough."""
    found: list[WorkerEvent] = []

    def came() -> bool:
        found.extend(pool.wait(0.05))
        return bool(enough(found))

    until(came)
    return found


def of(kind: type, found: list[WorkerEvent]) -> list[WorkerEvent]:
    """Return the events of a kind."""
    return [event for event in found if isinstance(event, kind)]


def all_idle(pool: Pool, workers: int) -> None:
    """Wait until `workers` workers are idle."""
    events_until(pool, lambda found: len(pool.idle) == workers)


def done_by(pool: Pool, worker: int, task: object) -> WorkerEvent:
    """Give a task to a worker, once it is idle; return its end."""
    events_until(pool, lambda found: worker in pool.idle)
    pool.assign(worker, task)
    found = events_until(pool, lambda found: of(Finished | Raised | Lost, found))  # type: ignore[arg-type]
    return of(Finished | Raised | Lost, found)[0]  # type: ignore[arg-type]


@pytest.fixture
def pair() -> Iterator[Pool]:
    """Two workers without limits, both idle."""
    with supervise(2) as pool:
        all_idle(pool, 2)
        yield pool


def test_kept_workers_do_tasks(pair: Pool) -> None:
    """A worker is idle until it is given a task and after its end; others are not touched."""
    pids = pair.pids()
    pair.assign(1, ("count", 3))
    assert set(pair.idle) == {0}
    with pytest.raises(PoolError, match="worker 1 is not idle"):
        pair.assign(1, ("double", 1))
    found = events_until(pair, lambda found: of(Finished, found))
    assert found == [
        *(Message(worker=1, payload=number) for number in range(3)),
        Finished(worker=1, result="done"),
    ]
    assert set(pair.idle) == {0, 1}
    assert pair.pids() == pids
    assert pair.restarts() == {0: 0, 1: 0}


def test_a_lost_process_is_replaced_at_once(pair: Pool) -> None:
    """The end of its task is one event with how it ended; the next process is on the same CPUs."""
    for _ in range(4):  # More often than a seat may fail without a task.
        end = done_by(pair, 1, ("crash", None))
        assert isinstance(end, Lost)
        assert (end.worker, end.reason, end.hopeless) == (1, "lost", False)
        assert "SIGSEGV" in end.detail
    end = done_by(pair, 1, ("where", None))
    assert pair.restarts() == {0: 0, 1: 4}
    assert isinstance(end, Finished)
    if hasattr(os, "sched_getaffinity"):
        seats = place(detect(), 2, bind="core")
        assert tuple(end.result["affinity"]) == seats[1].cpus  # type: ignore[index]


def test_an_idle_process_that_is_killed_is_replaced(pair: Pool) -> None:
    """It comes back idle."""
    os.kill(pair.pids()[0], signal.SIGKILL)
    found = events_until(pair, lambda found: of(Ready, found))
    assert [type(event) for event in found] == [Lost, Ready]
    assert set(pair.idle) == {0, 1}


def test_stopped_by_the_caller(pair: Pool) -> None:
    """The process is gone when `stop` returns; its seat has another one soon, without a penalty."""
    for _ in range(4):
        pids = pair.pids()
        pair.assign(0, ("sleep", 600))
        pair.stop({0: "by intent"})
        assert not alive(pids[0])
        found = events_until(pair, lambda found: of(Ready, found))
        (lost,) = of(Lost, found)
        assert isinstance(lost, Lost)
        assert (lost.reason, lost.cause, lost.hopeless) == ("stopped", "by intent", False)
    assert pair.pids()[1] == pids[1]


def test_fewer_and_more_workers(pair: Pool) -> None:
    """Seats that are no longer kept lose their process without an event, and may be kept again."""
    pids = pair.pids()
    pair.keep([0])
    assert not alive(pids[1])
    assert pair.wait(0.0) == ()
    assert set(pair.idle) == {0}
    pair.keep([0, 1])
    all_idle(pair, 2)
    assert pair.pids()[0] == pids[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_warm_up_comes_first(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is up once the warm-up has ended, failed or not; its messages are not shown."""
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: method)
    seats = place(detect(), 2)
    for warm_up in (("count", 3), ("raise", "x")):
        with Pool(seats, ENTRY, warm_up=warm_up) as pool:
            pool.prepare()
            pool.keep([0, 1])
            found = events_until(pool, lambda found: len(pool.idle) == 2)
            assert [type(event) for event in found] == [Ready, Ready]
            assert isinstance(done_by(pool, 0, ("double", 2)), Finished)


def test_a_warm_up_that_ends_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    """It ends new interpreters, too. The seat is given up, and only events report the reason."""
    with Pool(place(detect(), 1), ENTRY, warm_up=("crash", None)) as pool:
        pool.keep([0])
        found = events_until(pool, lambda found: pool.exhausted)
    assert [event.hopeless for event in of(Lost, found)] == [False, False, True]  # type: ignore[attr-defined]
    assert all("SIGSEGV" in event.detail for event in found)  # type: ignore[union-attr]
    assert capfd.readouterr().err == ""


@needs_proc
def test_a_leaking_process_is_replaced_between_tasks() -> None:
    """It costs no task and no pause, and the next process starts small."""
    with supervise(1, memory_bytes=100 * MIB) as pool:
        ends = [done_by(pool, 0, ("leak", 60 * MIB)) for _ in range(2)]
        assert [type(end) for end in ends] == [Finished, Finished]
        assert set(pool.idle) == set()
        found = events_until(pool, lambda found: of(Ready, found))
        (vacant,) = of(Lost, found)
        assert isinstance(vacant, Lost)
        assert vacant.reason == "too large"
        assert vacant.held_bytes > 100 * MIB
        assert isinstance(done_by(pool, 0, ("leak", 60 * MIB)), Finished)
        assert pool.restarts() == {0: 1}


@needs_proc
def test_a_task_that_takes_too_much_memory_is_ended() -> None:
    """A process above the hard limit is ended as the kernel would, before the machine is full."""
    with supervise(1, task_memory_bytes=100 * MIB) as pool:
        end = done_by(pool, 0, ("swell", 150 * MIB))
        assert isinstance(end, Lost)
        assert end.reason == "too large"
        assert f"the limit is {100 * MIB}" in end.detail
        assert isinstance(done_by(pool, 0, ("double", 1)), Finished)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.usefixtures("new_interpreters")
@pytest.mark.parametrize(
    ("body", "seconds", "words"),
    [
        ("import os; os._exit(7)", 60.0, "exit status 7"),
        ("import time; time.sleep(600)", 0.3, "did not start within 0.3 s"),
    ],
)
def test_a_seat_that_can_have_no_process_is_given_up(
    body: str,
    seconds: float,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Processes that die or hang as they start, time and again, leave the seat vacant for good.

    It is an event, and no log line that a program without a log would print in between.
    """
    (tmp_path / "cannot_start.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with supervise(1, "cannot_start:f", start_seconds=seconds) as pool:
        found = events_until(pool, lambda found: pool.exhausted)
        assert [event.hopeless for event in of(Lost, found)] == [False, False, True]  # type: ignore[attr-defined]
        assert all(words in event.detail for event in of(Lost, found))  # type: ignore[attr-defined]
        assert pool.pids() == {}
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.usefixtures("new_interpreters")
def test_a_system_that_refuses_processes(pair: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused replacement is asked for again and given up; the others go on meanwhile."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    pair.assign(0, ("crash", None))
    found = events_until(
        pair,
        lambda found: any(event.hopeless for event in of(Lost, found)),  # type: ignore[attr-defined]
    )
    reasons = [event.reason for event in of(Lost, found)]  # type: ignore[attr-defined]
    assert reasons == ["lost", "refused", "refused", "refused"]
    assert "nonexistent" in found[-1].detail  # type: ignore[union-attr]
    assert found[-1].hint  # type: ignore[union-attr]
    assert not pair.exhausted
    assert isinstance(done_by(pair, 1, ("double", 2)), Finished)


def test_a_refusal_at_the_start_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for more workers than the system allows fails immediately."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with Pool(place(detect(), 1), ENTRY) as pool, pytest.raises(StartError, match="nonexistent"):
        pool.keep([0])


@pytest.mark.usefixtures("new_interpreters")
def test_a_refusal_later_leaves_the_others(pair: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An added worker is reported as vacant, and started when the system allows it."""
    pair.keep([0])
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nonexistent/python")
        pair.add([0, 1])
        found = events_until(pair, lambda found: of(Lost, found))
        assert [(event.worker, event.reason) for event in of(Lost, found)] == [  # type: ignore[attr-defined]
            (1, "refused")
        ]
        assert isinstance(done_by(pair, 0, ("double", 2)), Finished)
    all_idle(pair, 2)


def test_an_error_in_the_block_leaves_nothing() -> None:
    """Leaving by an exception ends every process, also busy ones."""
    pids: dict[int, int] = {}

    def fail() -> None:
        with supervise(2) as pool:
            all_idle(pool, 2)
            pool.assign(0, ("sleep", 600))
            pids.update(pool.pids())
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert len(pids) == 2
    assert not any(map(alive, pids.values()))


PROGRAM = """
import sys
sys.path.append({tasks!r})
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

with Pool(place(detect(), 2), "pool_tasks:do") as pool:
    pool.keep([0, 1])
    begun = 0
    while True:
        for worker in list(pool.idle):
            pool.assign(worker, ("sleep", 600))
            begun += 1
            if begun == 2:
                print(*pool.pids().values(), flush=True)
        pool.wait(600.0)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C while tasks run, or a kill of the program, ends its processes, busy or not."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(tasks=str(Path(__file__).parent)))
    root = str(Path(__file__).resolve().parents[2])
    with Program(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 2
        program.send_signal(number)
        _, said = program.communicate(timeout=PATIENCE_SECONDS)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in said
    until(lambda: not any(map(alive, pids)))
