"""Options on how a run goes: speed and memory, repeated attempts, checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from unloader.model import (
    ConcurrencyOptions,
    OutputOptions,
    PlanOptions,
    Request,
    RetryOptions,
)
from unloader.request.options.kinds import FLAG, SECONDS, SIZE, SIZE_FROM_1, Choice, Whole
from unloader.request.options.option import ONE_VALUE, READING, Option
from unloader.request.options.parsing import (
    HOURS,
    HOURS_OR_NONE,
    PARALLELISM,
    PERCENT,
    PERCENT_OR_NONE,
    RUN_PARALLELISM,
)

_speed = partial(Option, section="Speed and memory", commands=READING, effect="none")
_safety = partial(Option, section="Safety", commands=READING)


def _workers(number: int) -> int | None:
    return number if number > 0 else None


PARALLEL = _speed(
    name="parallelism",
    commands=ONE_VALUE,
    kind=RUN_PARALLELISM,
    field="limits.parallelism",
    owner=PlanOptions,
    shape=_workers,
    default=0,
    planned=True,
    record="parallelism",
    help="Number of workers, at most one for each work unit; auto is the number of usable cores. "
    "adaptive begins with few, and adds and removes workers as the measured rows per second say.",
)

_AT_A_TIME = (
    _speed(
        name="max-sessions",
        kind=Whole(2),
        field="concurrency.max_sessions",
        owner=ConcurrencyOptions,
        record="max_sessions",
        help="Most sessions of the run in the database: that of the parent, one of each worker, and"
        " those of --max-db-load and --keep-snapshot.",
    ),
    _speed(
        name="max-cpu",
        kind=PERCENT,
        field="concurrency.max_cpu",
        owner=ConcurrencyOptions,
        record="max_cpu",
        help="Let fewer workers work while the CPUs of this host are busier than this, for instance"
        " 75%. One worker always goes on. Linux.",
    ),
    _speed(
        name="slow-between",
        kind=HOURS,
        field="concurrency.slow_between",
        owner=ConcurrencyOptions,
        record="slow_between",
        empty=False,
        help="Let --slow-parallelism workers work in these hours of each day, in the local time of "
        "this host; 22:00-06:00 goes over midnight.",
    ),
    _speed(
        name="slow-parallelism",
        kind=Whole(1),
        field="concurrency.slow_parallelism",
        owner=ConcurrencyOptions,
        default_text="1",
        record="slow_parallelism",
        help="Number of workers in the hours of --slow-between.",
    ),
)

SPEED = (
    PARALLEL,
    *_AT_A_TIME,
    _speed(
        name="split",
        scope="table",
        kind=Choice("auto", "partition", "range", "none"),
        field="limits.split",
        owner=PlanOptions,
        planned=True,
        record="split",
        help="How the table is split into work units.",
    ),
    _speed(
        name="unit-bytes",
        scope="table",
        kind=SIZE_FROM_1,
        field="limits.unit_bytes",
        owner=PlanOptions,
        default_text="by the planner",
        planned=True,
        record="unit_bytes",
        help="Size in bytes above which a partition or table is split (256MiB).",
    ),
    _speed(
        name="fetch-memory",
        scope="table",
        commands=ONE_VALUE,
        kind=SIZE_FROM_1,
        field="fetch_bytes",
        owner=Request,
        record="fetch_memory",
        help="Memory of one worker's array fetch, in bytes.",
    ),
    _speed(
        name="worker-memory",
        kind=SIZE,
        field="worker_memory_bytes",
        owner=Request,
        record="worker_memory",
        help="Replace a worker whose process holds more than this many bytes after a work unit. A"
        " memory leak in a driver then cannot fill the machine. 0 never replaces one. "
        "Resident memory counts, mapped libraries included; a worker starts with about "
        "160MiB. Linux.",
    ),
    _speed(
        name="overlap-buffer",
        scope="route",
        commands=ONE_VALUE,
        kind=SIZE_FROM_1,
        field="output.buffer_bytes",
        owner=OutputOptions,
        record="overlap_buffer",
        help="Size of one output buffer, in bytes.",
    ),
    _speed(
        name="overlap-buffers",
        scope="route",
        kind=Whole(1),
        field="output.buffers",
        owner=OutputOptions,
        record="overlap_buffers",
        help="Number of output buffers of one worker.",
    ),
    _speed(
        name="direct-io",
        scope="route",
        kind=FLAG,
        field="output.direct_io",
        owner=OutputOptions,
        record="direct_io",
        not_for={"streams": "it has no page cache", "objects": "it has no page cache"},
        help="Bypass the page cache, if the file system supports it.",
    ),
)

PAUSING = (
    _safety(
        name="min-free",
        kind=SIZE,
        effect="none",
        field="output.min_free_bytes",
        owner=OutputOptions,
        record="min_free",
        not_for={"streams": "it has no disk", "objects": "it has no disk"},
        help="Pause the run while the disk of a directory has less free than this, in bytes. "
        "0 does not look: a full disk ends the run.",
    ),
    _safety(
        name="pause-timeout",
        kind=SECONDS,
        effect="none",
        field="output.pause_seconds",
        owner=OutputOptions,
        record="pause_timeout",
        not_for={"streams": "it has no disk", "objects": "it has no disk"},
        help="End the run, with its finished units kept, after a pause of so many seconds. "
        "0 ends it as soon as less than --min-free is free.",
    ),
)

SAFETY = (
    _safety(
        name="consistency",
        kind=Choice("snapshot", "none"),
        effect="changes",
        field="consistency",
        owner=Request,
        record="consistency",
        help="Read everything at one point in time (snapshot), or each work unit at its own "
        "(none).",
    ),
    Option(
        name="resume-or-start",
        kind=FLAG,
        section="Safety",
        commands=("run",),
        effect="unrecorded",
        not_for={"streams": "nothing of it is kept"},
        help="Continue the interrupted run of the same job in DEST if there is one and its "
        "snapshot can still be read; else start a new run.",
    ),
    Option(
        name="skip-finished",
        kind=FLAG,
        section="Safety",
        commands=("run",),
        effect="unrecorded",
        not_for={"streams": "nothing of it is kept"},
        help="With --resume-or-start: if the run of the same job in DEST is finished, do nothing "
        "and end with status 0. For a lakehouse table, if such a run was committed today (UTC).",
    ),
    _safety(
        name="retries",
        kind=Whole(0),
        effect="none",
        field="retry.retries",
        owner=RetryOptions,
        record="retries",
        help="Number of retries of a failed work unit.",
    ),
    _safety(
        name="retry-delay",
        kind=SECONDS,
        effect="none",
        field="retry.delay_seconds",
        owner=RetryOptions,
        record="retry_delay",
        help="Seconds before the first retry; doubled before each further retry. Up to a half of "
        "each delay is left out, a different part for each work unit.",
    ),
    _safety(
        name="retry-delay-max",
        kind=SECONDS,
        effect="none",
        field="retry.delay_max_seconds",
        owner=RetryOptions,
        record="retry_delay_max",
        help="Longest delay before a retry, in seconds; --retry-delay itself may be longer.",
    ),
    _safety(
        name="stall-timeout",
        kind=SECONDS,
        effect="none",
        field="retry.stall_seconds",
        owner=RetryOptions,
        record="stall_timeout",
        help="Seconds without progress after which an attempt counts as failed. 0 sets no limit.",
    ),
    _safety(
        name="verify",
        scope="table",
        commands=ONE_VALUE,
        kind=Choice("none", "count", "full", "source"),
        effect="changes",
        field="verify",
        owner=Request,
        record="verify",
        help="Check after the run: nothing (none), row counts in the source (count), also the "
        "files, which are read back and compared value for value with what was fetched (full), or "
        "also checksums of all values that the source computes (source).",
    ),
)

_KNOWN_BEFORE = replace(PARALLEL, kind=PARALLELISM)
DEMO_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="The table",
    commands=("demo",),
    effect="unrecorded",
    help="Number of workers, at most one for each work unit; auto is the number of usable cores.",
)
VERIFY_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="What to check",
    commands=("verify",),
    effect="unrecorded",
    help="Number of files that are read at a time; auto is the number of usable cores.",
)
RESUME_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="How to go on",
    commands=("resume",),
    effect="unrecorded",
    default_text="that of the run",
    help="Number of workers for the rest of the run; auto is the number of usable cores. Only the "
    "command line sets it, no variable.",
)
SEATS_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="Seats on the machine",
    commands=("topology",),
    effect="unrecorded",
    help="Number of workers to place; auto is the number of CPUs that can be used at once.",
)

_asked = partial(Option, section="What to change", commands=("set",), effect="unrecorded")

ASKED = (
    _asked(
        name="parallelism",
        kind=RUN_PARALLELISM,
        help="Number of workers from now on, at most those that the run has seats for. adaptive "
        "finds the best number by measuring; auto is all of them.",
    ),
    _asked(
        name="max-sessions",
        kind=Whole(0),
        help="Most sessions of the run in the database, as for run; 0 is no limit.",
    ),
    _asked(
        name="max-cpu",
        kind=PERCENT_OR_NONE,
        help="Share of the CPUs of the run's host, as for run; 0 does not look.",
    ),
    _asked(
        name="slow-between",
        kind=HOURS_OR_NONE,
        help="Hours with --slow-parallelism workers, in the local time of the run's host; never is "
        "no such hours.",
    ),
    _asked(
        name="slow-parallelism",
        kind=Whole(1),
        help="Number of workers in those hours.",
    ),
    _asked(
        name="timeout",
        kind=SECONDS,
        section="Waiting",
        default=30.0,
        help="Seconds to wait until the run has taken it; 0 does not wait.",
    ),
)
"""What `unloader set` changes of a run that goes on."""
