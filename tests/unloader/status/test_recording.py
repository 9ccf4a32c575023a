"""The record of a running run: its content as events come, and failures to write it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from numa.model import Seat
from unloader import redaction
from unloader.errors import OutputFailed
from unloader.events import Event, Notice, RunStarted, Tick, UnitAdvanced, UnitFailed, UnitStarted
from unloader.status import recording
from unloader.status.model import LiveStatus, parse_status
from unloader.status.recording import LiveRun
from unloader.storage.storage_protocol import Requests

ENOUGH_SECONDS = 180.0
SEATS = (
    Seat(worker=0, node=1, cpus=(4, 5), memory_node=1),
    Seat(worker=1, node=0, cpus=(), memory_node=None),
)


class Places:
    """The place of a run's record; `fails` is the error of the disk."""

    def __init__(self, fails: OSError | None = None) -> None:
        """Begin with nothing shown."""
        self.fails, self.asked, self.wished = fails, False, b""
        self.shown: list[LiveStatus] = []
        self.tried = threading.Semaphore(0)

    def show(self, data: bytes) -> None:
        """Keep a record."""
        self.tried.release()
        if self.fails is not None:
            raise self.fails
        status = parse_status(data)
        assert status is not None
        self.shown.append(status)

    def requests(self) -> Requests:
        """Return the requests of a user."""
        return Requests(stop=self.asked, change=self.wished.decode())

    def wait(self) -> None:
        """Wait for a record of the present state."""
        while self.tried.acquire(blocking=False):
            continue
        # The first one may have been begun before.
        for _ in range(2):
            assert self.tried.acquire(timeout=ENOUGH_SECONDS)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(recording, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(recording, "EVERY_SECONDS", 0.01)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def live_run(places: Places, events: list[Event]) -> LiveRun:
    """Return a run of two units that has begun."""
    run = LiveRun("r-1", SEATS, events.append, lambda: False)
    run.record_in(places)
    run(RunStarted(run_id="r-1", table="t", units=2, workers=2, rows=20, bytes=None))
    return run


def test_workers_are_shown_with_what_they_wait_for() -> None:
    """A busy one with its unit and its seat, and an idle one with the retry that is due."""
    places = Places()
    run = live_run(places, [])
    run(UnitStarted(worker=0, unit="1", partition="p", attempt=1, rows=10))
    run(UnitStarted(worker=1, unit="2", partition=None, attempt=1, rows=10))
    run(UnitAdvanced(worker=0, unit="1", rows=7, bytes=70, waits_for="destination"))
    run(UnitFailed(worker=1, unit="2", attempt=1, message="lost", retry_in_seconds=100))
    places.wait()
    run.close()
    last = places.shown[-1]
    busy, idle = last.workers
    assert (busy.unit, busy.node, busy.cpus, busy.rows) == ("1", 1, (4, 5), 7)
    assert (busy.waits_for, idle.waits_for, idle.unit) == ("destination", "retry", None)
    assert idle.retry_in_seconds is not None
    assert 0 < idle.retry_in_seconds <= 100
    assert (last.units.running, last.units.waiting) == (1, 1)
    assert (last.retries, last.last_error) == (1, "lost")
    assert [each.sequence for each in places.shown] == list(range(1, len(places.shown) + 1))
    assert (last.pid, last.host) == (os.getpid(), os.uname().nodename)


def test_what_is_waited_for_is_named() -> None:
    """The disk without room, and the last notice of the run."""
    places = Places()
    run = live_run(places, [])
    run(UnitStarted(worker=0, unit="1", partition=None, attempt=1, rows=10))
    waits = {"waiting_for": "it", "waits_for": "destination"}
    run(UnitAdvanced(worker=0, unit="1", rows=0, bytes=0, **waits))
    run(Notice(text="the run waits"))
    places.wait()
    run.close()
    worker = places.shown[-1].workers[0]
    assert (worker.waits_for, worker.waits_detail) == ("destination", "it")
    assert places.shown[-1].last_notice == "the run waits"


def test_a_record_that_cannot_be_written_is_told_once() -> None:
    """The run continues, and its observer gets one line."""
    places, events = Places(OSError(28, "No space left on device")), []
    run = live_run(places, events)
    places.wait()
    for _ in range(3):
        run(Tick())
    run.close()
    told = [event.text for event in events if isinstance(event, Notice)]
    assert told == ["`unloader status` cannot follow this run: No space left on device"]


def test_what_ended_a_run_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record has the kind of the error and its text, and no password."""
    monkeypatch.setattr(redaction, "_learned", {"tiger-4711"})
    places = Places()
    run = live_run(places, [])
    run(UnitFailed(worker=0, unit="1", attempt=1, message="pw tiger-4711", retry_in_seconds=1))
    places.wait()
    assert places.shown[-1].last_error == "pw ***"
    run.close(OutputFailed("no room for tiger-4711", "make some"))
    last = places.shown[-1]
    assert (last.ended, last.last_error) == ("OutputFailed", "no room for ***. Next: make some")


def test_others_can_ask_for_the_end() -> None:
    """The run gets the request, and passes it to its observer."""
    places, events = Places(), []
    run = live_run(places, events)
    assert not run.stop()
    places.asked = True
    places.wait()
    assert run.stop()
    run(Tick())
    run.close()
    assert any(
        "was called: the work units" in each.text for each in events if isinstance(each, Notice)
    )
    assert places.shown[-1].stopping


def test_a_stream_has_no_record() -> None:
    """Without a place no thread starts, and events go through."""
    events: list[Event] = []
    run = LiveRun("r-1", SEATS, events.append, lambda: True)
    run(Tick())
    run.close()
    assert (events, run.stop()) == ([Tick()], True)
