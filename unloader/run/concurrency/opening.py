"""Whether a run's number of workers is steered, and the opening of what that needs.

A run without such options is steered from the moment when somebody asks it for something; until
then it pays nothing for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.topology import detect
from partition_planner.model import WorkUnit
from unloader.engine.concurrency.climbing import FEW
from unloader.engine.concurrency.control import Concurrency
from unloader.engine.concurrency.limits import CpuLimit, Held, LoadLimit, is_between
from unloader.engine.concurrency.rates import RowCount
from unloader.engine.concurrency.steering import Steering
from unloader.errors import ConfigError
from unloader.events import Event, ParallelismChanged
from unloader.model import ConcurrencyOptions, Request
from unloader.nouns import counted
from unloader.placement.seating import (
    automatic_parallelism,
    sessions_beside_workers,
)
from unloader.request.settings import parse_hours
from unloader.run.concurrency.host_cpu import HostCpu
from unloader.run.concurrency.load_watch import LoadWatch
from unloader.sources.abilities import open_load
from unloader.status.model import ParallelismStatus, Wish

if TYPE_CHECKING:
    from unloader.run.concurrency.load_watch import LoadWatch
    from unloader.sources.base import Catalog
    from unloader.status.model import ParallelismStatus
    from unloader.status.recording import LiveRun


_FEWEST, _CPUS_A_WORKER = 2, 4
"""An adaptive run begins with a worker for so many CPUs: the best number is some doublings away."""


def is_adaptive(request: Request) -> bool:
    """Return whether the number of workers is to be found by measuring."""
    return request.concurrency is not None and request.concurrency.adaptive


def watched_load(request: Request, catalog: Catalog) -> LoadWatch | None:
    """Begin to count active sessions, where a limit needs that; check the other limits.

    Raises:
        UsageError: The source cannot tell.
        ConfigError: The user may not see the sessions of others, or this system has no figures of
            its CPUs.
        SourceError: The database refused.
    """
    known = request.concurrency
    if known is None:
        return None
    if known.max_cpu is not None:
        from unloader.run.concurrency.host_cpu import HostCpu

        if not HostCpu().readable():
            raise ConfigError(
                "--max-cpu does not work: this host's /proc/stat cannot be read",
                "leave --max-cpu out, or run on Linux with /proc mounted",
            )
    if known.max_db_load is None:
        return None
    from unloader.run.concurrency.load_watch import LoadWatch

    return LoadWatch(open_load(catalog), lambda: open_load(catalog))


class RunSteering(Struct, kw_only=True):
    """What steers a run: nothing, as long as nobody has asked for it."""

    request: Request
    most: int
    """Workers that have a seat and may have a unit."""
    live: LiveRun
    pids: Callable[[], Mapping[int, int]]
    load: LoadWatch | None
    seconds: Callable[[], float]
    """Returns how long the run has been going on."""
    current: SteeredRun | None = None
    _from_s: float = 0.0
    """When steering began, by those."""

    def __post_init__(self) -> None:
        """Begin where the options ask for it."""
        if self.request.concurrency is not None:
            self.current = self._new(self.request.concurrency)

    @property
    def first_workers(self) -> int:
        """How many workers are wanted at first."""
        return self.most if self.current is None else self.current.steering.control.places

    def turn(self) -> SteeredRun | None:
        """Take what is asked by hand; return what steers the run now."""
        while (wish := self.live.wish()) is not None:
            if self.current is None:
                self.current = self._new(ConcurrencyOptions())
            self.current.take(wish)
        return self.current

    def steps(self) -> tuple[ParallelismChanged, ...] | None:
        """Return the steps for the manifest; None where the run was not steered.

        Their times are those of its units and samples: since the run began.
        """
        if self.current is None:
            return None
        return tuple(
            replace(step, seconds=round(self._from_s + step.seconds, 1))
            for step in self.current.record()
        )

    def _new(self, options: ConcurrencyOptions) -> SteeredRun:

        self._from_s = self.seconds()
        return SteeredRun(
            options=options,
            most=self.most,
            first=self._first() if options.adaptive else _FEWEST,
            sessions_beside=sessions_beside_workers(self.request),
            observe=self.live,
            show=self._show,
            pids=self.pids,
            load=self.load,
        )

    def _first(self) -> int:
        """Return how many begin where the best number is to be found: few for this machine."""
        cpus = automatic_parallelism(detect(), self.request.seats)
        return max(_FEWEST, cpus // _CPUS_A_WORKER)

    def _show(self, status: ParallelismStatus) -> None:
        self.live.parallelism = status


MOST_STEPS = 1000
"""As many are kept for the manifest, the latest: a limit may come and go for days."""


@dataclass(slots=True, kw_only=True)
class SteeredRun:
    """Steers one run; everything is called in the engine's thread."""

    options: ConcurrencyOptions
    most: int
    """Workers that have a seat."""
    first: int = FEW
    """Workers to begin with where the best number is to be found."""
    sessions_beside: int
    """Sessions of the run that no worker has."""
    observe: Callable[[Event], None]
    show: Callable[[ParallelismStatus], None]
    """Takes what others see of it."""
    pids: Callable[[], Mapping[int, int]] = dict
    """Returns the process of each worker."""
    load: LoadWatch | None = None
    count: RowCount = field(default_factory=RowCount)
    steps: list[ParallelismChanged] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    steering: Steering[WorkUnit] = field(init=False)
    _host: HostCpu = field(default_factory=HostCpu)
    _cpu: CpuLimit | None = None
    _load_limit: LoadLimit | None = None
    _status: ParallelismStatus | None = None

    def __post_init__(self) -> None:
        """Begin with what the options say."""
        control = Concurrency(
            most=self.most,
            wanted=None if self.options.adaptive and self.most > 1 else self.most,
            began=self.clock(),
            first=self.first,
            count=self.count,
        )
        self.steering = Steering(control=control, limits=self._limits, tell=self._tell)
        self._follow_options()

    def take(self, wish: Wish) -> None:
        """Do what is asked, or say why not; either is seen by who asked."""
        refused = self._refusal(wish)
        if not refused:
            changes = {
                name: getattr(wish, name)
                for name in ("max_sessions", "max_cpu", "slow_between")
                if getattr(wish, name) is not None
            }
            changes = {name: value or None for name, value in changes.items()}
            if wish.slow_parallelism is not None:
                changes["slow_parallelism"] = wish.slow_parallelism
            self.options = replace(self.options, **changes)
            self._follow_options()
            control, now = self.steering.control, self.clock()
            if wish.parallelism is not None:
                asked = {"adaptive": None, "auto": self.most}.get(
                    str(wish.parallelism), wish.parallelism
                )
                number = asked if asked is None else int(asked)
                control.ask(number if self.most > 1 else 1, now, wish.by)
            if changes:
                said = ", ".join(f"{name.replace('_', '-')} {_shown(getattr(wish, name))}"
                                 for name in changes)  # fmt: skip
                control.note_asked(f"{wish.by} asks for {said}", now)
            self._tell()
        self._show(taken=wish.id, refused=refused)

    def record(self) -> tuple[ParallelismChanged, ...]:
        """Return the latest steps."""
        return tuple(self.steps)

    def _refusal(self, wish: Wish) -> str:
        """Return why a wish cannot be granted; empty if it can."""
        if isinstance(wish.parallelism, int) and not 1 <= wish.parallelism <= self.most:
            return (
                f"the run has seats for {counted(self.most, 'worker')}, but the request asks for "
                f"{wish.parallelism}"
            )
        if wish.max_sessions and wish.max_sessions <= self.sessions_beside:
            return (
                f"{wish.max_sessions} sessions leave no session for a worker: the run itself needs "
                f"{self.sessions_beside}"
            )
        if wish.max_cpu and not (0 < wish.max_cpu <= 1 and self._host.readable()):
            return "the CPU load of the run's host cannot be read"
        if wish.slow_parallelism is not None and wish.slow_parallelism < 1:
            return "at least one worker must continue"
        try:
            parse_hours(wish.slow_between or "00:00-01:00")
        except ValueError as error:
            return str(error)
        return ""

    def _follow_options(self) -> None:
        known = self.options
        if known.max_cpu is None:
            self._cpu = None
        elif self._cpu is None:
            self._cpu = CpuLimit(known.max_cpu, self.most)
        else:
            self._cpu.share = known.max_cpu
        if known.max_db_load is not None and self._load_limit is None:
            self._load_limit = LoadLimit(known.max_db_load, self.most)

    def _limits(self, at_work: int, now: float) -> Mapping[str, Held]:
        found: dict[str, Held | None] = {}
        if self._cpu is not None:
            shares = self._host.look(self.pids().values(), now)
            if shares is not None:
                self._cpu.take(shares.busy, shares.own, at_work, now)
            found["max-cpu"] = self._cpu.held
        if self._load_limit is not None and self.load is not None:
            for count in self.load.taken():
                self._load_limit.take(count)
            if self.load.is_silent:
                self._load_limit.unknown()
            found["max-db-load"] = self._load_limit.held
        found["max-sessions"] = self._sessions()
        found["slow-between"] = self._slow_hours()
        return {name: held for name, held in found.items() if held is not None}

    def _sessions(self) -> Held | None:
        most = self.options.max_sessions
        if most is None or most - self.sessions_beside >= self.most:
            return None
        return Held(places=most - self.sessions_beside, reason=f"--max-sessions {most}")

    def _slow_hours(self) -> Held | None:
        hours, most = self.options.slow_between, self.options.slow_parallelism
        if not hours or most >= self.most:
            return None
        here = time.localtime()
        if not is_between(here.tm_hour * 60 + here.tm_min, *parse_hours(hours)):
            return None
        return Held(places=most, reason=f"--slow-between {hours} ({here.tm_zone})")

    def _tell(self) -> None:
        control = self.steering.control
        for step in control.steps:
            self.observe(step)
        self.steps = [*self.steps, *control.steps][-MOST_STEPS:]
        control.steps.clear()
        self._show()

    def _show(self, **answer: str) -> None:
        control, last = self.steering.control, self.steps[-1] if self.steps else None
        before = self._status
        self._status = ParallelismStatus(
            mode="adaptive" if control.is_adaptive else "fixed",
            workers=control.places,
            of=self.most,
            paused=self.steering.paused,
            limit=control.limit.reason if control.limit is not None else "",
            since=last.seconds if last is not None else 0.0,
            reason=last.reason if last is not None else "",
            taken=answer.get("taken", before.taken if before else ""),
            refused=answer.get("refused", before.refused if before else ""),
        )
        self.show(self._status)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value * 100:g}%"
    return str(value) if value else "none"
