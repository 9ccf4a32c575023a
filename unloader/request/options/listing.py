"""The options that every source has in common, in the order of the help pages."""

from __future__ import annotations

from unloader.request.options import (
    ceilings,
    cluster,
    display,
    machine,
    operations,
    output,
    parquet,
    routes,
    running,
    sizing,
    subject,
    sweeping,
    tables,
    text,
    transforming,
    tuning,
)
from unloader.request.options.option import Option

BEFORE_SOURCES: tuple[Option, ...] = (*display.OWN, *subject.OPTIONS, *tables.OPTIONS)
"""The options before the options of the sources."""

BEHIND_SOURCES: tuple[Option, ...] = (
    routes.FILTER,
    *sweeping.OPTIONS,
    *output.OPTIONS,
    *transforming.OPTIONS,
    *text.OPTIONS,
    *parquet.OPTIONS,
    *routes.OPTIONS,
    *running.SPEED,
    *machine.OPTIONS,
    *cluster.OPTIONS,
    *running.SAFETY,
    *running.PAUSING,
    *ceilings.OPTIONS,
    *sizing.OPTIONS,
    *operations.OPTIONS,
    *tuning.OPTIONS,
    *display.SHOWN,
)
"""The options after the options of the sources."""
