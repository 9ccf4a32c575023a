"""What is to be done, and the levels that say how fast that goes."""

from __future__ import annotations

from msgspec import Struct

from unloader.sizing.model import Question


class Level(Struct, frozen=True, kw_only=True):
    """What so many workers did."""

    workers: int
    cores: float
    rate: float
    """Bytes of text a second."""
    cpu_seconds_per_byte: float | None


class Work(Struct, frozen=True, kw_only=True):
    """A question that can be reckoned with."""

    question: Question
    rows: float
    data: float
    """Bytes of text."""
    needed_rate: float | None
    """Bytes a second; None without a window."""
    levels: tuple[Level, ...]
    """Lowest parallelism first."""
    source_rate: float | None
    """The most that the source gave, in bytes of text a second."""
    disk_rate: float | None
    """Of one disk."""

    def usable(self, level: Level) -> float:
        """Return what is reckoned with of a level's rate."""
        return level.rate * self.question.cpu_ratio * (1 - self.question.discount)
