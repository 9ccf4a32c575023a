"""Functions on existing runs: verify, merge, clean, status, stop, set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import convert

from unloader.errors import translated
from unloader.events import Observer, silent
from unloader.manifest.model import ROUTES, Manifest, TablesManifest, answer
from unloader.model import EncryptionOptions, SourceSpec
from unloader.status.clearing import clear
from unloader.storage.place_names import AnyPlace, path_of

if TYPE_CHECKING:
    from unloader.status.model import Wish
    from unloader.status.reading import RunStatus
    from unloader.status.requests import ChangedRun, StoppedRun
    from unloader.tuning.analysis import Analysis
    from unloader.tuning.run_report import RunReport, TablesReport
    from unloader.tuning.sweep_report import SweepPage
    from unloader.verification.finished import Level


def verify(
    destination: AnyPlace,
    source: SourceSpec | None = None,
    *,
    level: Level = "count",
    strict: bool = False,
    parallelism: int = 0,
    keys: EncryptionOptions | None = None,
    observe: Observer = silent,
) -> dict[str, Any]:
    """Check a finished run's files against its manifest, and its count against a source.

    Args:
        destination: The directory of the manifest. The directory of a run over several tables
            checks each table.
        source: None = the rows are not counted there.
        level: count reads files as a whole. full also compares the checksums of their values with
            the run's record, and source compares them with checksums that the source computes.
        strict: Files that are not of the run are a difference, and not only reported.
        parallelism: Files that are read at a time; 0 is as many as there are usable CPUs.
        keys: Where the keys of encrypted files are found. Without them those are read as a whole.
        observe: Called with each event, in this thread.

    Raises:
        UnloaderError: VerifyMismatch if something differs, ConfigError if a key is needed and not
            given.
    """
    from unloader.verification import finished

    with translated():
        checks = finished.Checks(level=level, strict=strict, parallelism=parallelism, keys=keys)
        return finished.verify(path_of(destination), source, observe, checks)


def merge(destination: AnyPlace) -> dict[str, Any]:
    """Put the parts of a plan together under one manifest; return its JSON document.

    Their files stay where they are. If the parts are merged already, their manifest is returned.

    Args:
        destination: The directory that was given to `plan` or `run`, in which the parts are.

    Raises:
        UnloaderError: OutputFailed if parts are missing, not finished, or not of one plan.
    """
    from unloader.merging import merge as merged

    with translated():
        return answer((merged(path_of(destination)),))


def clean(directories: Sequence[AnyPlace], *, dry_run: bool = False) -> dict[str, Any]:
    """Remove what runs that died have left unpublished in directories; return what that was.

    Args:
        directories: As they were given to `unload`.
        dry_run: Change nothing, and return what would be removed.

    Raises:
        UnloaderError: OutputFailed if a run is writing there, or the file system refused.
    """

    with translated():
        return clear([str(directory) for directory in directories], dry_run=dry_run).to_json()


def keepers() -> dict[str, Any]:
    """Return the keepers of this user; each holds the snapshot of a run.

    Raises:
        UnloaderError: ConfigError if their records cannot be read.
    """
    from unloader.sources.postgres.keeping.client import listed

    with translated():
        return listed()


def end_keepers(run_id: str | None = None) -> dict[str, Any]:
    """End the keeper of a run, or all keepers that no run uses; return which, and those left.

    Args:
        run_id: None = of all runs.

    Raises:
        UnloaderError: UsageError if the run has no keeper or is going on, ConfigError if the keeper
            is on another machine.
    """
    from unloader.sources.postgres.keeping.client import ended

    with translated():
        return ended(run_id)


def status(destination: AnyPlace) -> RunStatus:
    """Return the status of the runs at a destination: running, interrupted or finished.

    Args:
        destination: One of the directories that were given to `unload`, on any machine.

    Raises:
        UnloaderError: OutputFailed if it is not there or may not be read.
    """
    from unloader.status.reading import status_of

    with translated():
        return status_of(str(destination))


def runs(directory: AnyPlace, *, depth: int = 3) -> tuple[RunStatus, ...]:
    """Return the status of all runs in a directory and this number of levels below it.

    Raises:
        UnloaderError: OutputFailed if it is not there or may not be read.
    """
    from unloader.status.reading import statuses_below

    with translated():
        return statuses_below(str(directory), depth)


def stop(
    destination: AnyPlace,
    *,
    timeout_seconds: float,
    stop: Callable[[], bool] = lambda: False,
) -> StoppedRun:
    """Ask the run at a destination to end, as Ctrl-C would, and wait until it is over.

    Args:
        destination: One of the run's directories, on any machine.
        timeout_seconds: How long to wait at most; 0 does not wait.
        stop: Asked several times a second; True ends the waiting, not the run.

    Raises:
        UnloaderError: OutputFailed if no run is there or it does not end in that time.
    """
    from unloader.status.requests import stop_run

    with translated():
        return stop_run(str(destination), timeout_seconds, stop)


def change(
    destination: AnyPlace,
    wish: Wish,
    *,
    timeout_seconds: float,
    stop: Callable[[], bool] = lambda: False,
) -> ChangedRun:
    """Change the number of workers of the run at a destination, or a limit on it.

    Args:
        destination: One of the run's directories, on any machine.
        wish: The change.
        timeout_seconds: How long to wait for the run's answer; 0 does not wait.
        stop: Asked several times a second; True ends the waiting.

    Raises:
        UnloaderError: OutputFailed if no run is there, it refuses, or does not answer in that time.
    """
    from unloader.status.requests import change_run

    with translated():
        return change_run(str(destination), wish, timeout_seconds, stop)


def report(
    place: AnyPlace, *, ceilings: Path | None = None
) -> RunReport | TablesReport | SweepPage:
    """Return the figures of the page of a run or of a sweep.

    Args:
        place: The directory of a run that is finished or broke (of one table, or of all tables of a
            run), a manifest, or what
            `unloader sweep --json` wrote.
        ceilings: What `unloader preflight --save` wrote, to hold a sweep against.

    Raises:
        UnloaderError: OutputFailed if the manifest is missing or damaged; ConfigError if the
            sweep has no points.
    """
    from unloader.tuning.report_sources import report_at

    with translated():
        return report_at(path_of(place), ceilings)


def report_of(manifest: dict[str, Any]) -> RunReport | TablesReport:
    """Return the figures of the page of a run, from the result of `unload`."""
    from unloader.tuning.run_report import run_report, tables_report

    if "tables" in manifest:
        return tables_report(convert(manifest, TablesManifest))
    if ROUTES in manifest:
        # All routes have the same workers and units: the page shows them for the first.
        manifests = convert(manifest[ROUTES], list[Manifest])
        return run_report(manifests[0], manifests)
    return run_report(convert(manifest, Manifest))


def sweep_report(found: Analysis) -> SweepPage:
    """Return the figures of the page of a sweep."""
    from unloader.tuning.sweep_report import sweep_report

    return sweep_report(found)


def report_page(report: RunReport | TablesReport | SweepPage) -> str:
    """Return the page of a report, in HTML.

    Raises:
        UnloaderError: ConfigError if a library is missing.
    """
    from unloader.tuning.report_page import page_of

    return page_of(report)


def check_report(path: Path) -> None:
    """Find out whether a page can be made and written.

    Raises:
        UnloaderError: ConfigError if it cannot.
    """
    from unloader.tuning.report_page import check_page_file

    check_page_file(path)


def write_report(path: Path, report: RunReport | TablesReport | SweepPage) -> None:
    """Write the page of a report into a file.

    Raises:
        UnloaderError: ConfigError if a library is missing, or the file system refused.
    """
    from unloader.tuning.report_page import write_page_file

    write_page_file(path, report_page(report))
