"""The pool when processes die: children, by every way there is, and the parent itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psutil
import pytest
from interrupts import interrupted
from processes.program import Program
from waiting import PATIENCE_SECONDS, alive, until

from numa import affinity
from numa.model import Finished, Lost, Message, PoolError, Raised, Ready, Seat, WorkerEvent
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

ENTRY = "pool_tasks:do"


def seats(count: int) -> tuple[Seat, ...]:
    """Seats on the real machine, a core each."""
    return place(detect(), count, bind="core")


def gather(pool: Pool, wanted: Callable[[WorkerEvent], bool]) -> list[WorkerEvent]:
    """Wait for an event that fits; return all that came."""
    events: list[WorkerEvent] = []
    while not any(wanted(event) for event in events):
        fresh = pool.wait(PATIENCE_SECONDS)
        assert fresh, f"nothing more came after {events}"
        events.extend(fresh)
    return events


def is_end(event: WorkerEvent) -> bool:
    """Whether the event ends a task."""
    return isinstance(event, Finished | Raised | Lost)


def is_message(event: WorkerEvent) -> bool:
    """Whether the event is a progress message."""
    return isinstance(event, Message)


def open_descriptors() -> int:
    """How many file descriptors this process holds."""
    return psutil.Process().num_fds()


def test_killed_worker_is_lost_with_its_task() -> None:
    """A kill -9 in mid-task costs that task only; a new process on the seat takes it again."""
    with Pool(seats(2), ENTRY) as pool:
        for worker in (0, 1):
            pool.start(worker)
        pool.assign(0, ("sleep", 60))
        gather(pool, is_message)
        first = pool.pids()[0]
        os.kill(first, signal.SIGKILL)
        (lost,) = (event for event in gather(pool, is_end) if isinstance(event, Lost))
        assert (lost.worker, lost.exit_code, lost.task) == (0, -9, ("sleep", 60))
        assert "SIGKILL, not sent by the pool" in lost.detail
        assert 0 not in pool.pids()
        pool.assign(1, ("double", 1))
        # The new process of worker 0 may be ready before this result comes, or after it.
        assert Finished(worker=1, result=2) in gather(pool, is_end)
        assert pool.pids()[0] != first
        pool.assign(0, ("where", None))
        finished = gather(pool, is_end)[-1]
        assert isinstance(finished, Finished)
        assert isinstance(finished.result, dict)
        if finished.result["affinity"] is not None:
            assert tuple(finished.result["affinity"]) == seats(1)[0].cpus


def test_messages_before_a_death_come_before_lost() -> None:
    """All messages sent before os._exit are delivered; then Lost, with status and last words."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, ("count_and_exit", 300))
        ready, *messages, lost = gather(pool, is_end)
    assert isinstance(ready, Ready)
    assert messages == [Message(worker=0, payload=number) for number in range(300)]
    assert isinstance(lost, Lost)
    assert lost == Lost(
        worker=0, exit_code=3, task=("count_and_exit", 300), detail="exit status 3\nlast words"
    )


def test_crash_leaves_a_traceback() -> None:
    """A segmentation fault gives its signal, and faulthandler's traceback in the detail."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, ("crash", None))
        lost = gather(pool, is_end)[-1]
    assert isinstance(lost, Lost)
    assert lost.exit_code == -signal.SIGSEGV
    assert lost.detail.startswith("killed by SIGSEGV")
    assert "in _crash" in lost.detail


def test_death_in_mid_message() -> None:
    """Half a message is dropped, the whole one before it is delivered, and Lost follows."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, ("die_in_mid_message", 1_000_000))
        _, message, lost = gather(pool, is_end)
    assert message == Message(worker=0, payload="whole")
    assert isinstance(lost, Lost)
    assert lost.exit_code == 4


@pytest.mark.parametrize("name", ["report_unreadable", "unreadable"])
def test_an_event_that_cannot_be_read_costs_the_process(name: str) -> None:
    """A message or a result that the parent cannot read back is reported as Lost, with the reason."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, (name, None))
        lost = gather(pool, is_end)[-1]
    assert isinstance(lost, Lost)
    assert lost.task == (name, None)
    assert "the parent cannot read the data" in lost.detail


def test_death_is_seen_while_a_grandchild_holds_the_pipe() -> None:
    """A process forked by the task that keeps the pipe open cannot hide the task's death.

    Nor does it outlive it.
    """
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, ("die_and_leave_a_grandchild", 90))
        _, message, lost = gather(pool, is_end)
    assert isinstance(lost, Lost)
    assert lost.exit_code == 5
    assert isinstance(message, Message)
    pid = message.payload
    assert isinstance(pid, int)
    until(lambda: not alive(pid))


def test_several_are_killed_at_once() -> None:
    """Each gives its Lost with its task and its cause; one without a process is passed over."""
    with Pool(seats(4), ENTRY) as pool:
        for worker in range(3):
            pool.start(worker)
            pool.assign(worker, ("sleep", 60 + worker))
        pids = pool.pids()
        pool.stop({0: "a", 2: "b", 3: "c"})
        assert set(pool.pids()) == {1}
        lost = [event for event in pool.wait(0) if isinstance(event, Lost)]
    assert [(event.worker, event.task, event.cause) for event in lost] == [
        (0, ("sleep", 60), "a"),
        (2, ("sleep", 62), "b"),
    ]
    assert not any(alive(pids[worker]) for worker in pids)


def test_assign_to_a_stopped_process_returns() -> None:
    """A child that does not read cannot hold up the parent, and gets all once it continues."""
    data = b"x" * 3_000_000
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        gather(pool, lambda event: isinstance(event, Ready))
        os.kill(pool.pids()[0], signal.SIGSTOP)
        pool.assign(0, ("echo", data))
        assert pool.wait(0.05) == ()
        os.kill(pool.pids()[0], signal.SIGCONT)
        assert gather(pool, is_end)[-1] == Finished(worker=0, result=data)


def test_stderr_is_kept_small() -> None:
    """Of a chatty child the detail has the last 4 KB, also after the pool has cut the rest."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        for _ in range(2):
            pool.assign(0, ("shout", 2 << 20))
            gather(pool, is_end)
        pool.assign(0, ("count_and_exit", 0))
        lost = gather(pool, is_end)[-1]
    assert isinstance(lost, Lost)
    assert lost.detail == "exit status 3\nlast words"


