"""The pages of `unloader status` and `unloader runs`, as plain text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from unloader.cli.display import render
from unloader.cli.display.log import phase_text, tables_text
from unloader.nouns import counted
from unloader.selection.listing import TRY_AGAIN
from unloader.status.model import LiveStatus, WorkerStatus
from unloader.status.reading import RunStatus

_NAMES_WIDTH = 14
"""Columns of the names of facts, and of the gap beside them."""

_WAITS = {
    "nothing": "",
    "source": "the source",
    "destination": "the destination",
    "limit": "a limit on the run",
}


def status_page(status: RunStatus, now: datetime, width: int | None = None) -> str:
    """Return the whole status of the run at a destination.

    Args:
        status: The state of the destination.
        now: With a time zone.
        width: Columns of the terminal; None for other outputs.
    """
    facts = _facts(status, now, width)
    page, live = render.facts((name, render.visible(text)) for name, text in facts), status.live
    if status.state != "running" or live is None or not live.workers:
        return page
    heads = (">worker", ">node", "CPUs", "unit", ">attempt", ">rows", ">seconds", "waits for")
    return f"{page}\n\n{render.table((*heads, 'partition'), map(_worker_cells, live.workers))}"


def status_line(status: RunStatus) -> str:
    """Return how far a run is on one line."""
    live = status.live
    if status.state != "running" or live is None:
        return f"{status.state}: run {status.run_id}"
    left = live.seconds_left
    parts = (
        *(() if live.tables is None else (tables_text(live.tables),)),
        f"{live.units.done}/{live.units.total} units",
        counted(live.rows, "row"),
        render.rows_per_second(live.rows_per_second),
        *(() if live.fraction is None else (f"{live.fraction * 100:.0f} %",)),
        *(() if left is None else (f"about {render.seconds(left)} left",)),
    )
    return f"{live.phase}: " + ", ".join(parts)


def runs_page(found: Sequence[RunStatus], now: datetime) -> str:
    """Return a line for each run."""
    rows = []
    for each in found:
        figures: tuple[str, ...] = (render.UNKNOWN,) * 3
        since = each.since or each.started
        if each.state == "finished" and (done := each.finished) is not None:
            figures = (render.count(done.rows), render.size(done.bytes), f"{done.seconds:.1f}")
            since = done.ended
        elif (live := each.live) is not None:
            figures = (render.count(live.rows), render.size(live.bytes), f"{live.seconds:.1f}")
            since = live.updated
        table, started = each.table or render.UNKNOWN, each.started or render.UNKNOWN
        rows.append((each.destination, each.state, table, started, *figures, _age(since, now)))
    heads = ("destination", "state", "table", "started", ">rows", ">bytes", ">seconds", ">age")
    unreadable = (each.problem for each in found if each.problem and each.state == "unreadable")
    return "\n".join([render.table(heads, rows), *map(render.visible, unreadable)])


def next_step(status: RunStatus) -> str:
    """Return the next command for an interrupted run, with its effect as a comment of the shell.

    It is empty if nothing is to be done. `status` does not know the command of the run: for tables
    that only this command can unload, the result is a sentence.
    """
    if status.state != "interrupted":
        return ""
    place = shlex.quote(status.home or status.destination)
    if status.problem:
        stay = "; published tables stay" if status.tables or status.home else ""
        return (
            f"unloader clean {place}  # removes the staged files{stay}. "
            f"The run cannot be resumed: {status.problem}"
        )
    live = status.live
    if live is not None and live.resumable is False:
        return (
            f"unloader resume {place} --new-snapshot  # unloads everything again, because the "
            "snapshot ended with the run"
        )
    until = "" if live is None or not live.snapshot_kept_until else live.snapshot_kept_until
    until = until and f"; possible until {until}"
    if status.home:
        return f"unloader resume {place}  # continues the run over all tables"
    kept = status.left.units if status.left is not None else 0
    keeps = f"unloader resume {place}  # keeps {counted(kept, 'finished work unit')}"
    if (many := status.tables) is not None:
        left = many.total - many.done - many.left_out
        if not left:
            return TRY_AGAIN
        return f"{keeps} of {counted(left, 'incomplete table')}, and unloads the rest{until}"
    rest = "" if status.units is None else f", unloads the other {status.units - kept:,}"
    return f"{keeps}{rest}{until}"


def _facts(status: RunStatus, now: datetime, width: int | None) -> Iterator[tuple[str, str]]:
    live, left, finished = status.live, status.left, status.finished
    state: str = status.state
    yield "destination", status.destination
    if state == "running":
        age = _age(status.since, now)
        state += "" if age == render.UNKNOWN else f" for {age}"
        state += ", asked to stop" if live is not None and live.stopping else ""
    elif state == "interrupted":
        state += f": {status.reason or 'its process was killed, or its machine went down'}"
    yield "state", state
    yield "run", status.run_id
    yield "table", status.table or render.UNKNOWN
    if status.home:
        yield "of the run in", status.home
    if status.tables is not None and status.state == "interrupted":
        yield "tables", f"{status.tables.done:,} of {status.tables.total:,} complete"
    yield "started", status.started or render.UNKNOWN
    if status.state in ("running", "interrupted"):
        if status.host:
            yield "process", f"{status.pid} on {status.host}, since {status.since}"
        if live is not None:
            yield from _progress(status, live, width)
        elif left is not None and status.units is not None:
            # It was killed before it showed itself: its journal and its record have the units.
            yield "units", f"{left.units:,} of {status.units:,} done"
        if left is not None:
            yield "staged", f"{counted(left.files, 'file')}, {render.size(left.bytes)}"
    if finished is not None and status.state != "finished":
        yield "earlier run", f"{finished.run_id}, finished, {counted(finished.rows, 'row')}"
    elif finished is not None:
        yield "rows", render.count(finished.rows)
        yield "bytes", render.exact_size(finished.bytes)
        yield "files", render.count(finished.files)
        yield "seconds", f"{finished.seconds:.2f}"
        yield "verified", finished.verified
    if step := next_step(status):
        yield "next", step


def _progress(status: RunStatus, live: LiveStatus, width: int | None) -> Iterator[tuple[str, str]]:
    units, done, running = live.units, live.units.done, status.state == "running"
    if running:
        yield "phase", f"{phase_text(live.phase)}, since {live.phase_since}"
        counts = (
            f"{units.done:,} of {units.total:,} done, {units.running:,} running, "
            f"{units.waiting:,} waiting, {units.failed:,} failed"
        )
    else:
        yield "last seen", live.updated
        # The journal has the units that were done after the run was last seen.
        done = done if status.left is None else status.left.units
        counts = f"{done:,} of {units.total:,} done"
        if status.tables is not None:
            counts = (
                f"{units.done:,} of {units.total:,} done when last seen; "
                f"{counted(done, 'finished unit')} in the incomplete tables"
            )
    if running and live.tables is not None:
        yield "tables", tables_text(live.tables)
    yield "units", counts
    about = "" if live.rows_expected is None else f" of about {render.count(live.rows_expected)}"
    share = "" if live.fraction is None else f" ({live.fraction * 100:.0f} %)"
    rows = f"{render.count(live.rows)}{about}{share}"
    if done > units.done and status.tables is None:
        # The journal has more units than the run last showed, and it does not count rows.
        rows = f"{rows} when last seen" if live.rows else f"unknown{about}"
    yield "rows", rows
    if running:
        whole = live.bytes_expected
        likely = "" if whole is None else f" of about {render.size(whole)}"
        yield "bytes", f"{render.size(live.bytes)}{likely}"
        yield (
            "speed",
            f"{render.rows_per_second(live.rows_per_second)} "
            f"({render.rows_per_second(live.mean_rows_per_second)} on average), "
            f"{render.megabytes_per_second(live.bytes_per_second)}",
        )
        if len(live.speeds) > 1:
            room = None if width is None else width - _NAMES_WIDTH
            unicode = render.can_show_blocks(sys.stdout.encoding)
            yield "so far", render.speeds_text(live.speeds, room, unicode=unicode)
        if (known := live.parallelism) is not None:
            paused = f", {known.paused} paused within a unit" if known.paused else ""
            yield "workers", f"{known.workers} of {known.of} ({known.mode}){paused}: {known.reason}"
        if live.seconds_left is not None:
            yield "time left", f"about {render.seconds(live.seconds_left)}"
    yield "retries", render.count(live.retries)
    if live.last_error and not live.ended:
        yield "last error", live.last_error
    if live.last_notice and running:
        yield "last notice", live.last_notice


def _worker_cells(worker: WorkerStatus) -> tuple[str, ...]:
    seat = (str(worker.worker), "any", "any")
    if worker.cpus:
        seat = (str(worker.worker), str(worker.node), render.ranges(worker.cpus))
    waits = _WAITS.get(worker.waits_for, worker.waits_for)
    if worker.waits_for == "retry" and worker.retry_in_seconds is not None:
        waits = f"a retry in {worker.retry_in_seconds:.0f} s"
    elif worker.waits_detail:
        waits = f"{waits}: {worker.waits_detail}"
    if worker.unit is None:
        return (*seat, "idle", "", "", "", waits, "")
    return (
        *(*seat, worker.unit, str(worker.attempt), render.count(worker.rows)),
        *(f"{worker.seconds:.0f}", waits, render.name(worker.partition or "")),
    )


def _age(since: str | None, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(since or "")
    except ValueError:
        return render.UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Clocks of two machines differ.
    seconds = max(0.0, (now - moment).total_seconds())
    return render.seconds(seconds) if seconds < 172800 else f"{seconds / 86400:.0f} days"
