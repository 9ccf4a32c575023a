"""The pages of `unloader status` and `unloader runs`, as plain text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.log import phase_text, tables_text
from unloader.cli.display.render import ranges
from unloader.cli.display.sparkline import can_show_blocks, speeds_text
from unloader.nouns import counted
from unloader.selection.listing import TRY_AGAIN

if TYPE_CHECKING:
    from unloader.status.model import LiveStatus, ParallelismStatus, WorkerStatus
    from unloader.status.reading import FinishedRun, RunStatus

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
    parts = [render.facts((name, render.visible(text)) for name, text in facts)]
    live = status.live
    if status.state == "running" and live is not None and live.workers:
        parts.append(_workers(live))
    return "\n\n".join(parts)


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
    heads = (
        *("destination", "state", "table", "started"),
        *(">rows", ">bytes", ">seconds", ">age"),
    )
    lines = [render.table(heads, (_run_cells(each, now) for each in found))]
    lines += [
        render.visible(each.problem)
        for each in found
        if each.problem and each.state == "unreadable"
    ]
    return "\n".join(lines)


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
    kept, all_units = (status.left.units if status.left is not None else 0), status.units
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
    many = status.tables
    if many is not None:
        left = many.total - many.done - many.left_out
        if not left:
            return TRY_AGAIN
        tables = counted(left, "incomplete table")
        return (
            f"unloader resume {place}  # keeps {counted(kept, 'finished work unit')} of "
            f"{tables}, and unloads the rest{until}"
        )
    rest = "" if all_units is None else f", unloads the other {all_units - kept:,}"
    return f"unloader resume {place}  # keeps {counted(kept, 'finished work unit')}{rest}{until}"


def _facts(status: RunStatus, now: datetime, width: int | None) -> Iterator[tuple[str, str]]:
    yield "destination", status.destination
    yield "state", _state(status, now)
    yield "run", status.run_id
    yield "table", status.table or render.UNKNOWN
    if status.home:
        yield "of the run in", status.home
    if status.tables is not None and status.state == "interrupted":
        yield "tables", f"{status.tables.done:,} of {status.tables.total:,} complete"
    yield "started", status.started or render.UNKNOWN
    if status.state in ("running", "interrupted"):
        yield from _process(status)
        if status.live is not None:
            yield from _progress(status, status.live, width)
        elif status.left is not None and status.units is not None:
            # It was killed before it showed itself: its journal and its record still tell.
            yield "units", f"{status.left.units:,} of {status.units:,} done"
        if status.left is not None:
            left = status.left
            yield "staged", f"{counted(left.files, 'file')}, {render.size(left.bytes)}"
    if status.finished is not None:
        yield from _finished(status, status.finished)
    if next_step(status):
        yield "next", next_step(status)


def _state(status: RunStatus, now: datetime) -> str:
    if status.state == "running":
        live = status.live
        stopping = ", asked to stop" if live is not None and live.stopping else ""
        return f"running{_for(status.since, now)}{stopping}"
    if status.state == "interrupted":
        why = status.reason or "its process was killed, or its machine went down"
        return f"interrupted: {why}"
    return status.state


def _process(status: RunStatus) -> Iterator[tuple[str, str]]:
    if status.host:
        yield "process", f"{status.pid} on {status.host}, since {status.since}"


def _progress(status: RunStatus, live: LiveStatus, width: int | None) -> Iterator[tuple[str, str]]:
    units = live.units
    done = units.done
    running = status.state == "running"
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
        likely = (
            "" if live.bytes_expected is None else f" of about {render.size(live.bytes_expected)}"
        )
        yield "bytes", f"{render.size(live.bytes)}{likely}"
        yield (
            "speed",
            f"{render.rows_per_second(live.rows_per_second)} "
            f"({render.rows_per_second(live.mean_rows_per_second)} on average), "
            f"{render.megabytes_per_second(live.bytes_per_second)}",
        )
        if len(live.speeds) > 1:
            room = None if width is None else width - _NAMES_WIDTH
            unicode = can_show_blocks(sys.stdout)
            yield "so far", speeds_text(live.speeds, room, unicode=unicode)
        if live.parallelism is not None:
            yield "workers", _parallelism(live.parallelism)
        if live.seconds_left is not None:
            yield "time left", f"about {render.seconds(live.seconds_left)}"
    yield "retries", render.count(live.retries)
    if live.last_error and not live.ended:
        yield "last error", live.last_error
    if live.last_notice and running:
        yield "last notice", live.last_notice


def _parallelism(known: ParallelismStatus) -> str:
    paused = f", {known.paused} paused within a unit" if known.paused else ""
    return f"{known.workers} of {known.of} ({known.mode}){paused}: {known.reason}"


def _finished(status: RunStatus, finished: FinishedRun) -> Iterator[tuple[str, str]]:
    if status.state != "finished":
        yield "earlier run", f"{finished.run_id}, finished, {counted(finished.rows, 'row')}"
        return
    yield "rows", render.count(finished.rows)
    yield "bytes", f"{render.count(finished.bytes)} ({render.size(finished.bytes)})"
    yield "files", render.count(finished.files)
    yield "seconds", f"{finished.seconds:.2f}"
    yield "verified", finished.verified


def _workers(live: LiveStatus) -> str:
    heads = (
        *(">worker", ">node", "CPUs", "unit", ">attempt", ">rows", ">seconds"),
        *("waits for", "partition"),
    )
    return render.table(heads, (_worker_cells(each) for each in live.workers))


def _worker_cells(worker: WorkerStatus) -> tuple[str, ...]:
    bound = bool(worker.cpus)
    seat = (str(worker.node) if bound else "any", ranges(worker.cpus) if bound else "any")
    if worker.unit is None:
        return (str(worker.worker), *seat, "idle", "", "", "", _waits(worker), "")
    return (
        *(str(worker.worker), *seat, worker.unit, str(worker.attempt)),
        *(render.count(worker.rows), f"{worker.seconds:.0f}", _waits(worker)),
        render.name(worker.partition or ""),
    )


def _waits(worker: WorkerStatus) -> str:
    if worker.waits_for == "retry" and worker.retry_in_seconds is not None:
        return f"a retry in {worker.retry_in_seconds:.0f} s"
    waits = _WAITS.get(worker.waits_for, worker.waits_for)
    return f"{waits}: {worker.waits_detail}" if worker.waits_detail else waits


def _run_cells(status: RunStatus, now: datetime) -> tuple[str, ...]:
    if status.state == "finished" and status.finished is not None:
        done = status.finished
        rows, size, seconds, last = done.rows, done.bytes, done.seconds, done.ended
    elif status.live is not None:
        live = status.live
        rows, size, seconds, last = live.rows, live.bytes, live.seconds, live.updated
    else:
        return (
            *(status.destination, status.state, status.table or render.UNKNOWN),
            *(status.started or render.UNKNOWN, *(render.UNKNOWN,) * 3),
            _age(status.since or status.started, now),
        )
    return (
        *(status.destination, status.state, status.table or render.UNKNOWN),
        *(status.started or render.UNKNOWN, render.count(rows), render.size(size)),
        *(f"{seconds:.1f}", _age(last, now)),
    )


def _for(since: str, now: datetime) -> str:
    age = _age(since, now)
    return "" if age == render.UNKNOWN else f" for {age}"


def _age(since: str | None, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(since or "")
    except ValueError:
        return render.UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Clocks of two machines differ.
    return _days(max(0.0, (now - moment).total_seconds()))


def _days(seconds: float) -> str:
    return render.seconds(seconds) if seconds < 172800 else f"{seconds / 86400:.0f} days"
