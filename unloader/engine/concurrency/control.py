"""How many places work now: what is asked for or found by measuring, and the lowest limit.

Pure: the time, the rows and what limits allow go in, a number and the steps to it come out. Where a
source refuses sessions `unloader.engine.schedule` counts for itself, and the lower number wins;
here that only bounds the search.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from unloader.engine.concurrency.climbing import FEW, Climber
from unloader.engine.concurrency.limits import Held
from unloader.engine.concurrency.rates import RowCount, Windows
from unloader.events import ParallelismChanged
from unloader.model import Cause
from unloader.nouns import counted

_QUIET_SECONDS = 1.0
"""After a change, until the rate belongs to the new number: buffers fill."""

_PATIENCE_SECONDS = 30.0
"""For the first rows of each place after a change, whose session must open and whose query begin;
and for as many places to be at work as are tried."""


class Concurrency(Struct, kw_only=True):
    """The number of places of one run."""

    most: int
    """Places that have a seat."""
    wanted: int | None
    """How many are to work; None finds the best number."""
    began: float
    """By the clock of the calls: when the first unit was handed out."""
    first: int = FEW
    """How many work at first where the best number is to be found."""
    count: RowCount = field(default_factory=RowCount)
    steps: list[ParallelismChanged] = field(default_factory=list)
    """Those not told yet; the caller takes them away."""
    limit: Held | None = None
    """The lowest limit, where it is below what would work without."""
    _climber: Climber | None = None
    _windows: Windows = field(default_factory=Windows)
    _measured_at: int = 0
    """Places that the windows are of."""
    _quiet_until: float = 0.0
    _short_since: float | None = None
    """Since when fewer are at work than are tried."""
    _told: int = 0
    _told_limit: Held | None = None

    def __post_init__(self) -> None:
        """Begin with what is asked for, or with few places."""
        if self.wanted is None:
            self._climber = Climber(self.most, self.first)
        asked = self._asked
        text = "the run begins with this number"
        if self._climber is not None:
            text += f", to find the best number up to {self.most}"
        self._step(asked, "start", text, self.began)

    @property
    def places(self) -> int:
        """How many places may work now."""
        return self._told

    @property
    def is_adaptive(self) -> bool:
        """Whether the number is found by measuring."""
        return self._climber is not None

    @property
    def is_urgent(self) -> bool:
        """Whether places that are too many are to be held up, and not only to end their units."""
        return self.limit is not None or self._climber is None

    @property
    def settled(self) -> bool:
        """Whether no other number is being tried."""
        return self._climber is None or self._climber.settled

    def ask(self, wanted: int | None, now: float, by: str) -> None:
        """Take another number by hand; None is to find it.

        Args:
            wanted: No more than `most`.
            now: As everywhere.
            by: Who asks, for the record.
        """
        before, self.wanted = self._told, wanted
        if wanted is None:
            if self._climber is None:
                self._climber = Climber(self.most)
                self._climber.begin_at(before)
            text = f"{by} asks for the best number; the search starts from here"
        else:
            self._climber = None
            text = f"{by} asks for {wanted}"
        self._step(min(self._asked, self._bound), "asked", text, now)

    def note_asked(self, text: str, now: float) -> None:
        """Put on record that limits were changed by hand; what follows of them comes later."""
        self._step(self._told, "asked", text, now)

    def decide(
        self, limits: Mapping[str, Held], at_work: int, sessions: int | None, now: float
    ) -> None:
        """Decide anew; several times a second.

        Args:
            limits: By name, those that allow fewer places than there are.
            at_work: Places that have an attempt which is not held up.
            sessions: How many the source lets work, where it has refused a session.
            now: As everywhere.
        """
        self.limit = min(limits.values(), key=lambda each: each.places, default=None)
        if self.limit is not None and self.limit.places >= self._asked:
            self.limit = None
        self._follow_limit(now)
        if self._climber is not None:
            self._climb(self._climber, limits, at_work, sessions, now)

    @property
    def _asked(self) -> int:
        """How many would work without a limit."""
        return self._climber.level if self._climber is not None else self.wanted or self.most

    @property
    def _bound(self) -> int:
        return self.most if self.limit is None else self.limit.places

    def _follow_limit(self, now: float) -> None:
        places = min(self._asked, self._bound)
        if places == self._told:
            return
        if self.limit is not None:
            self._told_limit = self.limit
            self._step(places, "limit", self.limit.reason, now)
        else:
            before, self._told_limit = self._told_limit, None
            why = f"no longer: {before.reason}" if before else "no limit applies any more"
            self._step(places, "limit", why, now)

    def _climb(
        self,
        climber: Climber,
        limits: Mapping[str, Held],
        at_work: int,
        sessions: int | None,
        now: float,
    ) -> None:
        allowed = min((each.places for each in limits.values()), default=self.most)
        if sessions is not None:
            allowed = min(allowed, max(sessions, 1))
        if climber.level > allowed and climber.level > climber.base:
            climber.give_up_trial()
            self._go_back(climber, "a limit allows fewer workers than the trial had", now)
        if self.limit is not None:
            # Some may be at work still; what comes meanwhile is not what their number brings.
            self._windows.interrupt()
            self._measured_at = 0
            return
        if at_work != climber.level:
            # While a unit ends, a session opens, or nothing is left to be done.
            self._windows.interrupt()
            if at_work < climber.level:
                self._note_short(climber, now)
            return
        self._short_since = None
        if self._measured_at != climber.level:
            self._measured_at = climber.level
            self._windows.restart()
            self._quiet_until = now + _QUIET_SECONDS
            self.count.heard.clear()
        if not self._is_told_apart(at_work, now):
            return
        if not self._windows.look(self.count, at_work, now):
            return
        here = self._windows.measured()
        move = None if here is None else climber.consider(here, allowed, now)
        if move is not None and here is not None:
            places = min(climber.level, self._bound)
            self._step(places, move.cause, move.reason, now, here.rows_per_second)

    def _is_told_apart(self, at_work: int, now: float) -> bool:
        """Return whether rows that come now are those of as many places as are at work."""
        if len(self.count.heard) < at_work:
            return now >= self._quiet_until + _PATIENCE_SECONDS
        return now >= self._quiet_until

    def _note_short(self, climber: Climber, now: float) -> None:
        """Give up a trial for which there are too few places, or too few units, for long."""
        if climber.level <= climber.base:
            return
        if self._short_since is None:
            self._short_since = now
        if now - self._short_since >= _PATIENCE_SECONDS:
            self._short_since = None
            text = (
                f"{counted(climber.level, 'worker was', 'workers were')} not at work for "
                f"{_PATIENCE_SECONDS:g} s"
            )
            climber.give_up_trial(is_out_of_reach=True)
            self._go_back(climber, text, now)

    def _go_back(self, climber: Climber, reason: str, now: float) -> None:
        places = min(climber.level, self._bound)
        if places != self._told:
            self._step(places, "not faster", reason, now)

    def _step(
        self, places: int, cause: Cause, reason: str, now: float, rate: float | None = None
    ) -> None:
        if rate is None:
            here = self._windows.measured()
            rate = 0.0 if here is None else here.rows_per_second
        self._told = places
        self.steps.append(
            ParallelismChanged(
                seconds=round(max(0.0, now - self.began), 1),
                workers=places,
                of=self.most,
                rows_per_second=round(rate, 1),
                cause=cause,
                reason=reason,
            )
        )
