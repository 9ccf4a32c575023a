"""Options on what a run tells the programs around it."""

from __future__ import annotations

from functools import partial

from unloader.request.options.kinds import SECONDS, Choice, Kind, PathText, Variables
from unloader.request.options.option import Option

_operations = partial(Option, section="Operations", commands=("run", "resume"), effect="unrecorded")

OPTIONS = (
    _operations(
        name="report",
        kind=PathText("FILE", only="file"),
        empty=False,
        help="Write a page in HTML on the run to FILE once it is complete: speed, timelines, "
        "stages and load. It needs no network. If it cannot be written the exit status is 10.",
    ),
    _operations(
        name="metrics-file",
        kind=PathText("FILE", only="file"),
        empty=False,
        help="Write the figures of the run to FILE while it goes on and at its end, for the "
        "textfile collector of Prometheus. Its name ends with .prom.",
    ),
    _operations(
        name="trace",
        kind=Choice("none", "otlp"),
        default="none",
        help="Send OpenTelemetry traces by OTLP over HTTP to where the variables OTEL_* say: a "
        "span for the run, and one for each attempt at a work unit.",
    ),
    _operations(
        name="on-success",
        expands=False,
        kind=Kind("CMD"),
        empty=False,
        help="Command for /bin/sh once the run is complete. The variables UNLOADER_RUN_* tell of "
        "the run. If it fails the exit status is 10.",
    ),
    _operations(
        name="on-failure",
        expands=False,
        kind=Kind("CMD"),
        empty=False,
        help="Command for /bin/sh once the run has failed or was stopped. The exit status is that "
        "of the run.",
    ),
    _operations(
        name="hook-timeout",
        kind=SECONDS,
        default=300.0,
        help="Seconds after which the command of --on-success or --on-failure is ended. 0 sets no "
        "limit.",
    ),
    _operations(
        name="hook-env",
        kind=Variables(),
        multiple=True,
        help="Pass this variable of the environment on to the command of --on-success or "
        "--on-failure. Without it the command gets PATH, HOME, the locale and the like, and the "
        "variables UNLOADER_RUN_*. Repeat it or separate names by commas.",
    ),
)
