"""Options on how a run goes: speed and memory, repeated attempts, checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from unloader.model import OutputOptions, PlanOptions, Request, RetryOptions
from unloader.request.options.kinds import FLAG, SECONDS, SIZE, SIZE_FROM_1, Choice, Whole
from unloader.request.options.option import READING, Option
from unloader.request.options.parsing import PARALLELISM

_speed = partial(Option, section="Speed and memory", commands=READING, effect="none")
_safety = partial(Option, section="Safety", commands=READING)


def _workers(number: int) -> int | None:
    return number or None


PARALLEL = _speed(
    name="parallelism",
    kind=PARALLELISM,
    field="limits.parallelism",
    owner=PlanOptions,
    shape=_workers,
    default=0,
    planned=True,
    record="parallelism",
    help="Number of workers; auto is the usable cores, never more than there are work units.",
)

SPEED = (
    PARALLEL,
    _speed(
        name="split",
        kind=Choice("auto", "partition", "range", "none"),
        field="limits.split",
        owner=PlanOptions,
        planned=True,
        record="split",
        help="How the table is cut into work units.",
    ),
    _speed(
        name="unit-bytes",
        kind=SIZE_FROM_1,
        field="limits.unit_bytes",
        owner=PlanOptions,
        default_text="by the planner",
        planned=True,
        record="unit_bytes",
        help="Size in bytes above which a partition or table is cut (256MiB).",
    ),
    _speed(
        name="fetch-memory",
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
        help="Replace a worker whose process holds more than so many bytes after a work unit, "
        "before it gets the next one, so that a driver's leak cannot fill the machine; 0 is "
        "never. What counts is resident memory, mapped libraries included, of which a worker has "
        "about 160MiB at its start. Linux.",
    ),
    _speed(
        name="overlap-buffer",
        kind=SIZE_FROM_1,
        field="output.buffer_bytes",
        owner=OutputOptions,
        record="overlap_buffer",
        help="Size of one output buffer, in bytes.",
    ),
    _speed(
        name="overlap-buffers",
        kind=Whole(1),
        field="output.buffers",
        owner=OutputOptions,
        record="overlap_buffers",
        help="Number of output buffers of one worker.",
    ),
    _speed(
        name="direct-io",
        kind=FLAG,
        field="output.direct_io",
        owner=OutputOptions,
        record="direct_io",
        not_for={"streams": "it has no page cache"},
        help="Write past the page cache, where the file system can.",
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
        help="Read everything at one point in time, or each work unit as it comes.",
    ),
    _safety(
        name="retries",
        kind=Whole(0),
        effect="none",
        field="retry.retries",
        owner=RetryOptions,
        record="retries",
        help="Further attempts at a work unit that failed.",
    ),
    _safety(
        name="retry-delay",
        kind=SECONDS,
        effect="none",
        field="retry.delay_seconds",
        owner=RetryOptions,
        record="retry_delay",
        help="Seconds before the first further attempt; doubled before each next one.",
    ),
    _safety(
        name="stall-timeout",
        kind=SECONDS,
        effect="none",
        field="retry.stall_seconds",
        owner=RetryOptions,
        record="stall_timeout",
        help="Seconds without progress after which an attempt counts as failed. 0 is never.",
    ),
    _safety(
        name="verify",
        kind=Choice("none", "count", "full"),
        effect="changes",
        field="verify",
        owner=Request,
        record="verify",
        help="After the run: nothing, count rows in the source, or also read the files back.",
    ),
)

DEMO_PARALLELISM = replace(PARALLEL, section="The table", commands=("demo",), effect="unrecorded")
SEATS_PARALLELISM = replace(
    PARALLEL,
    section="Seats on the machine",
    commands=("topology",),
    effect="unrecorded",
    help="Number of workers to seat; auto is the CPUs that may be used at once.",
)
