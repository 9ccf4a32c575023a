"""The pool with real processes: results of tasks, and refusals."""

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_tasks import Hostile
from waiting import PATIENCE_SECONDS

from numa.model import Finished, Lost, Message, PoolError, Raised, Ready, Seat, WorkerEvent
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

ENTRY = "pool_tasks:do"
ENDS = (Finished, Raised, Lost)


def gather(
    pool: Pool, count: int, kinds: tuple[type, ...] = (Finished, Raised, Lost)
) -> list[WorkerEvent]:
    """Wait until `count` events of these kinds have come; return all events."""
    events: list[WorkerEvent] = []
    while sum(isinstance(event, kinds) for event in events) < count:
        fresh = pool.wait(PATIENCE_SECONDS)
        assert fresh, f"nothing more came after {events}"
        events.extend(fresh)
    return events


def seats(count: int, bind: str = "core") -> tuple[Seat, ...]:
    """Seats on the real machine."""
    return place(detect(), count, bind=bind)


def run(pool: Pool, name: str, argument: object = None) -> list[WorkerEvent]:
    """Run one task on worker 0; return all events up to its end, but `Ready`."""
    pool.assign(0, (name, argument))
    return [event for event in gather(pool, 1) if not isinstance(event, Ready)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Pool]:
    """One started worker for all the tests that leave it alive."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        yield pool


def test_results_of_several_workers() -> None:
    """Each worker announces itself, then gives the result of the task assigned to it before."""
    with Pool(seats(3), ENTRY) as pool:
        for worker in range(3):
            pool.start(worker)
            pool.assign(worker, ("double", worker + 10))
        pids = pool.pids()
        events = gather(pool, 3)
    for worker in range(3):
        mine = [event for event in events if event.worker == worker]
        ready, finished = mine
        assert isinstance(ready, Ready)
        assert ready.pid == pids[worker]
        assert finished == Finished(worker=worker, result=(worker + 10) * 2)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPU binding on this system")
@pytest.mark.parametrize("bind", ["core", "node", "none"])
def test_child_has_its_seats_cpus(bind: str) -> None:
    """The child's affinity is its seat's, as its Ready says; ours is untouched."""
    before = os.sched_getaffinity(0)
    with Pool(seats(2, bind), ENTRY) as pool:
        for seat in seats(2, bind):
            pool.start(seat.worker)
            pool.assign(seat.worker, ("where", None))
            assert os.sched_getaffinity(0) == before
        events = gather(pool, 2)
    for seat in seats(2, bind):
        ready, finished = (event for event in events if event.worker == seat.worker)
        assert isinstance(ready, Ready)
        assert isinstance(finished, Finished)
        assert isinstance(finished.result, dict)
        assert finished.result["affinity"] == sorted(seat.cpus or before)
        assert ready.bound.cpus == (seat.cpus or None)


@pytest.mark.usefixtures("new_interpreters")
def test_workers_start_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a new interpreter does not wait for it: each is up only when all have begun."""
    (tmp_path / "slow_to_import.py").write_text(
        "import os, pathlib, time\n"
        "begun = pathlib.Path(__file__).with_name('begun'); begun.mkdir(exist_ok=True)\n"
        "(begun / str(os.getpid())).touch()\n"
        "for _ in range(6000):\n"
        "    if len(list(begun.iterdir())) == 4: break\n"
        "    time.sleep(0.01)\n"
        "else: os._exit(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with Pool(seats(4, "node"), "slow_to_import:function") as pool:
        for worker in range(4):
            pool.start(worker)
        gather(pool, 4, (Ready,))


def test_child_has_one_pipe_and_its_own_session() -> None:
    """The last of several children holds only its own pipe end."""
    with Pool(seats(3), ENTRY) as pool:
        for worker in range(3):
            pool.start(worker)
        pool.assign(2, ("where", None))
        events = gather(pool, 1)
    (finished,) = (event for event in events if isinstance(event, Finished))
    assert isinstance(finished.result, dict)
    assert len(finished.result["sockets"]) == 1
    assert finished.result["session"] == finished.result["pid"] != os.getsid(0)


def test_messages_come_in_order(shared: Pool) -> None:
    """Progress messages come in the order sent, before the result."""
    events = run(shared, "count", 500)
    assert events == [
        *(Message(worker=0, payload=number) for number in range(500)),
        Finished(worker=0, result="done"),
    ]


def test_messages_of_threads_stay_whole(shared: Pool) -> None:
    """Threads of a task may report at the same time; each message arrives whole."""
    *messages, finished = run(shared, "count_in_threads", 8)
    assert isinstance(finished, Finished)
    payloads = [event.payload for event in messages if isinstance(event, Message)]
    assert sorted(payloads) == [(number, "x" * 100_000) for number in range(8)]


def test_large_task_and_result(shared: Pool) -> None:
    """Data larger than the pipe travels both ways, and assigning it does not wait."""
    data = os.urandom(3_000_000)
    assert run(shared, "echo", data) == [Finished(worker=0, result=data)]


def test_thousand_tiny_tasks(shared: Pool) -> None:
    """A thousand tasks one after the other all give their own result."""
    results = [run(shared, "double", number) for number in range(1000)]
    assert results == [[Finished(worker=0, result=number * 2)] for number in range(1000)]


def test_exception_comes_as_text(shared: Pool) -> None:
    """A task that raises gives class, text and traceback; the worker continues."""
    (raised,) = run(shared, "raise", "no such part")
    assert isinstance(raised, Raised)
    assert (raised.kind, raised.message) == ("LookupError", "no such part")
    assert raised.traceback.startswith("Traceback (most recent call last):")
    assert "_raise" in raised.traceback
    assert "member.py" not in raised.traceback
    assert run(shared, "double", 4) == [Finished(worker=0, result=8)]


@pytest.mark.parametrize(
    ("name", "kind"), [("hostile", Hostile.__name__), ("leave", "SystemExit"), ("unheard of", None)]
)
def test_awkward_exceptions_come_too(shared: Pool, name: str, kind: str | None) -> None:
    """An exception that cannot be pickled or printed, or means to exit, is data all the same."""
    (raised,) = run(shared, name)
    assert isinstance(raised, Raised)
    assert raised.kind == (kind or "KeyError")
    assert pickle.loads(pickle.dumps(raised)) == raised


@pytest.mark.parametrize("name", ["lambda", "report_lambda"])
def test_what_cannot_be_sent_is_raised(shared: Pool, name: str) -> None:
    """A result or message that cannot be pickled becomes the task's failure."""
    (raised,) = run(shared, name)
    assert isinstance(raised, Raised)
    assert raised.kind
    assert raised.message
    assert run(shared, "double", 4) == [Finished(worker=0, result=8)]


def test_what_it_prints_is_not_seen(shared: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    """Output of a task, or of its children, does not reach our standard output."""
    (finished,) = run(shared, "print", "hello")
    assert isinstance(finished, Finished)
    assert capfd.readouterr() == ("", "")


def test_entry_that_cannot_be_imported() -> None:
    """A missing module fails each task with the import's error."""
    with Pool(seats(1), "no_such_module:function") as pool:
        pool.start(0)
        for _ in range(2):
            (raised,) = run(pool, "double", 1)
            assert isinstance(raised, Raised)
            assert raised.kind == "ModuleNotFoundError"
            assert "no_such_module" in raised.message


def test_started_from_another_thread() -> None:
    """A worker started by a thread that has ended since continues to work."""
    with Pool(seats(1), ENTRY) as pool:
        thread = threading.Thread(target=pool.start, args=(0,))
        thread.start()
        thread.join()
        assert run(pool, "double", 1) == [Finished(worker=0, result=2)]
        assert run(pool, "double", 2) == [Finished(worker=0, result=4)]


def test_rules_are_enforced(shared: Pool) -> None:
    """Starting twice, a second task or an unpicklable task is refused."""
    with pytest.raises(PoolError, match="already runs"):
        shared.start(0)
    with pytest.raises(PoolError, match="cannot be pickled"):
        shared.assign(0, lambda: None)
    shared.assign(0, ("double", 1))
    with pytest.raises(PoolError, match="worker 0 is not idle"):
        shared.assign(0, ("double", 2))
    assert gather(shared, 1)[-1] == Finished(worker=0, result=2)


def test_unstarted_and_closed_pools_refuse() -> None:
    """Assigning before a start, and use after the close, are errors."""
    with Pool(seats(1), ENTRY) as pool, pytest.raises(PoolError, match="worker 0 is not idle"):
        pool.assign(0, None)
    with pytest.raises(PoolError, match="closed"):
        pool.start(0)
    with pytest.raises(PoolError, match="closed"):
        pool.wait(0)
    pool.close()


def test_a_task_hears_what_it_is_told_while_it_runs(shared: Pool) -> None:
    """Messages arrive in order; an idle worker gets none, and its next task comes as usual."""
    shared.assign(0, ("wait_until_told", "end"))
    gather(shared, 1, (Message,))
    with pytest.raises(PoolError, match="cannot be pickled"):
        shared.tell(0, lambda: None)
    for payload in ("one", {"two": 2}, "end"):
        shared.tell(0, payload)
    (ended,) = gather(shared, 1)
    assert isinstance(ended, Finished)
    assert ended.result == ["one", {"two": 2}, "end"]
    shared.tell(0, "nobody waits for this")
    assert run(shared, "double", 4) == [Finished(worker=0, result=8)]
