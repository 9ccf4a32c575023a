"""Pages about runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import convert

from unloader.errors import translated
from unloader.storage.place_names import AnyPlace, path_of

if TYPE_CHECKING:
    from unloader.tuning.analysis import Analysis
    from unloader.tuning.run_report import RunReport, TablesReport
    from unloader.tuning.sweep_report import SweepPage


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
    from unloader.manifest.model import ROUTES, Manifest, TablesManifest
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
