"""The supervisor with real processes: an outcome for every task, whatever becomes of its process."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from numa.errors import PoolError
from numa.model import Outcome, SupervisorOptions
from numa.placement import place
from numa.supervisor import Supervisor
from numa.topology import detect

ENTRY = "pool_tasks:do"
MIB = 1 << 20

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="this system does not tell a process's memory"
)


def supervise(workers: int, entry: str = ENTRY, **options: float) -> Supervisor:
    """Return a supervisor of so many workers on this machine."""
    seats = place(detect(), workers, bind="core")
    return Supervisor(seats, entry, SupervisorOptions(**options))  # type: ignore[arg-type]


def outcomes(supervisor: Supervisor, *tasks: object) -> list[Outcome]:
    """Run the tasks; return their outcomes in the order of the tasks."""
    found = sorted(supervisor.run(tasks), key=lambda outcome: outcome.index)
    assert [outcome.index for outcome in found] == [*range(len(tasks))]
    return found


def kinds(found: Iterable[Outcome]) -> list[str | None]:
    """Return what was wrong with each."""
    return [None if outcome.failure is None else outcome.failure.kind for outcome in found]


@pytest.fixture(scope="module")
def shared() -> Iterator[Supervisor]:
    """Two workers for the tests that set no limits."""
    with supervise(2, attempts=2) as supervisor:
        yield supervisor


def test_every_task_comes_out_once(shared: Supervisor) -> None:
    """Each outcome has its task and what the function made of it, and says who did it."""
    found = outcomes(shared, *(("double", number) for number in range(500)))
    assert [outcome.result for outcome in found] == [2 * number for number in range(500)]
    assert [outcome.task for outcome in found] == [("double", number) for number in range(500)]
    assert {outcome.worker for outcome in found} <= {0, 1}
    assert {outcome.attempts for outcome in found} == {1}
    assert kinds(found) == [None] * 500
    assert all(outcome.seconds >= 0 for outcome in found)


def test_processes_are_kept_between_runs(shared: Supervisor) -> None:
    """A second run finds the processes of the first; no tasks have no outcomes."""
    outcomes(shared, *[("double", 1)] * 4)
    pids = shared.pids()
    outcomes(shared, ("double", 2))
    assert list(shared.run([])) == []
    assert shared.pids() == pids


def test_messages_are_heard_with_their_task(shared: Supervisor) -> None:
    """What a task reports comes with its index, in order."""
    heard: list[tuple[int, object]] = []
    tasks = [("count", 3), ("double", 1), ("count", 2)]
    list(shared.run(tasks, heard=lambda index, payload: heard.append((index, payload))))
    assert [payload for index, payload in heard if index == 0] == [0, 1, 2]
    assert [payload for index, payload in heard if index == 2] == [0, 1]
    assert len(heard) == 5


def test_a_task_that_raises_is_not_tried_again(shared: Supervisor) -> None:
    """It comes out with class, text and traceback; its process goes on."""
    (found,) = outcomes(shared, ("raise", "no such part"))
    assert found.failure is not None
    assert (found.failure.kind, found.attempts) == ("raised", 1)
    assert found.failure.message == "LookupError: no such part"
    assert "_raise" in found.failure.traceback


def test_a_task_that_cannot_be_sent_is_its_own_failure(shared: Supervisor) -> None:
    """It never begins, and those around it do."""
    found = outcomes(shared, ("double", 1), lambda: None, ("double", 2))
    assert kinds(found) == [None, "unsendable", None]
    assert (found[1].attempts, found[1].worker) == (0, None)


def test_poison_is_given_up_after_its_attempts(shared: Supervisor) -> None:
    """Tasks that kill every process end as failures; the others come out, from the same seats."""
    before = sum(shared.restarts().values())
    good = [("double", number) for number in range(20)]
    found = outcomes(shared, ("crash", None), *good, ("crash", None))
    assert kinds(found) == ["lost", *[None] * 20, "lost"]
    assert found[0].attempts == found[-1].attempts == 2
    assert "SIGSEGV" in (found[0].failure.message if found[0].failure else "")
    outcomes(shared, *good)
    assert sum(shared.restarts().values()) == before + 4


def test_a_lost_process_costs_one_attempt(shared: Supervisor, tmp_path: Path) -> None:
    """A task whose process was killed is done by the next one, on the seat's own CPUs."""
    found = outcomes(shared, ("die_once", str(tmp_path / "x")), ("double", 4))
    assert [(outcome.result, outcome.attempts) for outcome in found] == [("alive", 2), (8, 1)]
    if not hasattr(os, "sched_getaffinity"):
        return
    seats = place(detect(), 2, bind="core")
    for outcome in outcomes(shared, *[("where", None)] * 6):
        assert isinstance(outcome.result, dict)
        assert outcome.worker is not None
        assert tuple(outcome.result["affinity"]) == seats[outcome.worker].cpus


def test_an_error_of_the_iterable_comes_through(shared: Supervisor) -> None:
    """What the tasks raise ends the run with the busy processes; the next run works."""

    def tasks() -> Iterator[object]:
        yield ("sleep", 600)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        list(shared.run(tasks()))
    assert outcomes(shared, ("double", 3))[0].result == 6


