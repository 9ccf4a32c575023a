"""Options on the analysis of a sweep."""

from __future__ import annotations

from functools import partial

from unloader.request.options.kinds import SECONDS, Parsed, PathText
from unloader.request.options.option import Option
from unloader.request.settings import parse_percent, percent_text

PERCENT = Parsed("PERCENT", parse_percent, write=percent_text, numbers=(int, float))

_analysis = partial(Option, section="Analysis", commands=("sweep",), effect="unrecorded")

OPTIONS: tuple[Option, ...] = (
    _analysis(
        name="replay",
        kind=PathText("POINTS.csv", only="file"),
        help=(
            "Analyse the points in this file. It needs the columns parallelism and seconds. It can "
            "have bytes, rows, and figures of the load such as cpu."
        ),
        common=True,
    ),
    _analysis(
        name="spread",
        kind=PERCENT,
        default=0.03,
        help=(
            "Two levels are equally fast if they differ by at most this share. If levels were "
            "repeated, the repeats set it."
        ),
    ),
    _analysis(
        name="cpu-limit",
        kind=PERCENT,
        default=0.75,
        help="Highest load of the CPUs that a level can sustain beside other work.",
    ),
    _analysis(
        name="queue-limit",
        kind=SECONDS,
        default=1.0,
        help=(
            "Longest wait of a stage for its consumer, in seconds. A level with a longer wait is "
            "not valid."
        ),
    ),
    _analysis(
        name="discount",
        kind=PERCENT,
        default=0.2,
        help="Share that is subtracted from the measured speed, to plan production.",
    ),
    _analysis(
        name="report",
        kind=PathText("FILE", only="file"),
        empty=False,
        help=(
            "Write an HTML page on the sweep to FILE: its curve, stages, timelines and load. It "
            "needs no network. If it cannot be written, the exit status is 10."
        ),
        example="sweep.html",
    ),
)
