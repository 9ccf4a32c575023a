"""The pause of a run whose disk is nearly full, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from unloader.errors import OutputFailed
from unloader.run.work import RoomWatch

GIB = 2**30


@dataclass
class Disks:
    """Directories with their free bytes, a clock, and the reported lines."""

    free: dict[str, int | None]
    now: float = 0.0
    told: list[str] = field(default_factory=list)

    def watch(self, pause_seconds: float = 60.0) -> RoomWatch:
        """Return a watch that wants 1 GiB in each directory."""
        return RoomWatch(
            directories=tuple(self.free),
            min_free_bytes=GIB,
            pause_seconds=pause_seconds,
            tell=self.told.append,
            clock=lambda: self.now,
            free=lambda directory: self.free[directory],
        )


def test_a_pause_begins_and_ends_with_one_line_each() -> None:
    """A full disk is reported once, and the end of the pause once: it needs some more room."""
    disks = Disks({"/a": 2 * GIB, "/b": 2 * GIB})
    watch = disks.watch()
    assert watch.has_room()
    disks.free["/b"] = GIB - 1
    for _ in range(5):
        disks.now += 1.0
        assert not watch.has_room()
        watch.check()
    disks.free["/b"] = GIB + 1
    disks.now += 1.0
    assert not watch.has_room(), "the next few bytes would stop it again"
    disks.free["/b"] = GIB + GIB // 10
    disks.now += 1.0
    assert watch.has_room()
    first, second = disks.told
    assert first.startswith("/b has 1024.0 MiB free, and --min-free is 1024.0 MiB")
    assert "--pause-timeout" in first
    assert "enough disk space again after 6 s" in second


@pytest.mark.parametrize("pause", [0.0, 30.0])
def test_a_pause_that_lasts_too_long_ends_the_run(pause: float) -> None:
    """The error has the directory and the remedy; without patience it is immediate."""
    disks = Disks({"/a": 0})
    watch = disks.watch(pause)
    for second in range(int(pause)):
        disks.now = float(second)
        watch.check()
    disks.now = pause
    with pytest.raises(OutputFailed, match=r"/a has 0.0 MiB free.*free disk space there"):
        watch.check()


def test_a_worker_that_waits_pauses_the_run() -> None:
    """A quota shows in no figure, so a worker's word counts for some seconds."""
    disks = Disks({"/a": 9 * GIB})
    watch = disks.watch()
    watch.worker_waits("space on the disk of /a")
    assert not watch.has_room()
    disks.now += 4.0
    assert not watch.has_room()
    disks.now += 4.0
    assert watch.has_room()
    assert "a worker waits for space on the disk of /a" in disks.told[0]


def test_a_disk_that_cannot_be_looked_at_has_room() -> None:
    """Unknown room does not stop the run."""
    assert Disks({"/a": None}).watch().has_room()
