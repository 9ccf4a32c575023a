"""Options on what a run reports to other programs."""

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
        help=(
            "Write an HTML page on the run to FILE when the run is complete. It shows speed, "
            "timelines, stages and load, and needs no network. If it cannot be written, the exit "
            "status is 10."
        ),
        example="run.html",
    ),
    _operations(
        name="metrics-file",
        kind=PathText("FILE", only="file"),
        empty=False,
        help=(
            "Write the figures of the run to FILE during the run and at its end, for the textfile "
            "collector of Prometheus. The name must end with .prom."
        ),
        example="/var/lib/node_exporter/orders.prom",
    ),
    _operations(
        name="trace",
        kind=Choice("none", "otlp"),
        default="none",
        help=(
            "Send OpenTelemetry traces by OTLP over HTTP. The variables OTEL_* set the "
            "destination. The run has a span, and so does each attempt at a work unit."
        ),
        example="otlp",
    ),
    _operations(
        name="on-success",
        expands=False,
        kind=Kind("CMD"),
        empty=False,
        help=(
            "Run this command with /bin/sh when the run is complete. The variables UNLOADER_RUN_* "
            "describe the run. If the command fails, the exit status is 10."
        ),
        example="./load.sh",
    ),
    _operations(
        name="on-failure",
        expands=False,
        kind=Kind("CMD"),
        empty=False,
        help=(
            "Run this command with /bin/sh when the run has failed or was stopped. The exit status "
            "of the run does not change."
        ),
        example="./alert.sh",
    ),
    _operations(
        name="hook-timeout",
        kind=SECONDS,
        default=300.0,
        help=(
            "Seconds after which the command of --on-success or --on-failure is ended. 0 sets no "
            "limit."
        ),
        example="60 --on-success ./load.sh",
    ),
    _operations(
        name="hook-env",
        kind=Variables(),
        multiple=True,
        help=(
            "Pass this environment variable to the command of --on-success or --on-failure. "
            "Without this option, the command gets PATH, HOME, the locale and similar variables, "
            "and the variables UNLOADER_RUN_*. Separate several with commas, or repeat the option."
        ),
        example="PGHOST --on-success ./load.sh",
    ),
)
