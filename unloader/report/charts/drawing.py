"""Charts as SVG within a page, by vl-convert. Nothing else imports it.

The drawing needs no program in the browser: what the mouse is told of a mark is its `title`, and
what a screen reader is told its `aria-label`.
"""

from __future__ import annotations

from xml.etree import ElementTree

from unloader.errors import ConfigError
from unloader.report.charts.chart import NARROW, WIDE, Chart, Frame, drawn

_SVG = "http://www.w3.org/2000/svg"
_MARK = "graphics-symbol"


def check() -> None:
    """Raise ConfigError if the library is missing; it is not loaded yet."""
    from importlib.util import find_spec

    if find_spec("vl_convert") is None:
        raise missing("vl_convert")


def missing(module: str) -> ConfigError:
    """Return the error for a library that is not installed."""
    return ConfigError(
        f"a report needs the module {module!r}, which is not installed",
        "pip install 'unloader[report]'",
    )


def svg_of(chart: Chart) -> tuple[str, str]:
    """Return a chart as two SVG elements for a page in HTML, a wide and a narrow one.

    Raises:
        ConfigError: The library is missing.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise missing(str(error.name)) from error
    wide, narrow = (
        # No address is allowed, so that no data can make the library fetch anything.
        vl_convert.vegalite_to_svg(drawn(chart, Frame(width=width)), allowed_base_urls=[])
        for width in (WIDE, NARROW)
    )
    return _for_page(wide, chart, "wide"), _for_page(narrow, chart, "narrow")


def _for_page(text: str, chart: Chart, kind: str) -> str:
    """Return an SVG that takes the width it is given, with titles for the mouse."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(text)
    root.attrib.pop("height", None)
    width = root.attrib.pop("width")
    root.set("class", kind)
    root.set("style", f"max-width:{width}px")
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.summary}")
    for mark in root.iter():
        says = mark.get("aria-label")
        if mark is not root and says and mark.get("role") == _MARK and _is_data(mark):
            title = ElementTree.SubElement(mark, f"{{{_SVG}}}title")
            title.text = says
    return ElementTree.tostring(root, encoding="unicode")


def _is_data(mark: ElementTree.Element) -> bool:
    return mark.get("aria-roledescription") not in ("axis", "legend")
