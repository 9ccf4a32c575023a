"""What the measuring processes are asked for and what they answer: plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.ceilings.model import WriteSettings

if TYPE_CHECKING:
    from unloader.model import Extract, UnitTask


class WriteTask(Struct, frozen=True, kw_only=True):
    """Write one file as a worker would, and remove it."""

    directory: str
    """An existing one."""
    writing: WriteSettings
    bytes: int
    seconds: float
    """No buffer is begun after them."""


class Written(Struct, frozen=True, kw_only=True):
    """One file that was written and synced."""

    bytes: int
    began: float
    """By the monotonic clock, which all processes of a machine share."""
    ended: float


class ConnectTask(Struct, frozen=True, kw_only=True):
    """Open the source, and keep it open for the next task."""

    extract: Extract


class Connected(Struct, frozen=True, kw_only=True):
    """The source is open."""


class FetchTask(Struct, frozen=True, kw_only=True):
    """Fetch rows as a worker would, and throw them away; the source is closed after that."""

    units: tuple[UnitTask, ...]
    """One after the other, and from the first one again once all are read."""
    seconds: float
    """No batch is asked for after them."""


class Fetched(Struct, frozen=True, kw_only=True):
    """What one worker fetched."""

    rows: int
    bytes: int
    began: float
    ended: float
    cpu_seconds: float
    wraps: int
    """How often it began with the first unit again."""
    network_bytes: int | None
    """Received by its connections; None where that is not known."""
    network_round_trip_seconds: float | None
