"""What the disks take: each directory by itself, and all of a striped destination together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import cast

from unloader.ceilings.machine import existing_directory, mount_of
from unloader.ceilings.model import DiskCeiling, NotMeasured, WriteSettings
from unloader.engine.local import LocalExecutor
from unloader.errors import Interrupted, UnloaderError
from unloader.nouns import counted
from unloader.preflight.model import Budget
from unloader.preflight.tasks import WriteTask, Written
from unloader.preflight.together import measure_together
from writers.files.room import free_bytes

_SYNC_SECONDS = 60.0
"""What the last sync may take beyond the time for writing (guess)."""


class DiskMeasuring:
    """Measures the directories of a run.

    Args:
        executor: Has a seat for each worker of the run.
        writing: How files are written.
        budget: How much may be written, and for how long.
        workers: Of the run.
        stop: Asked several times a second.
    """

    def __init__(
        self,
        executor: LocalExecutor,
        writing: WriteSettings,
        budget: Budget,
        workers: int,
        stop: Callable[[], bool],
    ) -> None:
        self._executor = executor
        self._writing = writing
        self._budget = budget
        self._workers = workers
        self._stop = stop
        self.not_measured: list[NotMeasured] = []

    def each(self, directories: Sequence[str]) -> tuple[DiskCeiling, ...]:
        """Return the figures of each directory: one file, then as many as the run writes there."""
        share = -(-self._workers // max(1, len(directories)))
        found = (
            self._measured((place,), writers)
            for place in directories
            for writers in dict.fromkeys((1, share))
        )
        return tuple(each for each in found if each is not None)

    def together(self, directories: Sequence[str]) -> DiskCeiling | None:
        """Return the figure of all directories at once; None where there is one, or they failed."""
        if len(directories) < 2:
            return None
        return self._measured(tuple(directories), max(self._workers, len(directories)))

    def _measured(self, directories: tuple[str, ...], writers: int) -> DiskCeiling | None:
        files = counted(writers, "file", "files together")
        what = f"disk of {', '.join(directories)}, {files}"
        places = [existing_directory(each) for each in directories]
        known = tuple(each for each in places if each is not None)
        if len(known) < len(places):
            self._blank(what, "it is not a directory, and a directory cannot be created there")
            return None
        lacking = self._lacking_room(known) or self._lacking_bytes(writers)
        if lacking:
            self._blank(what, lacking)
            return None
        try:
            rounds = list(self._rounds(known, writers))
        except Interrupted:
            raise
        except UnloaderError as error:
            self._blank(what, error.message)
            return None
        rates = [rate for rate, _ in rounds]
        return DiskCeiling(
            directories=directories,
            measured_in=known,
            mounts=tuple(mount_of(each) for each in known),
            writers=writers,
            rounds=len(rounds),
            bytes=sum(size for _, size in rounds),
            bytes_per_second=round(median(rates)),
            lowest=round(min(rates)),
            highest=round(max(rates)),
        )

    def _lacking_room(self, places: Sequence[str]) -> str:
        """Return why nothing is written there; empty if there is room for it, twice over."""
        wanted = 2 * self._budget.disk_bytes // len(places)
        for place in places:
            free = free_bytes(place)
            if free is not None and free < wanted:
                return f"{place} has {free:,} bytes free, but {wanted:,} are needed"
        return ""

    def _lacking_bytes(self, writers: int) -> str:
        """Return why so many files cannot be told apart from their syncs; empty if they can."""
        files = self._budget.disk_rounds * writers
        if self._budget.disk_bytes >= files * self._writing.overlap_buffer:
            return ""
        return (
            f"--disk-bytes {self._budget.disk_bytes:,} is too small for {counted(files, 'file')} "
            f"of one buffer each ({writers:,} at the same time); give --disk-bytes "
            f"{files * self._writing.overlap_buffer} or more"
        )

    def _rounds(self, places: Sequence[str], writers: int) -> Iterator[tuple[float, int]]:
        """Yield bytes a second and bytes of each round."""
        rounds = self._budget.disk_rounds
        size = self._budget.disk_bytes // (rounds * writers)
        seconds = self._budget.disk_seconds / rounds
        for _ in range(rounds):
            tasks = [
                WriteTask(
                    directory=places[at % len(places)],
                    writing=self._writing,
                    bytes=size,
                    seconds=seconds,
                )
                for at in range(writers)
            ]
            answers = measure_together(
                self._executor,
                tasks,
                patience_seconds=seconds + _SYNC_SECONDS,
                stop=self._stop,
            )
            files = [cast(Written, each) for each in answers]
            total = sum(each.bytes for each in files)
            took = max(each.ended for each in files) - min(each.began for each in files)
            yield total / max(took, 1e-6), total

    def _blank(self, what: str, reason: str) -> None:
        self.not_measured.append(NotMeasured(what=what, reason=reason))
