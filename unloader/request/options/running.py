"""Options on the speed and memory of a run, its retries and its checks."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

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

_speed = partial(Option, section="Speed", commands=READING, effect="none")
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
    help=(
        "Number of workers. auto is the number of usable cores. A run has at most one worker "
        "for each work unit. adaptive starts with few workers, and adds and removes workers by "
        "the measured rows per second."
    ),
    common=True,
    example="8",
)

_AT_A_TIME = (
    _speed(
        name="max-sessions",
        kind=Whole(2),
        field="concurrency.max_sessions",
        owner=ConcurrencyOptions,
        record="max_sessions",
        help=(
            "Most sessions of the run in the database: one of the parent, one of each worker, and "
            "the sessions of --max-db-load and --keep-snapshot."
        ),
        example="16",
    ),
    _speed(
        name="max-cpu",
        kind=PERCENT,
        field="concurrency.max_cpu",
        owner=ConcurrencyOptions,
        record="max_cpu",
        help=(
            "Use fewer workers while the CPUs of this host are busier than this, such as 75%. One "
            "worker always continues. Linux."
        ),
        example="75%",
    ),
    _speed(
        name="slow-between",
        kind=HOURS,
        field="concurrency.slow_between",
        owner=ConcurrencyOptions,
        record="slow_between",
        empty=False,
        help=(
            "Use --slow-parallelism workers in these hours of each day, in the local time of this "
            "host. 22:00-06:00 includes midnight."
        ),
        example="08:00-18:00 --slow-parallelism 2",
    ),
    _speed(
        name="slow-parallelism",
        kind=Whole(1),
        field="concurrency.slow_parallelism",
        owner=ConcurrencyOptions,
        default_text="1",
        record="slow_parallelism",
        help="Number of workers in the hours of --slow-between.",
        example="2 --slow-between 08:00-18:00",
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
        example="range",
    ),
    _speed(
        name="unit-bytes",
        scope="table",
        kind=SIZE_FROM_1,
        field="limits.unit_bytes",
        owner=PlanOptions,
        default_text="set by the planner",
        planned=True,
        record="unit_bytes",
        help="Size above which a partition or table is split, such as 256MiB.",
        example="256MiB",
    ),
    _speed(
        name="fetch-memory",
        scope="table",
        commands=ONE_VALUE,
        kind=SIZE_FROM_1,
        field="fetch_bytes",
        owner=Request,
        record="fetch_memory",
        help="Memory of one worker for the array fetch, in bytes.",
        example="64MiB",
    ),
    _speed(
        name="worker-memory",
        kind=SIZE,
        field="worker_memory_bytes",
        owner=Request,
        record="worker_memory",
        help=(
            "Replace a worker whose process holds more than this many bytes after a work unit. A "
            "memory leak in a driver then cannot fill the machine. 0 never replaces a worker. The "
            "limit is on resident memory with mapped libraries, and a new worker has about 160MiB. "
            "Linux."
        ),
        example="2GiB",
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
        example="4MiB",
    ),
    _speed(
        name="overlap-buffers",
        scope="route",
        kind=Whole(1),
        field="output.buffers",
        owner=OutputOptions,
        record="overlap_buffers",
        help="Number of output buffers of one worker.",
        example="3",
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
        help=(
            "Pause the run while the disk of a directory has less free space than this, in bytes. "
            "0 does not check: a full disk then ends the run."
        ),
        example="10GiB",
    ),
    _safety(
        name="pause-timeout",
        kind=SECONDS,
        effect="none",
        field="output.pause_seconds",
        owner=OutputOptions,
        record="pause_timeout",
        not_for={"streams": "it has no disk", "objects": "it has no disk"},
        help=(
            "End the run after a pause of this many seconds, and keep its finished units. 0 ends "
            "the run as soon as less than --min-free is free."
        ),
        example="1h",
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
        help=(
            "Read everything at one point in time (snapshot), or each work unit at a different "
            "time (none)."
        ),
        example="none",
    ),
    Option(
        name="resume-or-start",
        kind=FLAG,
        section="Safety",
        commands=("run",),
        effect="unrecorded",
        not_for={"streams": "its output is not kept"},
        help=(
            "Resume a run in DEST, or start a new one. Only an interrupted run of the same job is "
            "resumed. A new run starts if DEST has no such run, or if its snapshot cannot be read "
            "any more."
        ),
        common=True,
    ),
    Option(
        name="skip-finished",
        kind=FLAG,
        section="Safety",
        commands=("run",),
        effect="unrecorded",
        not_for={"streams": "its output is not kept"},
        help=(
            "With --resume-or-start: do nothing if the run of the same job in DEST is finished. "
            "The exit status is 0. The files are not checked. For a lakehouse table, the run must "
            "have been committed today (UTC). Refused with --overwrite, with --part, and with "
            "{run_id} in --to."
        ),
        example="--resume-or-start",
    ),
    _safety(
        name="retries",
        kind=Whole(0),
        effect="none",
        field="retry.retries",
        owner=RetryOptions,
        record="retries",
        help="Number of retries of a failed work unit.",
        example="5",
    ),
    _safety(
        name="retry-delay",
        kind=SECONDS,
        effect="none",
        field="retry.delay_seconds",
        owner=RetryOptions,
        record="retry_delay",
        help=(
            "Seconds before the first retry. The delay doubles before each further retry. Each "
            "work unit waits for a different part of the delay, at least half of it, so that not "
            "all work units are retried at the same time."
        ),
        example="10",
    ),
    _safety(
        name="retry-delay-max",
        kind=SECONDS,
        effect="none",
        field="retry.delay_max_seconds",
        owner=RetryOptions,
        record="retry_delay_max",
        help="Longest delay before a retry, in seconds. A longer --retry-delay is not shortened.",
        example="5m",
    ),
    _safety(
        name="stall-timeout",
        kind=SECONDS,
        effect="none",
        field="retry.stall_seconds",
        owner=RetryOptions,
        record="stall_timeout",
        help="Seconds without progress after which an attempt fails. 0 sets no limit.",
        example="10m",
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
        help=(
            "Check the result after the run. none does not check. count compares the number of "
            "rows with the source. full also reads the files and compares each value with the "
            "fetched value. source also compares checksums of all values, which the source "
            "computes."
        ),
        common=True,
        example="full",
    ),
)

_KNOWN_BEFORE = replace(PARALLEL, kind=PARALLELISM)
DEMO_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="Table",
    commands=("demo",),
    effect="unrecorded",
    help="Number of workers, at most one for each work unit. auto is the number of usable cores.",
    example="2",
)
VERIFY_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="Check",
    commands=("verify",),
    effect="unrecorded",
    help="Number of files to read in parallel. auto is the number of usable cores.",
)
RESUME_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="Resume",
    commands=("resume",),
    effect="unrecorded",
    default_text="as in the run",
    help=(
        "Number of workers for the rest of the run. auto is the number of usable cores. Only "
        "the command line sets it, and not a variable."
    ),
)
SEATS_PARALLELISM = replace(
    _KNOWN_BEFORE,
    section="Placement",
    commands=("topology",),
    effect="unrecorded",
    help="Number of workers to place. auto is the number of CPUs that can be used in parallel.",
)

_asked = partial(Option, section="Change", commands=("set",), effect="unrecorded")

ASKED = (
    _asked(
        common=True,
        name="parallelism",
        kind=RUN_PARALLELISM,
        help=(
            "Number of workers from now on, up to the number of seats of the run. adaptive finds "
            "the best number by measuring. auto uses all seats."
        ),
    ),
    _asked(
        common=True,
        name="max-sessions",
        kind=Whole(0),
        help="Most sessions of the run in the database. 0 sets no limit.",
        example="8",
    ),
    _asked(
        common=True,
        name="max-cpu",
        kind=PERCENT_OR_NONE,
        help="Highest load of the CPUs on the host of the run, such as 75%. 0 does not check.",
        example="75%",
    ),
    _asked(
        name="slow-between",
        kind=HOURS_OR_NONE,
        help=(
            "Hours with --slow-parallelism workers, in the local time of the host of the run. "
            "never removes the hours."
        ),
        example="08:00-18:00",
    ),
    _asked(
        name="slow-parallelism",
        kind=Whole(1),
        help="Number of workers in the hours of --slow-between.",
        example="2",
    ),
    _asked(
        name="timeout",
        kind=SECONDS,
        section="Wait",
        default=30.0,
        help="Seconds to wait until the run has applied the change. 0 does not wait.",
    ),
)
"""What `unloader set` changes in a running run."""
