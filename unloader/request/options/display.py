"""Options on what is shown of a command's work and of its result, and options of small commands."""

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
_shown = partial(_option, section="Progress and result")

WATCHED = ("demo", *REACHING)
"""Commands that show how far they are."""

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
        section="The table",
        commands=("demo",),
        default=10_000_000,
        help="Number of rows of the table (200k, 50M, 10_000_000).",
    ),
    _option(
        name="dir",
        kind=PathText("DIR", only="directory"),
        section="The table",
        commands=("demo",),
        default="unloader-demo",
        help="Directory for the database file and the output.",
    ),
    DEMO_PARALLELISM,
    _option(
        name="new-snapshot",
        kind=FLAG,
        section="How to go on",
        commands=("resume",),
        help="Unload everything again at a new snapshot. What is done so far is dropped.",
    ),
    RESUME_PARALLELISM,
    *RESUMING_CLUSTER,
    _option(
        name="strict",
        kind=FLAG,
        section="What to check",
        commands=("verify",),
        help="Fail if the directories of the run hold files that are not part of it.",
    ),
    _option(
        name="level",
        kind=Choice("count", "full", "source"),
        section="What to check",
        commands=("verify",),
        default="count",
        help="Compare the files as a whole and the rows (count), also the values in the files with "
        "the checksums that a run with --verify full recorded (full), or with checksums that "
        "SOURCE computes (source).",
    ),
    VERIFY_PARALLELISM,
    _option(
        name="watch",
        kind=FLAG,
        section="Watching",
        commands=("status",),
        help="Look again and again until the run has ended.",
    ),
    _option(
        name="interval",
        kind=SECONDS,
        section="Watching",
        commands=("status",),
        default=1.0,
        help="Seconds between two looks with --watch.",
    ),
    _option(
        name="depth",
        kind=Whole(0),
        section="Where to look",
        commands=("runs",),
        default=3,
        help="Levels of directories below DIR to look into; 0 looks at DIR alone.",
    ),
    _option(
        name="timeout",
        kind=SECONDS,
        section="Waiting",
        commands=("stop",),
        default=300.0,
        help="Seconds to wait for the end of the run; 0 asks it to end and does not wait.",
    ),
    *ASKED,
    _option(
        name="output",
        kind=PathText("FILE", only="file"),
        section="The page",
        commands=("report",),
        empty=False,
        kept=False,
        help="Write the page to FILE; without it, to standard output.",
    ),
    _option(
        name="ceilings",
        kind=PathText("FILE", only="file"),
        section="The page",
        commands=("report",),
        empty=False,
        kept=False,
        help="Draw the ceilings in FILE into the curve of a sweep. unloader preflight --save makes "
        "such a file.",
    ),
    _option(
        name="schema",
        kind=Kind("S"),
        section="The job file",
        commands=("init",),
        empty=False,
        help="Schema whose tables the job file names, quoted if it is not plain. Not needed where "
        "the tables of the source are in one schema.",
    ),
    _option(
        name="output",
        kind=PathText("FILE", only="file"),
        section="The job file",
        commands=("init",),
        empty=False,
        kept=False,
        help="Write the job file to FILE, which must not be there; without it, to standard output.",
    ),
    _option(
        name="dry-run",
        kind=FLAG,
        section="Cleaning",
        commands=("clean",),
        help="Only show what would be removed.",
    ),
    _option(
        name="end",
        kind=Kind("RUN_ID"),
        section="Ending",
        commands=("keepers",),
        empty=False,
        help="End the keeper of this run; the run cannot be resumed after that.",
    ),
    _option(
        name="end-all",
        kind=FLAG,
        section="Ending",
        commands=("keepers",),
        help="End all keepers that no running unload uses.",
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
        help="Show all work units with their statements, without a limit.",
    ),
    _shown(
        name="progress",
        kind=Choice("auto", "bar", "log", "none"),
        commands=WATCHED,
        default="auto",
        help="Progress on stderr; auto is a bar on a terminal and a log elsewhere.",
    ),
    _shown(
        name="log-format",
        kind=Choice("text", "json"),
        commands=WATCHED,
        default="text",
        help="Lines of the log as text or as one JSON object each.",
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
        help="Write nothing but errors, and the result with --json.",
    ),
)
