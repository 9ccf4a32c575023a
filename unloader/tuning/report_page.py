"""The report of a place, and its page in HTML, made by Jinja2.

A place is the manifest of a run, or the output of a sweep. Every figure on a page is an element
`data` that names the key of its value in the JSON that the page carries. All text is escaped by the
library: names in a database may hold anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import to_builtins

from unloader.errors import ConfigError, OutputFailed, UnloaderError
from unloader.manifest.model import TablesManifest
from unloader.manifest.read import manifest_data, parse_run, read_manifest
from unloader.storage.place_names import PlacePath, path_of
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN
from unloader.tuning.ceilings import read_ceilings
from unloader.tuning.report_charts import (
    FORMS,
    UNKNOWN,
    Chart,
    missing,
    run_charts,
    svg_of,
    sweep_charts,
)
from unloader.tuning.report_records import (
    RunReport,
    SweepPage,
    TablesReport,
    run_report,
    sweep_report,
    tables_report,
)
from unloader.tuning.sweep_document import is_sweep, sweep_of
from writers.errors import WriteError
from writers.files.publish import write_atomically
from writers.files.regular import open_regular, read_regular
from writers.objects.location import Location

Report = RunReport | TablesReport | SweepPage


def report_at(place: PlacePath, ceilings: Path | None = None) -> Report:
    """Return the report of a place, compared with a file of ceilings if it is of a sweep.

    A place is the directory of a finished run, or of an interrupted run with finished units; or a
    file: a manifest, or the output of `unloader sweep --json`. A manifest that is missing or
    damaged is an `OutputFailed`, a file without points, or of other things than ceilings, a
    `ConfigError`.
    """
    if isinstance(place, Location) or not place.is_file():
        name, storage = str(place), storage_at(str(place))
        with suppress(OSError):
            # What a broken run has left, where no finished one is.
            if MANIFEST not in storage.names(name) and (left := storage.record(name, MANIFEST)):
                return _of_manifest(left, place / RUN / MANIFEST)
        return _of_manifest(manifest_data(place), place / MANIFEST)
    try:
        data = read_regular(place, follow=True)
    except OSError as error:
        raise OutputFailed(
            f"cannot read {place}: {error.strerror or error}", "check the path and its permissions"
        ) from error
    document: Any = None
    with suppress(msgspec.DecodeError, RecursionError):
        document = msgspec.json.decode(data)
    if isinstance(document, dict) and is_sweep(document):
        held = None if ceilings is None else read_ceilings(ceilings)
        return sweep_report(sweep_of(document, place), held)
    if document is None and place.name != MANIFEST:
        raise OutputFailed(
            f"{place} is neither a manifest nor the output of unloader sweep --json",
            "give the directory of a finished run, or one of those files",
        )
    return _of_manifest(data, place)


def _of_manifest(data: bytes, path: PlacePath) -> RunReport | TablesReport:
    """Return the report of a run, with the routes whose manifests are still in their places."""
    manifest = parse_run(data, path)
    if isinstance(manifest, TablesManifest):
        return tables_report(manifest)
    routes = []
    for other in manifest.route.others if manifest.route is not None else ():
        with suppress(UnloaderError, OSError):
            found = read_manifest(path_of(other.to))
            # Another run may have replaced it.
            if found.run_id == manifest.run_id and found.route is not None:
                routes.append(found)
    return run_report(manifest, (manifest, *routes) if manifest.route is not None else ())


def page_of(report: Report) -> str:
    """Return the page of a report; a missing library is a `ConfigError`."""
    charts: Iterable[Chart] = ()
    if isinstance(report, SweepPage):
        charts = sweep_charts(report)
    elif isinstance(report, RunReport):
        charts = run_charts(report)
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise missing(str(error.name)) from error
    document = to_builtins(report)

    def figure(path: str, form: str = "text") -> Markup:
        value = value_at(document, path)
        return Markup('<data value="{}" data-key="{}" data-form="{}">{}</data>').format(
            "" if value is None else value,
            path,
            form,
            UNKNOWN if value is None else FORMS[form](value),
        )

    environment = Environment(
        loader=PackageLoader("unloader.tuning"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Macros that a template imports see its globals alone.
    environment.globals.update(
        document=document,
        report=document,
        # The library that makes a drawing escapes its input.
        drawings=[
            {"chart": chart, **{kind: Markup(svg) for kind, svg in svg_of(chart).items()}}
            for chart in charts
        ],
        at=lambda path: value_at(document, path),
        figure=figure,
    )
    return environment.get_template(f"{report.report}.html").render()


def value_at(document: Any, path: str) -> Any:
    """Return the value at a path such as `workers.0.rows`; None where a map has no such key."""
    for step in path.split("."):
        if isinstance(document, (list, tuple)):
            document = document[int(step)]
        elif document is not None:
            document = document.get(step)
    return document


def check_page_file(path: Path) -> None:
    """Raise a `ConfigError` before a long run if a page cannot be made or written."""
    for library in ("jinja2", "vl_convert"):
        if find_spec(library) is None:
            raise missing(library)
    if path.is_dir():
        raise _cannot(path, "it is a directory")
    if path.is_file():
        # A manifest is not lost: only an earlier page, or an empty file, may be replaced.
        start = b"unreadable"
        with suppress(OSError), open(open_regular(path, follow=True), "rb") as file:
            start = file.read(64).lstrip().lower()
        if start and not start.startswith(b"<!doctype html"):
            raise _cannot(path, "it contains something that is not a page")
    if not path.parent.is_dir():
        raise _cannot(path, f"the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _cannot(path, f"{path.parent} is not writable")


def write_page_file(path: Path, text: str) -> None:
    """Replace the file as a whole; a refusal of the system is a `ConfigError`."""
    try:
        write_atomically(path, text.encode("utf-8"))
    except WriteError as error:
        raise _cannot(path, error.message) from error


def _cannot(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"cannot write the report {path}: {why}", "give another file, or create the directory"
    )