def test_one_run_at_a_time(shared: Supervisor) -> None:
    """A second run is refused while one goes on."""
    first = shared.run([("double", 1), ("double", 2)])
    next(first)
    with pytest.raises(PoolError, match="a run is going on"):
        next(shared.run([]))
    first.close()


def test_raising_tasks_are_tried_again_on_request() -> None:
    """With `retry_raised` a task has its attempts also when it raises, at its intervals."""
    with supervise(1, attempts=3, retry_raised=True, retry_seconds=0.1) as supervisor:
        started = time.monotonic()
        found = outcomes(supervisor, ("raise", "x"), ("double", 1))
        assert time.monotonic() - started >= 0.1 + 0.2
    assert [outcome.attempts for outcome in found] == [3, 1]
    assert kinds(found) == ["raised", None]


def test_a_silent_process_is_replaced() -> None:
    """One that says nothing for too long is hung; one that talks may take its time."""
    with supervise(2, attempts=1, silence_seconds=2.0) as supervisor:
        found = outcomes(supervisor, ("sleep", 600), ("chatter", 2.3), ("double", 1))
        assert kinds(found) == ["silent", None, None]
        assert "sent nothing for 2 s" in (found[0].failure.message if found[0].failure else "")
        assert sum(supervisor.restarts().values()) <= 1


def test_a_task_that_takes_too_long_is_ended() -> None:
    """The time for one attempt is bounded however much it says."""
    with supervise(1, attempts=2, task_timeout_seconds=1.0) as supervisor:
        found = outcomes(supervisor, ("chatter", 600), ("double", 1))
    assert (found[0].attempts, found[1].result) == (2, 2)
    assert kinds(found) == ["timeout", None]


def test_tasks_are_taken_as_outcomes_are(shared: Supervisor) -> None:
    """At most two tasks a seat are taken and not yet yielded, however fast they are done."""
    taken = yielded = 0

    def tasks() -> Iterator[object]:
        nonlocal taken
        for number in range(200):
            taken += 1
            yield ("double", number)

    for _ in shared.run(tasks()):
        assert taken - yielded <= 2 * 2
        yielded += 1
    assert taken == yielded == 200


@pytest.mark.parametrize("task", [("blob", 8 * MIB), ("echo", bytes(8 * MIB))])
def test_a_slow_consumer_makes_no_task_late(task: object) -> None:
    """What does not fit the pipe waits while nobody takes it; that time is not held against it."""
    with supervise(2, attempts=1, silence_seconds=2.0, task_timeout_seconds=2.0) as supervisor:
        outcomes(supervisor, ("sleep", 0.3), ("sleep", 0.3))
        found = []
        for outcome in supervisor.run(iter([task, ("double", 1), ("chatter", 0.1)])):
            found.append(outcome)
            if len(found) == 1:
                time.sleep(2.2)
    assert kinds(found) == [None, None, None]


@needs_proc
def test_a_leaking_process_is_replaced_between_tasks() -> None:
    """It costs no attempt and no pause, and the next process starts small."""
    with supervise(1, attempts=1, memory_bytes=100 * MIB) as supervisor:
        found = outcomes(supervisor, *[("leak", 60 * MIB)] * 4)
        assert kinds(found) == [None] * 4
        first, second, third, fourth = (outcome.result for outcome in found)
        assert first == second != third == fourth
        assert 1 <= supervisor.restarts()[0] <= 2


@needs_proc
def test_a_task_that_takes_too_much_memory_is_ended() -> None:
    """A process above the hard limit is ended as the kernel would, before the machine is full."""
    with supervise(1, attempts=1, task_memory_bytes=100 * MIB) as supervisor:
        found = outcomes(supervisor, ("swell", 150 * MIB), ("double", 1))
    assert kinds(found) == ["memory", None]
    assert f"the limit is {100 * MIB}" in (found[0].failure.message if found[0].failure else "")


@pytest.mark.parametrize(
    ("body", "seconds", "words"),
    [
        ("import os; os._exit(7)", 60.0, "exit status 7"),
        ("import time; time.sleep(600)", 0.3, "was not up"),
    ],
)
def test_no_process_can_be_had(
    body: str, seconds: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that die or hang as they start end the run with an error that says how."""
    (tmp_path / "cannot_start.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with supervise(1, "cannot_start:f", start_seconds=seconds) as supervisor:
        with pytest.raises(PoolError, match=rf"no worker can be started.*{words}.*Next: "):
            list(supervisor.run([1]))
        assert supervisor.pids() == {}


def test_a_system_that_refuses_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none can be started the run ends; where some run already it goes on with those."""
    with supervise(2, attempts=2) as supervisor:
        outcomes(supervisor, ("double", 1))
        assert len(supervisor.pids()) == 1
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        found = outcomes(supervisor, *(("double", number) for number in range(50)))
        assert [outcome.result for outcome in found] == [2 * number for number in range(50)]
        with pytest.raises(PoolError, match=r"no worker can be started.*nonexistent"):
            list(supervisor.run([("crash", None), ("double", 1)]))


def test_bad_values_are_refused() -> None:
    """Limits below 0, no attempt and no seat are errors with a way out."""
    with pytest.raises(PoolError, match="silence_seconds is below 0"):
        SupervisorOptions(silence_seconds=-1)
    with pytest.raises(PoolError, match="attempts is 0"):
        SupervisorOptions(attempts=0)
    with pytest.raises(PoolError, match="no seat"):
        Supervisor((), ENTRY)
