"""Options on the analysis of a sweep."""

from __future__ import annotations

from functools import partial

from unloader.request.levels import levels_text, parse_levels
from unloader.request.options.kinds import SECONDS, Parsed, PathText
from unloader.request.options.option import Option
from unloader.request.settings import parse_percent, percent_text

LEVELS = Parsed("LEVELS", parse_levels, write=levels_text, numbers=(int,))
PERCENT = Parsed("PERCENT", parse_percent, write=percent_text, numbers=(int, float))

_analysis = partial(Option, section="Analysis", commands=("sweep",), effect="unrecorded")

OPTIONS: tuple[Option, ...] = (
    _analysis(
        name="replay",
        kind=PathText("POINTS.csv", only="file"),
        help="Analyse the points of this file, which has the columns parallelism and seconds, "
        "and may have bytes, rows, and figures of the load, such as cpu.",
    ),
    _analysis(
        name="predict",
        kind=LEVELS,
        default_text="the measured levels, and twice the largest",
        help="Parallelisms to predict the seconds of, for instance 1,2,4 or 32..4:-4,3,2.",
    ),
    _analysis(
        name="spread",
        kind=PERCENT,
        default=0.03,
        help="Two levels that differ by no more are equally fast. Where levels were repeated, the "
        "repeats tell it instead.",
    ),
    _analysis(
        name="cpu-limit",
        kind=PERCENT,
        default=0.75,
        help="A level with busier CPUs cannot be sustained beside other work.",
    ),
    _analysis(
        name="queue-limit",
        kind=SECONDS,
        default=1.0,
        help="A level where a stage waited longer for its consumer is not valid.",
    ),
    _analysis(
        name="discount",
        kind=PERCENT,
        default=0.2,
        help="Taken off the measured speed for the figure to plan production with.",
    ),
    _analysis(
        name="report",
        kind=PathText("FILE", only="file"),
        empty=False,
        help="Write a page in HTML on the sweep to FILE: its curve, stages, timelines and load. It "
        "needs no network. If it cannot be written the exit status is 10.",
    ),
)
