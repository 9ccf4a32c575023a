"""The fields of the lines of a log in JSON: a contract with the programs that read them.

Every line has the fields of `Head`, and the fields of the type that `LINES` has for its event. A
new event or a new field leaves the version as it is, so readers ignore unknown events and fields. A
field that is removed, or that changes its meaning, makes a new version: `json_lines.VERSION`.

The schema in the docs is made with:
python -m unloader.cli.display.log_lines > docs/log.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import schema_components

from unloader.cli.display.log import Progress
from unloader.events import (
    Notice,
    ParallelismChanged,
    PhaseStarted,
    PointMeasured,
    RouteFinished,
    RunStarted,
    SettingUsed,
    TableFinished,
    TableStaged,
    UnitFailed,
    UnitsKept,
)


class Text(Struct, frozen=True, kw_only=True):
    """A line with only its text."""

    text: str


class Head(Struct, frozen=True, kw_only=True):
    """What every line begins with."""

    version: Literal[1]
    event: str
    """A key of `LINES`."""
    at: str
    """ISO 8601, UTC, with milliseconds."""
    ts: str
    """The same, under the name that it had before there was a version."""
    run_id: str
    """Empty until the run is planned, and in commands without a run."""


class Failed(Struct, frozen=True, kw_only=True):
    """The end of a command that failed, always the last line."""

    kind: str
    """Name of the error, as in the page on exit statuses."""
    message: str
    hint: str
    exit_code: int
    traceback: str | None
    """With --debug; else None."""


class Record(Struct, frozen=True, kw_only=True):
    """A message for those who look for a fault, with --debug."""

    level: str
    logger: str
    text: str


class HookOutput(Struct, frozen=True, kw_only=True):
    """A line that a command at the end of the run has written."""

    hook: Literal["on-success", "on-failure"]
    text: str


LINES: Mapping[str, type[Struct]] = {
    "setting": SettingUsed,
    "phase_started": PhaseStarted,
    "run_started": RunStarted,
    "units_kept": UnitsKept,
    "progress": Progress,
    "unit_failed": UnitFailed,
    "table_staged": TableStaged,
    "table_finished": TableFinished,
    "route_finished": RouteFinished,
    "point_measured": PointMeasured,
    "parallelism": ParallelismChanged,
    "notice": Notice,
    "stopping": Text,
    "run_finished": Progress,
    "run_stopped": Progress,
    "hook": HookOutput,
    "error": Failed,
    "debug": Record,
    "output": Text,
}
"""Each event with what its lines hold. `output` is text that a library wrote to stderr."""


def schema() -> dict[str, Any]:
    """Return the schema of one line."""
    refs, found = schema_components([Head, *LINES.values()], ref_template="#/$defs/{name}")
    names = [ref["$ref"].removeprefix("#/$defs/") for ref in refs]
    head, *lines = (found[name] for name in names)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of unloader --log-format json",
        "anyOf": [
            _line(event, kind, {**head["properties"], **line["properties"]})
            for (event, kind), line in zip(LINES.items(), lines, strict=True)
        ],
        "$defs": {name: each for name, each in found.items() if name not in names},
    }


def text() -> str:
    """Return the schema, as the docs contain it."""
    return json.dumps(schema(), indent=2) + "\n"


def _line(event: str, kind: type[Struct], properties: dict[str, Any]) -> dict[str, Any]:
    # A field with a default is in each line, too, except in lines that leave defaults out.
    may_lack = kind.__struct_config__.omit_defaults
    return {
        "title": event,
        "type": "object",
        "properties": {**properties, "event": {"enum": [event]}},
        "required": [
            key for key, each in properties.items() if not (may_lack and "default" in each)
        ],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    sys.stdout.write(text())
