"""The protocol between a run and its output.

A run asks where each attempt writes, reports what became of it, and at the end publishes or
abandons everything. It never asks what kind of place the output goes to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from unloader.engine.schedule import Assignment
from unloader.errors import UnloaderError
from unloader.events import Event, Observer
from unloader.manifest.model import Manifest, RouteRecord
from unloader.model import FinishedUnit, OutputTask
from unloader.resolve.resolved import ResolvedRun
from unloader.run.journal import Progress
from unloader.storage.base import LiveStorage
from unloader.storage.directories.leftovers import RUN, is_removed
from unloader.storage.kinds import destination_kind
from unloader.storage.model import MANIFEST
from writers.files.syncing import Steps

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run."""


def continued(hint: str, step: str) -> str:
    """Return the advice on a broken run: what mends it, then how to go on.

    Args:
        hint: What mends it.
        step: The command that goes on with what is done, with a verb before it.
    """
    hint = hint.rstrip(". ")
    if "--" in hint:
        # `resume` takes no options of the run.
        return f"{hint}; to change an option, start a new run with --overwrite; otherwise {step}"
    return f"{hint}; then {step}"


def removed_place(places: Sequence[str]) -> str:
    """Return the first directory of an unfinished run that another process removed; "" if none."""
    local = (Path(place) for place in places if destination_kind((place,)) == "directories")
    removed = (
        str(place)
        for place in local
        if is_removed(place / RUN) and not os.path.lexists(place / MANIFEST)
    )
    return next(removed, "")


def of_removed(error: UnloaderError, place: str) -> UnloaderError:
    """Return the error of a run whose directory was removed while it wrote."""
    return type(error)(
        f"the destination {place} was removed during the run, and the files in it are lost: "
        f"{error.message.rstrip('. ')}",
        "find out which program removed it, then run again",
    )


class WrittenRoute(Struct, frozen=True, kw_only=True):
    """One route of several, as its manifest tells of it."""

    run: ResolvedRun
    """As if it were the only one."""
    record: RouteRecord
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with why; None where none were."""


class MakeManifest(Protocol):
    """Makes the manifest of what is written."""

    def __call__(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        route: WrittenRoute | None = None,
    ) -> Manifest:
        """Return it.

        Args:
            units: Those that are finished; of a complete run with their files under final names.
            directories: Where there are several.
            route: What is written, where it is not all of the run.
        """


class RunOutput(Protocol):
    """What one run writes; its places are taken when it is made, given back by `close`."""

    is_kept: bool
    """What is written can be read again."""
    in_order: bool
    """The units must come one after the other, in table order, through one worker."""

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Those of the routes that are published, where there are several; else none."""

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check all names and get ready for the first unit, before anything is read.

        Raises:
            OutputFailed: Something is in the way, or nobody is there to read.
            Interrupted: `stop` returned True during a wait.
        """

    def keep(self, name: str, data: bytes) -> None:
        """Put a record of the run where its files go, durably; nowhere if only a stream is there.

        Args:
            name: One of `unloader.storage.base.RECORDS`.
            data: All of it; replaces what was kept before.

        Raises:
            WriteError: It could not be written.
        """

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return what is done already of a run that is resumed, each file read and confirmed.

        Called once, after `begin`. What is not confirmed is removed; nothing is where the run is
        a new one.

        Args:
            tick: Called several times a second; what it raises comes through.
        """

    def live(self) -> LiveStorage | None:
        """Return where others see the run and can end it; None if only a stream is there."""

    def tasks(self, assignment: Assignment) -> tuple[OutputTask, ...]:
        """Return where and how an attempt writes; called just before it is handed out."""

    def check(self) -> None:
        """Raise OutputFailed if the place is lost; called several times a second."""

    def shown_event(self, event: Event) -> Event:
        """Return an event of the run as it is displayed."""

    def not_repeatable(self) -> str:
        """Return why a failed attempt cannot be repeated; empty if it can."""

    def record(self, unit: FinishedUnit) -> Event | None:
        """Put a finished unit on record; return the event that follows from it, if any."""

    def failed(self, assignment: Assignment, message: str) -> None:
        """Put a failed attempt on record."""

    def discard(self, assignment: Assignment) -> None:
        """Remove what a broken attempt may have left."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Read every file again, and compare it with what its writer reported and with the values.

        Returns:
            The columns whose values the files do not show in full, each with why.

        Raises:
            VerifyMismatch: One differs.
            Interrupted: `stop` returned True.
        """

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Make the output final, in steps; return the manifest.

        Args:
            units: All of them, in table order.
            manifest: Makes the manifest once the files have final names.
            stop: As everywhere.
            then: Takes the manifest once all is final, and must not raise. If the process dies
                before it has returned, `resume` still knows the run and does it again.
        """

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """End a broken run: keep what may be of use later, or leave no trace.

        Args:
            units: What is done so far.
            manifest: Makes that of a partial run; None leaves no trace.
        """

    def already_delivered(self) -> str:
        """Return what of a broken run has reached a reader and is not to be used; empty if none."""

    def next_step(self, *, resumable: bool) -> str:
        """Return what the user does once the cause of a broken run is mended.

        Args:
            resumable: The source can read at the run's snapshot again.
        """

    def close(self) -> None:
        """Release the places to others."""
