"""Who has a place in an object store, as it is written there, and whether that process lives."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.storage.machine import boot_id, host_name


class Holder(Struct, frozen=True, kw_only=True):
    """The process of a run that has a place."""

    run_id: str
    """Empty while a process cleans the place."""
    folder: Annotated[str, Meta(min_length=1)]
    """Name of the run's own prefix in the `_run` of each of its places; never empty."""
    places: tuple[str, ...]
    """Of the run; the first has its records."""
    home: str = ""
    """See `Claim.home`."""
    names: tuple[str, ...] = ()
    """What final names are like that uploads may have been begun to, by this run or by those whose
    leftovers it has found; see `Claim.names`."""
    nonce: str
    """Tells this process of the run from all others."""
    host: str
    boot: str
    pid_space: str
    """In which `pid` has a meaning: containers on one machine have their own."""
    pid: int
    pid_since: str
    """When the kernel started the process, which tells it from a later one of that number."""
    since: str
    beat: int = 0
    """Counts the signs of life."""
    is_released: bool = False
    """The process has ended its work here."""
    is_publishing: bool = False
    """The run is complete: the next process gives its files their final names."""

    @classmethod
    def here(
        cls, run_id: str, places: tuple[str, ...], *, folder: str = "", home: str = ""
    ) -> Holder:
        """Return this process as the one that has the places of a run, or cleans them."""
        nonce = os.urandom(8).hex()
        return cls(
            run_id=run_id,
            # A process that died while it cleaned has records that the next one looks for.
            folder=folder or nonce,
            places=places,
            home=home,
            nonce=nonce,
            host=host_name(),
            boot=boot_id(),
            pid_space=_pid_space(),
            pid=os.getpid(),
            pid_since=_started(os.getpid()),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @classmethod
    def read(cls, data: bytes) -> Holder:
        """Return what `to_bytes` has written.

        Raises:
            ValueError: It is nothing that it has written.
        """
        return _HOLDER.decode(data)

    def to_bytes(self) -> bytes:
        """Return it as it lies in the store."""
        return encode(self) + b"\n"

    def beating(self, **changes: Any) -> Holder:
        """Return it with one more sign of life."""
        return replace(self, beat=self.beat + 1, **changes)

    def lives(self) -> bool | None:
        """Return whether the process lives; None if this process cannot see that."""
        if self.is_released:
            return False
        if not (self.boot and self.boot == boot_id() and self.pid_space == _pid_space()):
            return None
        return _started(self.pid) == self.pid_since

    def text(self) -> str:
        """Return in words who it is."""
        who = f"run {self.run_id}" if self.run_id else "unloader clean"
        return f"{who}, process {self.pid} on {self.host}, since {self.since}"


_HOLDER = Decoder(Holder)


def _pid_space() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _started(pid: int) -> str:
    """Return when a process was started, empty if there is none or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]
