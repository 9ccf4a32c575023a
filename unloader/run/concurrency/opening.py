"""Whether a run's number of workers is steered, and the opening of what that needs.

A run without such options is steered from the moment when somebody asks it for something; until
then it pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import ConfigError
from unloader.events import ParallelismChanged
from unloader.model import ConcurrencyOptions, Request
from unloader.placement.seating import (
    automatic_parallelism,
    sessions_beside_workers,
)
from unloader.sources.abilities import open_load

if TYPE_CHECKING:
    from unloader.run.concurrency.load_watch import LoadWatch
    from unloader.run.concurrency.steered import SteeredRun
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
        from unloader.run.concurrency.steered import SteeredRun

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
