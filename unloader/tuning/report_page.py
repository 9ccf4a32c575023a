"""The page of a report in HTML, made by Jinja2, and its file.

Every figure on a page is an element `data` that names the key of its value in the JSON that the
page carries. All text is escaped by the library: names in a database may hold anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from unloader.errors import ConfigError
from unloader.tuning import report_figures as figures
from unloader.tuning.page_charts import run_charts, sweep_charts
from unloader.tuning.report_charts import missing, svg_of
from unloader.tuning.run_report import RunReport, TablesReport
from unloader.tuning.sweep_report import SweepPage
from writers.files.regular import open_regular

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from unloader.tuning.report_charts import Chart


Report = RunReport | TablesReport | SweepPage


def page_of(report: Report) -> str:
    """Return the page of a report.

    Raises:
        ConfigError: A library is missing.
    """
    document = to_builtins(report)
    if isinstance(report, TablesReport):
        return _page("tables.html", document, ())
    if isinstance(report, SweepPage):
        return _page("sweep.html", document, sweep_charts(report))
    nodes = sorted({node for sample in report.samples for node in sample.cpu_by_node}, key=str)
    columns = [(f"node {node}", f"cpu_by_node.{node}", "share") for node in nodes]
    return _page("run.html", document, run_charts(report), {"node_columns": columns})


def _page(
    template: str,
    document: Mapping[str, Any],
    charts: Iterable[Chart],
    more: Mapping[str, Any] | None = None,
) -> str:
    """Return a page.

    Args:
        template: Its name.
        document: The JSON of the page; figures are its values.
        charts: In the order of the page.
        more: Further names for the template.

    Raises:
        ConfigError: A library is missing.
    """
    environment = _environment()
    from markupsafe import Markup

    drawings = []
    for chart in charts:
        # The library that makes it escapes its input.
        wide, narrow = map(Markup, svg_of(chart))
        drawings.append(
            {
                "name": chart.name,
                "title": chart.title,
                "summary": chart.summary,
                "wide": wide,
                "narrow": narrow,
            }
        )
    names = {
        "document": document,
        "report": document,
        "drawings": drawings,
        "style": Markup(_text("style.css")),
        "at": lambda path: value_at(document, path),
        "figure": lambda path, form="text": _figure(document, path, form),
        **(more or {}),
    }
    # Macros that a template imports see its globals alone.
    environment.globals.update(names)
    return environment.get_template(template).render()


def value_at(document: Any, path: str) -> Any:
    """Return the value at a path such as `workers.0.rows`; None where a map has no such key."""
    for step in path.split("."):
        if isinstance(document, (list, tuple)):
            document = document[int(step)]
        elif document is not None:
            document = document.get(step)
    return document


def _figure(document: Mapping[str, Any], path: str, form: str) -> Markup:
    from markupsafe import Markup

    value = value_at(document, path)
    shown = figures.UNKNOWN if value is None else figures.FORMS[form](value)
    return Markup('<data value="{}" data-key="{}" data-form="{}">{}</data>').format(
        "" if value is None else value, path, form, shown
    )


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise missing(str(error.name)) from error
    return Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _text(name: str) -> str:
    return (resources.files("unloader.tuning") / "templates" / name).read_text("utf-8")


def check_page_file(path: Path) -> None:
    """Check that a page can be made and written, before a long run.

    Raises:
        ConfigError: A library is missing, or the directory is missing or not writable.
    """
    for library in ("jinja2", "vl_convert"):
        if find_spec(library) is None:
            raise missing(library)
    if path.is_dir():
        raise _cannot(path, "it is a directory")
    if path.exists() and not _may_be_replaced(path):
        raise _cannot(path, "it contains something that is not a page")
    if not path.parent.is_dir():
        raise _cannot(path, f"the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _cannot(path, f"{path.parent} is not writable")


def _may_be_replaced(path: Path) -> bool:
    """Return whether a file is an earlier page, or empty, or no file: a manifest is not lost."""
    if not path.is_file():
        return True
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return False
    return not start or start.startswith(b"<!doctype html")


def write_page_file(path: Path, text: str) -> None:
    """Replace the file; a reader of the file gets the former page or this one.

    Raises:
        ConfigError: The file system refused.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(made, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(made)
        raise _cannot(path, error.strerror or str(error)) from error


def _cannot(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"cannot write the report {path}: {why}",
        "give another file, or create the directory",
    )
