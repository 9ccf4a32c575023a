"""Which display of progress a command gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unloader.cli.display.base import Display
    from unloader.events import Event


class Silence:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def stopping(self, text: str) -> None:
        """Say nothing."""

    def close(self, finished: bool) -> None:
        """Say nothing."""


@contextmanager
def display_for(values: Mapping[str, Any]) -> Iterator[Display]:
    """Yield the display that the options ask for, and close it when the run ends.

    Args:
        values: `progress`, `log_format`, `log_interval` and `quiet`.
    """
    display = _choose(values)
    finished = False
    try:
        yield display
        finished = True
    finally:
        display.close(finished)


def _choose(values: Mapping[str, Any]) -> Display:
    if values["quiet"]:
        return Silence()
    from unloader.cli.display.ticking import Ticking

    wanted = values["progress"]
    as_json = values["log_format"] == "json"
    # A bar needs a terminal even where it was asked for by name; JSON lines are never a bar.
    if wanted in ("auto", "bar") and not as_json and _can_draw():
        from unloader.cli.display.bar import BarDisplay

        return Ticking(BarDisplay())
    from unloader.cli.display.log import LogDisplay

    if wanted == "none":
        return LogDisplay(as_json=as_json, interval_seconds=None)
    return Ticking(LogDisplay(as_json=as_json, interval_seconds=values["log_interval"]))


def _can_draw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
