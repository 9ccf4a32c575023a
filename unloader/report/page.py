"""Pages in HTML, by Jinja2. Nothing else imports it.

Every figure on a page is an element `data` that names the key of its value in the JSON that the
page carries. All text is escaped by the library: names in a database may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from unloader.report import figures
from unloader.report.charts.drawing import missing, svg_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from unloader.report.charts.chart import Chart


def check() -> None:
    """Raise ConfigError if the library is missing; it is not loaded yet."""
    from importlib.util import find_spec

    if find_spec("jinja2") is None:
        raise missing("jinja2")


def page(
    template: str,
    document: Mapping[str, Any],
    charts: Iterable[Chart],
    more: Mapping[str, Any] | None = None,
) -> str:
    """Return a page.

    Args:
        template: Its name.
        document: What the page carries as JSON; figures are its values.
        charts: In the order of the page.
        more: Further names for the template.

    Raises:
        ConfigError: A library is missing.
    """
    environment = _environment()
    from markupsafe import Markup

    drawings = []
    for chart in charts:
        # Made by the library, which escapes what it is given.
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
    return (resources.files("unloader.report") / "templates" / name).read_text("utf-8")
