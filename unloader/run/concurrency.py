"""The number of workers of a run, and how it is steered.

A run without such options is steered once `unloader set` asks it for something. Until then it
measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from numa.topology import detect
from unloader.engine.executor import Executor
from unloader.engine.schedule import RowCount, Schedule
from unloader.errors import ConfigError
from unloader.events import ParallelismChanged
from unloader.model import ConcurrencyOptions, FetchOrder, Release, Request
from unloader.nouns import counted
from unloader.placement.seating import automatic_parallelism, sessions_beside_workers
from unloader.request.settings import parse_hours

if TYPE_CHECKING:
    from unloader.engine.steering import Concurrency, CpuLimit, Held, LoadLimit
    from unloader.run.loads import HostCpu, LoadWatch
    from unloader.sources.base import Catalog
    from unloader.status.model import Wish
    from unloader.status.recording import LiveRun


_SILENT_SECONDS = 8.0
"""Without a count for this time, it is not known whether the limit is kept."""

_FEWEST, _CPUS_A_WORKER = 2, 4
"""An adaptive run begins with one worker for four CPUs: the best number is some doublings away."""


def watched_load(known: ConcurrencyOptions, catalog: Catalog) -> LoadWatch | None:
    """Begin to count active sessions if a limit needs it; refuse unmeasurable limits."""
    if known.max_cpu is None and known.max_db_load is None:
        return None
    # Imported here: few runs have a limit.
    from unloader.run.loads import HostCpu, LoadWatch

    if known.max_cpu is not None and not HostCpu().readable():
        raise ConfigError(
            "--max-cpu does not work: this host's /proc/stat cannot be read",
            "leave --max-cpu out, or run on Linux with /proc mounted",
        )
    if known.max_db_load is None:
        return None
    return LoadWatch(catalog.open_load)


MOST_STEPS = 1000
"""As many are kept for the manifest, the latest: a limit may come and go for days."""


_IDLE_SECONDS = 5.0
"""A place that is idle for this time, as fewer are to work, gives its session back."""


class RunSteering(Struct, kw_only=True):
    """Holds a run to a number of workers, once the options or `unloader set` ask for something.

    Everything is called in the engine's thread.
    """

    request: Request
    most: int
    """Workers that have a seat and may have a unit."""
    live: LiveRun
    pids: Callable[[], Mapping[int, int]]
    load: LoadWatch | None
    seconds: Callable[[], float]
    """How long the run has been active."""
    count: RowCount = field(default_factory=RowCount)
    control: Concurrency | None = None
    """None as long as nothing is asked for."""
    _from_s: float = 0.0
    """When steering began, in seconds of the run."""
    _options: ConcurrencyOptions = field(default_factory=ConcurrencyOptions)
    _steps: list[ParallelismChanged] = field(default_factory=list)
    _host: HostCpu | None = None
    _cpu: CpuLimit | None = None
    _load_limit: LoadLimit | None = None
    _paused: int = 0
    """How many attempts are held up."""
    _releasing: set[int] = field(default_factory=set)
    """Idle places that are giving their session back."""
    _idle_since: dict[int, float] = field(default_factory=dict)

    def turn(self, schedule: Schedule[Any], executor: Executor, now: float) -> bool:
        """Apply requests, and carry out decisions; return whether the run is steered."""
        while self.live.wishes:
            wish = self.live.wishes.pop(0)
            control = self.control or self.begin(ConcurrencyOptions())
            refused = self._refusal(wish)
            if not refused:
                self._take(wish, control)
            self._show(control, taken=wish.id, refused=refused)
        if self.control is None:
            return False
        control, at_work = self.control, schedule.at_work
        control.decide(self._limits(at_work, now), at_work, schedule.capacity.limit, now)
        if control.steps:
            self._report(control)
        schedule.allowed = control.places
        executor.start(control.places)
        orders = control.pauses(schedule.running_places, schedule.held, now)
        for place, paused in orders.items():
            attempt = schedule.running(place)
            assert attempt is not None
            order = FetchOrder(unit=attempt.unit.id, attempt=attempt.attempt, paused=paused)
            executor.tell(place, order)
        self._paused = len(schedule.held)
        if orders:
            self._report(control)
        # Idle places close their sessions while no further one may work.
        if schedule.at_work < control.places:
            self._idle_since.clear()
            return True
        idle = [place for place in executor.places() if schedule.has_session(place)]
        self._idle_since = {place: self._idle_since.get(place, now) for place in idle}
        for place, since in self._idle_since.items():
            if now - since >= _IDLE_SECONDS:
                self._releasing.add(place)
                executor.send(place, Release())
        return True

    def is_released(self, place: int) -> bool:
        """Return whether an event is of a place that gives its session back; it has done so."""
        is_own = place in self._releasing
        self._releasing.discard(place)
        return is_own

    def steps(self) -> tuple[ParallelismChanged, ...] | None:
        """Return the latest steps, with times from the start of the run; None without steering."""
        if self.control is None:
            return None
        return tuple(
            replace(step, seconds=round(self._from_s + step.seconds, 1)) for step in self._steps
        )

    def begin(self, options: ConcurrencyOptions) -> Concurrency:
        # Imported here: few runs are steered.
        from unloader.engine.steering import Concurrency

        self._from_s = self.seconds()
        first = _FEWEST
        if options.adaptive:
            # Few for this machine: the best number is to be found.
            cpus = automatic_parallelism(detect(), self.request.seats)
            first = max(_FEWEST, cpus // _CPUS_A_WORKER)
        self.control = Concurrency(
            most=self.most,
            wanted=None if options.adaptive and self.most > 1 else self.most,
            began=time.monotonic(),
            first=first,
            count=self.count,
        )
        self._follow(options)
        return self.control

    def _take(self, wish: Wish, control: Concurrency) -> None:
        names = ("max_sessions", "max_cpu", "slow_between", "slow_parallelism")
        changes = {
            name: getattr(wish, name) or None for name in names if getattr(wish, name) is not None
        }
        self._follow(replace(self._options, **changes))
        now = time.monotonic()
        if wish.parallelism is not None:
            named = {"adaptive": None, "auto": self.most}
            asked = named.get(str(wish.parallelism), wish.parallelism)
            number = asked if asked is None else int(asked)
            control.ask(number if self.most > 1 else 1, now, wish.by)
        if changes:
            said = ", ".join(
                f"{name.replace('_', '-')} {_shown(getattr(wish, name))}" for name in changes
            )
            control.note_asked(f"{wish.by} asks for {said}", now)
        self._report(control)

    def _refusal(self, wish: Wish) -> str:
        """Return why a wish cannot be granted; empty if it can."""
        if isinstance(wish.parallelism, int) and not 1 <= wish.parallelism <= self.most:
            return (
                f"the run has seats for {counted(self.most, 'worker')}, but the request asks for "
                f"{wish.parallelism}"
            )
        beside = sessions_beside_workers(self.request)
        if wish.max_sessions and wish.max_sessions <= beside:
            return (
                f"{wish.max_sessions} sessions leave no session for a worker: the run itself needs "
                f"{beside}"
            )
        if wish.max_cpu:
            from unloader.run.loads import HostCpu

            if not (0 < wish.max_cpu <= 1 and HostCpu().readable()):
                return "the CPU load of the run's host cannot be read"
        if wish.slow_parallelism is not None and wish.slow_parallelism < 1:
            return "at least one worker must continue"
        try:
            parse_hours(wish.slow_between or "00:00-01:00")
        except ValueError as error:
            return str(error)
        return ""

    def _follow(self, known: ConcurrencyOptions) -> None:
        from unloader.engine.steering import CpuLimit, LoadLimit

        self._options = known
        if known.max_cpu is None:
            self._cpu = None
        elif self._cpu is None:
            from unloader.run.loads import HostCpu

            self._host = self._host or HostCpu()
            self._cpu = CpuLimit(known.max_cpu, self.most)
        else:
            self._cpu.share = known.max_cpu
        if known.max_db_load is not None and self._load_limit is None:
            self._load_limit = LoadLimit(known.max_db_load, self.most)

    def _limits(self, at_work: int, now: float) -> Mapping[str, Held]:
        from unloader.engine.steering import Held, is_between

        found: dict[str, Held | None] = {}
        if self._cpu is not None and self._host is not None:
            shares = self._host.look(self.pids().values(), now)
            if shares is not None:
                self._cpu.take(*shares, at_work, now)
            found["max-cpu"] = self._cpu.held
        if self._load_limit is not None and self.load is not None:
            for count in self.load.taken():
                self._load_limit.take(count)
            if time.monotonic() - self.load.heard > _SILENT_SECONDS:
                self._load_limit.unknown()
            found["max-db-load"] = self._load_limit.held
        known = self._options
        if known.max_sessions is not None:
            places = known.max_sessions - sessions_beside_workers(self.request)
            if places < self.most:
                reason = f"--max-sessions {known.max_sessions}"
                found["max-sessions"] = Held(places=places, reason=reason)
        if known.slow_between and known.slow_parallelism < self.most:
            here = time.localtime()
            if is_between(here.tm_hour * 60 + here.tm_min, *parse_hours(known.slow_between)):
                reason = f"--slow-between {known.slow_between} ({here.tm_zone})"
                found["slow-between"] = Held(places=known.slow_parallelism, reason=reason)
        return {name: held for name, held in found.items() if held is not None}

    def _report(self, control: Concurrency) -> None:
        for step in control.steps:
            self.live(step)
        self._steps = [*self._steps, *control.steps][-MOST_STEPS:]
        control.steps.clear()
        self._show(control)

    def _show(self, control: Concurrency, **answer: str) -> None:
        # Imported here: few runs are steered.
        from unloader.status.model import ParallelismStatus

        last = self._steps[-1] if self._steps else None
        before = self.live.parallelism
        self.live.parallelism = ParallelismStatus(
            mode="adaptive" if control.is_adaptive else "fixed",
            workers=control.places,
            of=self.most,
            paused=self._paused,
            limit=control.limit.reason if control.limit is not None else "",
            since=last.seconds if last is not None else 0.0,
            reason=last.reason if last is not None else "",
            taken=answer.get("taken", before.taken if before else ""),
            refused=answer.get("refused", before.refused if before else ""),
        )


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value * 100:g}%"
    return str(value) if value else "none"
