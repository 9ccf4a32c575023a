"""What a chart is, and how all of them look.

Colours are names of the page's style sheet, which has one set for light and one for dark: a chart
is drawn once and fits both. It is drawn for a wide and for a narrow page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

WIDE, NARROW = 1040, 340
"""Pixels: of a window of 1280 and one of 390."""

STAGES = ("fetch", "encode", "compress", "write")
STAGE_COLOURS = ("var(--blue)", "var(--green)", "var(--amber)", "var(--violet)")

LINE_COLOURS = (
    *("var(--blue)", "var(--amber)", "var(--green)", "var(--violet)"),
    *("var(--red)", "var(--teal)", "var(--pink)", "var(--grey)"),
)
"""Of lines in one chart; there are never more lines than these."""

Spec = dict[str, Any]


class Frame(Struct, frozen=True, kw_only=True):
    """What a chart is drawn into."""

    width: int

    @property
    def is_narrow(self) -> bool:
        """Whether there is no room beside the data."""
        return self.width < 600

    def pick(self, wide: Any, narrow: Any) -> Any:
        """Return what fits."""
        return narrow if self.is_narrow else wide


class Chart(Struct, frozen=True, kw_only=True):
    """One chart of a page."""

    name: str
    """Its id on the page."""
    title: str
    summary: str
    """What it shows, in a sentence or two; for those who do not see it, too."""
    spec: Callable[[Frame], Spec]
    """Vega-Lite without size and style; the frame says how much room there is."""


def drawn(chart: Chart, frame: Frame) -> Spec:
    """Return the whole specification of a chart in one of its widths."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": frame.width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": {"left": 2, "right": 14, "top": 4, "bottom": 2},
        "config": _CONFIG,
        **chart.spec(frame),
    }


def quantity(field: str, title: str, form: str = "~s", **more: Any) -> Spec:
    """Return the encoding of numbers along an axis."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": {"format": form},
        **more,
    }


def colours(
    field: str, names: Sequence[str], values: Sequence[str], frame: Frame, title: str | None = None
) -> Spec:
    """Return the encoding of a few names as colours, told above the chart."""
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": list(values[: len(names)])},
        "legend": {"orient": "top", "title": title, "columns": frame.pick(0, 2)},
    }


_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "titlePadding": 8,
    },
    "axisX": {"labelFlush": False, "labelOverlap": True, "tickCount": 6},
    "axisY": {"tickCount": 5, "domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolStrokeWidth": 2,
        "labelLimit": 240,
    },
}
