"""Options on progress and results, and options of small commands."""

from __future__ import annotations

from functools import partial

from unloader.request.options.cluster import RESUMING as RESUMING_CLUSTER
from unloader.request.options.kinds import COUNT, FLAG, SECONDS, Choice, Kind, PathText, Whole
from unloader.request.options.option import REACHING, Option
from unloader.request.options.running import (
    ASKED,
    DEMO_PARALLELISM,
    RESUME_PARALLELISM,
    VERIFY_PARALLELISM,
)

_option = partial(Option, effect="unrecorded")
_shown = partial(_option, section="Display")

WATCHED = ("demo", *REACHING)
"""Commands that show their progress."""

ANSWERING = (
    *WATCHED,
    *("status", "runs", "stop", "set", "report"),
    *("check", "clean", "merge", "keepers", "topology", "sweep", "formats", "sources", "size"),
)
"""Commands that have a result to show."""

OWN = (
    _option(
        name="rows",
        kind=COUNT,
        section="Table",
        commands=("demo",),
        default=10_000_000,
        help="Number of rows of the table, such as 200k, 50M or 10_000_000.",
        common=True,
    ),
    _option(
        name="dir",
        kind=PathText("DIR", only="directory"),
        section="Table",
        commands=("demo",),
        default="unloader-demo",
        help="Directory for the database file and the output.",
        common=True,
    ),
    DEMO_PARALLELISM,
    _option(
        name="new-snapshot",
        kind=FLAG,
        section="Resume",
        commands=("resume",),
        help="Unload everything again at a new snapshot. Finished work units are dropped.",
        common=True,
    ),
    RESUME_PARALLELISM,
    *RESUMING_CLUSTER,
    _option(
        name="strict",
        kind=FLAG,
        section="Check",
        commands=("verify",),
        help="Fail if the directories of the run hold other files.",
        common=True,
    ),
    _option(
        name="level",
        kind=Choice("count", "full", "source"),
        section="Check",
        commands=("verify",),
        default="count",
        help=(
            "What to compare. count compares the files as a whole and the number of rows. full "
            "also compares the values in the files with the checksums of a run with --verify full. "
            "source also compares them with checksums that SOURCE computes."
        ),
        common=True,
        example="full",
    ),
    VERIFY_PARALLELISM,
    _option(
        name="watch",
        kind=FLAG,
        section="Watch",
        commands=("status",),
        help="Show the run again until it has ended.",
    ),
    _option(
        name="interval",
        kind=SECONDS,
        section="Watch",
        commands=("status",),
        default=1.0,
        help="Seconds between two pages of --watch.",
        example="5 --watch",
    ),
    _option(
        name="depth",
        kind=Whole(0),
        section="Search",
        commands=("runs",),
        default=3,
        help="Levels of directories to search below DIR. 0 searches DIR alone.",
    ),
    _option(
        name="timeout",
        kind=SECONDS,
        section="Wait",
        commands=("stop",),
        default=300.0,
        help="Seconds to wait for the end of the run. 0 does not wait.",
    ),
    *ASKED,
    _option(
        name="output",
        kind=PathText("FILE", only="file"),
        section="Page",
        commands=("report",),
        empty=False,
        kept=False,
        help="Write the page to FILE. The default is standard output.",
    ),
    _option(
        name="ceilings",
        kind=PathText("FILE", only="file"),
        section="Page",
        commands=("report",),
        empty=False,
        kept=False,
        help=(
            "Draw the ceilings in FILE into the curve of a sweep. unloader preflight --save writes "
            "such a file."
        ),
    ),
    _option(
        name="schema",
        kind=Kind("S"),
        section="Job",
        commands=("init",),
        empty=False,
        help=(
            "Schema of the tables in the job file. Put double quotes around a name that is not "
            "plain. The option is not needed if all tables of the source are in one schema."
        ),
        common=True,
    ),
    _option(
        name="output",
        kind=PathText("FILE", only="file"),
        section="Job",
        commands=("init",),
        empty=False,
        kept=False,
        help="Write the job file to FILE. FILE must not exist. The default is standard output.",
        common=True,
    ),
    _option(
        name="dry-run",
        kind=FLAG,
        section="Clean",
        commands=("clean",),
        help="Only show the files that would be removed.",
    ),
    _option(
        name="end",
        kind=Kind("RUN_ID"),
        section="End",
        commands=("keepers",),
        empty=False,
        help="End the keeper of this run. The run cannot be resumed afterwards.",
    ),
    _option(
        name="end-all",
        kind=FLAG,
        section="End",
        commands=("keepers",),
        help="End all keepers that no active run uses.",
    ),
    _option(
        name="debug",
        kind=FLAG,
        section="Options",
        commands=("",),
        help="Show tracebacks and debug messages.",
    ),
)
"""Options of one command alone; the one without a name is the program itself."""

SHOWN = (
    _shown(
        name="units",
        kind=FLAG,
        commands=("plan",),
        kept=False,
        help="Show all work units with their statements.",
    ),
    _shown(
        name="progress",
        kind=Choice("auto", "bar", "log", "none"),
        commands=WATCHED,
        default="auto",
        help="Progress on stderr. auto is a bar on a terminal, and a log elsewhere.",
        example="log",
    ),
    _shown(
        name="log-format",
        kind=Choice("text", "json"),
        commands=WATCHED,
        default="text",
        help="Write the log as text, or as a JSON object on each line.",
        example="json",
    ),
    _shown(
        name="log-interval",
        kind=SECONDS,
        commands=WATCHED,
        default=30.0,
        help="Seconds between two lines of progress in the log.",
    ),
    _shown(
        name="json",
        kind=FLAG,
        commands=ANSWERING,
        kept=False,
        help="Write the result to stdout as one JSON object.",
    ),
    _shown(
        name="quiet",
        kind=FLAG,
        commands=ANSWERING,
        kept=False,
        help="Write only errors, and the result with --json.",
    ),
)