@pytest.mark.parametrize("task", [None, ("sleep", 60), ("ignore_sigterm", 60)])
def test_close_leaves_nothing(task: object) -> None:
    """Idle, busy or deaf to SIGTERM: the close leaves neither a process nor a descriptor."""
    before = open_descriptors(), len(psutil.Process().children())
    pool = Pool(seats(2), ENTRY)
    for worker in (0, 1):
        pool.start(worker)
    gather(pool, lambda event: isinstance(event, Ready))
    if task is not None:
        pool.assign(0, task)
        gather(pool, is_message)
    pool.close(grace_seconds=0.2 if task == ("ignore_sigterm", 60) else 30.0)
    assert (open_descriptors(), len(psutil.Process().children())) == before


def test_restarts_leave_nothing() -> None:
    """Processes lost and started again leak no descriptor."""
    with Pool(seats(1), ENTRY) as pool:
        pool.prepare()
        before = open_descriptors()
        for _ in range(3):
            pool.start(0)
            pool.stop({0: None})
        assert open_descriptors() == before
        assert sum(isinstance(event, Lost) for event in pool.wait(0)) == 3


@pytest.mark.usefixtures("new_interpreters")
def test_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot be started is an error with a way out, and leaks nothing."""
    with Pool(seats(1), ENTRY) as pool:
        before = open_descriptors()
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(PoolError, match=r"worker 0 cannot be started.*Next: "):
            pool.start(0)
        assert open_descriptors() == before
        assert pool.pids() == {}


def test_an_interrupted_start_leaves_nothing() -> None:
    """Ctrl-C while the parent is on the seat, or on its way back, leaves no process behind."""
    with Pool(seats(1), ENTRY) as pool:
        # Other tests' processes may still be there, such as Python's resource tracker.
        before, others = open_descriptors(), psutil.Process().children()
        for line in count(1):
            if not interrupted(affinity, line, lambda: pool.start(0)):
                break
            assert pool.pids() == {}
            assert psutil.Process().children() == others
            assert open_descriptors() == before
        assert line > 20
        pool.assign(0, ("double", 1))
        assert gather(pool, is_end)[-1] == Finished(worker=0, result=2)


# A separate script: no guard for __main__, and a side effect that a second import would repeat.
SCRIPT = """
import multiprocessing, sys, threading, time
multiprocessing.set_start_method({method!r})
sys.path.append({tasks!r})
print("imported", flush=True)
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

pool = Pool(place(detect(), 2), "pool_tasks:do")
for worker in (0, 1):
    if {thread!r}:
        thread = threading.Thread(target=pool.start, args=(worker,))
        thread.start()
        thread.join()
    else:
        pool.start(worker)
    pool.assign(worker, ({task!r}, {argument!r}))
seen = 0
while seen < 2:
    seen += sum(type(event).__name__ != "Ready" for event in pool.wait(60))
try:
    print(*pool.pids().values(), flush=True)
    time.sleep({sleep!r})
except KeyboardInterrupt:
    print("interrupted", *(type(event).__name__ for event in pool.wait(0)), flush=True)
pool.close()
"""


def script(
    folder: Path, task: str, sleep: float, *, method: str = "fork", thread: bool = False
) -> Program[str]:
    """Start a separate program that runs two workers, in a new session."""
    path = folder / "program.py"
    tasks = str(Path(__file__).parent)
    text = SCRIPT.format(
        tasks=tasks, task=task, argument=600, sleep=sleep, method=method, thread=thread
    )
    path.write_text(text)
    root = str(Path(__file__).resolve().parents[2])
    return Program(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": root},
    )


def children_of(program: Program[str]) -> list[int]:
    """Read the two lines that the program prints; return its children's ids."""
    assert program.stdout is not None
    assert program.stdout.readline() == "imported\n"
    return [int(word) for word in program.stdout.readline().split()]


def test_script_without_a_guard(tmp_path: Path) -> None:
    """A plain script can use the pool: its body runs once, and its end is clean."""
    with script(tmp_path, "double", 0) as program:
        printed, _ = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode == 0
    assert printed.count("imported") == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("thread", [True, False])
def test_killed_parent_leaves_no_children(tmp_path: Path, method: str, thread: bool) -> None:
    """When the parent is killed its processes die too, busy or not, started by any thread."""
    with script(tmp_path, "sleep", 600, method=method, thread=thread) as program:
        pids = children_of(program)
        pids += [each.pid for each in psutil.Process(program.pid).children()]
        assert all(alive(pid) for pid in pids)
        program.kill()
        program.wait()
        until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_interrupt_spares_the_children(tmp_path: Path, method: str) -> None:
    """Ctrl-C at the terminal reaches the parent only; sent to a child it is ignored."""
    with script(tmp_path, "sleep", 600, method=method) as program:
        pids = children_of(program)
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout is not None
        assert program.stdout.readline() == "interrupted\n"
        program.wait(PATIENCE_SECONDS)
        assert program.returncode == 0
        assert not any(alive(pid) for pid in pids)
