"""Carries out what the control decides: what is handed out, held up, let go on, and given back.

Between the engine's turns it is given the schedule and the executor. Idle places that are not to
work give their sessions back after a while, so that a database sees as many as there are at work.

Which attempts are held up where fewer places are to work at once than are at work.

Pure. Usually a place that is too many ends its unit and gets no other. A unit may take an hour,
though, and a limit holds within seconds: then the fetch of the places with the highest numbers is
held up until there is room for them again. What is begun goes on before anything new begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic

from msgspec import Struct, field

from numa.model import Finished, Lost, Raised
from unloader.engine.concurrency.control import Concurrency
from unloader.engine.concurrency.limits import Held
from unloader.engine.executor import Executor, ExecutorEvent
from unloader.engine.schedule import Schedule, U
from unloader.model import FetchOrder, Release

GRACE_SECONDS = 2.0
"""Units that end within that time make room by themselves."""


class Orders(Struct, frozen=True, kw_only=True):
    """What is to be told to places."""

    pause: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()


class Pauses(Struct):
    """The places whose attempts are held up."""

    held: set[int] = field(default_factory=set)
    _too_many_since: float | None = None

    def orders(self, running: Collection[int], allowed: int, now: float, *, urgent: bool) -> Orders:
        """Return which places are to be held up or let go on; they count as told.

        Args:
            running: Places with an attempt.
            allowed: How many may be at work.
            now: As everywhere.
            urgent: A limit says so, and not only the search for the best number.
        """
        self.held &= set(running)
        working = sorted(set(running) - self.held)
        surplus = len(working) - allowed
        if surplus <= 0:
            self._too_many_since = None
            back = tuple(sorted(self.held)[:-surplus]) if surplus else ()
            self.held -= set(back)
            return Orders(resume=back)
        if not urgent:
            self._too_many_since = None
            return Orders()
        if self._too_many_since is None:
            self._too_many_since = now
        if now - self._too_many_since < GRACE_SECONDS:
            return Orders()
        chosen = tuple(working[-surplus:])
        self.held.update(chosen)
        return Orders(pause=chosen)

    def ended(self, place: int) -> None:
        """Note that the attempt at a place is over, held up or not."""
        self.held.discard(place)


_IDLE_SECONDS = 5.0
"""A place that is idle for so long, as fewer are to work, gives its session back."""


class Steering(Struct, Generic[U], kw_only=True):
    """Holds a run to the number of places that its control decides."""

    control: Concurrency
    limits: Callable[[int, float], Mapping[str, Held]]
    """Returns what limits allow now, by name, given the places at work and the time."""
    tell: Callable[[], None]
    """Called when there are new steps, or other attempts are held up."""
    _pauses: Pauses = field(default_factory=Pauses)
    _releasing: set[int] = field(default_factory=set)
    """Idle places that are giving their session back."""
    _idle_since: dict[int, float] = field(default_factory=dict)

    @property
    def paused(self) -> int:
        """How many attempts are held up."""
        return len(self._pauses.held)

    def turn(self, schedule: Schedule[U], executor: Executor, now: float) -> None:
        """Decide, and carry out what follows; before anything is handed out.

        Args:
            schedule: What runs where.
            executor: Has the places.
            now: As for the control.
        """
        control, at_work = self.control, schedule.at_work
        held = self.limits(at_work, now)
        control.decide(held, at_work, schedule.capacity.limit, now)
        if control.steps:
            self.tell()
        schedule.allowed = control.places
        executor.start(control.places)
        running = schedule.running_places
        orders = self._pauses.orders(running, control.places, now, urgent=control.is_urgent)
        for places, paused in ((orders.pause, True), (orders.resume, False)):
            for place in places:
                attempt = schedule.running(place)
                assert attempt is not None
                order = FetchOrder(unit=attempt.unit.id, attempt=attempt.attempt, paused=paused)
                executor.tell(place, order)
        if orders.pause or orders.resume:
            self.tell()
        schedule.held = set(self._pauses.held)
        self._release_idle(schedule, executor, now)

    def ended(self, place: int) -> None:
        """Note that an attempt is over."""
        self._pauses.ended(place)

    def is_own(self, schedule: Schedule[U], event: ExecutorEvent) -> bool:
        """Take an event of a place that gives its session back; return whether it was one."""
        if not isinstance(event, Finished | Raised | Lost):
            return False
        if event.worker not in self._releasing:
            return False
        self._releasing.discard(event.worker)
        schedule.vacated(event.worker)
        return True

    def _release_idle(self, schedule: Schedule[U], executor: Executor, now: float) -> None:
        """Have idle places close their sessions while no further one may work."""
        if schedule.at_work < self.control.places:
            self._idle_since.clear()
            return
        idle = [place for place in executor.places() if schedule.has_session(place)]
        self._idle_since = {place: self._idle_since.get(place, now) for place in idle}
        for place, since in self._idle_since.items():
            if now - since >= _IDLE_SECONDS:
                self._releasing.add(place)
                executor.send(place, Release())
