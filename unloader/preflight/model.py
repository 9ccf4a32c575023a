"""What a preflight is asked for."""

from __future__ import annotations

from msgspec import Struct

from unloader.ceilings.model import Part


class Budget(Struct, frozen=True, kw_only=True):
    """How much measuring may take."""

    parts: tuple[Part, ...]
    """What is measured."""
    levels: tuple[int, ...] = ()
    """Parallelisms at which the source is read; empty is 1, 2, 4 and so on up to that of the run.
    """
    disk_bytes: int
    """Written for one figure of a disk, in all its rounds."""
    disk_seconds: float
    """The same for the time; the sync at the end comes on top."""
    disk_rounds: int
    source_seconds: float
    """Of fetching, for each level."""
    sample_bytes: int
    """Of rows for the encoder and the codecs."""
