"""Commands on the runs of a directory: status, runs, stop and set."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from msgspec import to_builtins

from unloader.cli.display import render
from unloader.cli.display.log import phase_text, tables_text
from unloader.cli.options.command import declared, on_command_line
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.signals import stop_on_signals
from unloader.errors import Interrupted, OutputFailed, PartialUnload, translated
from unloader.nouns import counted, listed
from unloader.request.settings import ADAPTIVE
from unloader.selection.listing import TRY_AGAIN
from unloader.status.model import LiveStatus, Wish
from unloader.status.reading import RunStatus, change_run, status_of, statuses_below, stop_run
from unloader.storage.place_names import PlacePath

_MOST_NAMED = 4
"""An error names at most this number of directories with runs."""


@declared(
    "status",
    "Show the progress of a run, from any shell.",
    """
    unloader status /extract/orders
    unloader status /extract/orders --watch
    unloader status /extract/orders --json
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@click.pass_context
def status(
    context: click.Context, /, destination: PlacePath, watch: bool, interval: float, **values: Any
) -> None:
    """Show the progress of the run in DEST, or how it ended.

    The command reads only the files of the run in DEST. So it works from another shell, as another
    user who may read DEST, and for a run on another machine. It changes nothing.

    For a run over several tables, DEST is the directory that contains the directories of all
    tables.

    The exit status is 0 for an active or finished run, 7 for an interrupted run that can be
    resumed, and 6 without a run. With --watch, it is the status at the end. With --watch
    --json, each page is one JSON object on a separate line.
    """
    found = _look(destination)
    try:
        while watch and found.state == "running":
            _show(found, values, more=True)
            time.sleep(max(interval, 0.1))
            try:
                found = _look(destination)
            except OutputFailed as error:
                raise OutputFailed(
                    f"run {found.run_id} has ended without files: {error.message}",
                    "see its own log for why it ended",
                ) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped watching run {found.run_id}, which continues",
            f"end it with: unloader stop {destination}",
        ) from None
    _show(found, values, more=watch, last=True)
    if found.state == "interrupted":
        context.exit(PartialUnload.exit_code)


def _look(destination: PlacePath) -> RunStatus:
    with translated():
        found = status_of(str(destination))
    if found.state != "none":
        return found
    below = [each.destination for each in statuses_below(str(destination), 1)]
    if below:
        raise OutputFailed(
            f"{destination} has no run, but its directories have runs: "
            f"{listed(below, _MOST_NAMED)}",
            f"give one of these directories, or see all with: unloader runs {destination}",
        )
    raise OutputFailed(
        f"{destination} has no finished, active or interrupted run",
        "give the directory of --to. A run appears there when its plan is complete",
    )


def _show(found: RunStatus, values: dict[str, Any], *, more: bool, last: bool = False) -> None:
    """Write the whole status, or with `--watch` the part that fits the terminal."""
    screen, live = shutil.get_terminal_size(), found.live
    if values["json"] and more:
        render.emit(json.dumps(to_builtins(found)))
    elif not more or last or values["json"] or values["quiet"]:
        render.answer(values, found, lambda: status_page(found, datetime.now(UTC)))
    elif sys.stdout.isatty():
        # Of more lines the first ones would be out of sight, and a broken line would be two.
        lines = status_page(found, datetime.now(UTC)).splitlines()
        if len(lines) >= screen.lines:
            kept = max(screen.lines - 2, 1)
            lines[kept:] = [f"and {len(lines) - kept} more lines"]
        page = "\n".join(line[: screen.columns] for line in lines)
        # The cursor goes home and the screen below it is cleared.
        render.emit(f"\x1b[H\x1b[J{page}")
    elif live is None:
        render.emit(f"{found.state}: run {found.run_id}")
    else:
        parts = (
            "" if live.tables is None else tables_text(live.tables),
            f"{live.units.done}/{live.units.total} units",
            counted(live.rows, "row"),
            render.rows_per_second(live.rows_per_second),
            "" if live.fraction is None else f"{live.fraction * 100:.0f} %",
            "" if live.seconds_left is None else f"about {render.seconds(live.seconds_left)} left",
        )
        render.emit(f"{live.phase}: {', '.join(filter(None, parts))}")


@declared(
    "runs",
    "List the runs below a directory.",
    """
    unloader runs /extract
    unloader runs /extract --depth 1 --json
    """,
)
@click.argument("directory", metavar="DIR", callback=finished_directory)
def runs(directory: PlacePath, depth: int, **values: Any) -> None:
    """List the active, interrupted and finished runs in DIR and below it.

    A run over several tables is listed once, by the directory that contains the directories of all
    tables.

    The command only reads the files of the runs, and changes nothing. It does not follow symbolic
    links and hidden directories. Rows and bytes of an unfinished run are the last figures that it
    reported.
    """
    found, now = statuses_below(str(directory), depth), datetime.now(UTC)
    rows = []
    for each in found:
        figures: tuple[object, ...] = (None,) * 3
        done, live, since = each.finished, each.live, each.since or each.started
        if each.state == "finished" and done is not None:
            figures, since = (done.rows, render.size(done.bytes), f"{done.seconds:.1f}"), done.ended
        elif live is not None:
            figures = (live.rows, render.size(live.bytes), f"{live.seconds:.1f}")
            since = live.updated
        known = (each.destination, each.state, each.table or None, each.started or None)
        rows.append((*known, *figures, _age(since, now)))
    heads = ("destination", "state", "table", "started", ">rows", ">bytes", ">seconds", ">age")
    unreadable = (each.problem for each in found if each.problem and each.state == "unreadable")
    page = "\n".join([render.table(heads, rows), *map(render.visible, unreadable)])
    render.answer(values, {"runs": found}, page if found else f"no runs in {directory}")


@declared(
    "stop",
    "Stop an active run in an orderly way, from any shell.",
    """
    unloader stop /extract/orders
    unloader stop /extract/orders --timeout 30
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
def stop(destination: PlacePath, timeout: float, **values: Any) -> None:
    """Stop the run in DEST as Ctrl-C does, and wait for its end.

    The command writes a request into DEST/_run, so you need the right to write there. The run may
    belong to another user, or run on another machine. The run ends with exit status 130. Its
    finished work units are kept, and `unloader resume DEST` continues the run.

    The exit status is 6 without an active run, or if the run is still active after --timeout.
    """
    with stop_on_signals(lambda _: None) as give_up:
        ended = stop_run(str(destination), timeout, give_up)
    text = f"run {ended.run_id} has ended after {render.seconds(ended.seconds)}"
    of_all = "" if ended.units is None else f" of {ended.units:,}"
    if ended.state == "running":
        text = f"run {ended.run_id} was asked to stop. Next: unloader status {destination} --watch"
    elif ended.state == "finished":
        text = f"run {ended.run_id} was already finishing, and is complete in {destination}"
    elif ended.state == "none":
        text += ". No work unit was finished, and no file remains"
    else:
        text += f" with {ended.units_done:,}{of_all} work units finished. "
        text += f"Next: {_next_step(ended.status)}"
    render.answer(values, ended, render.visible(text))


_LIMITS = ("max_sessions", "max_cpu", "slow_between", "slow_parallelism")
"""The limits that can be changed; the request has the number of workers in a separate field."""


@declared(
    "set",
    "Change the number of workers of an active run, from any shell.",
    """
    unloader set /extract/orders --parallelism 4
    unloader set /extract/orders --parallelism adaptive --max-cpu 75%
    """,
    by_hand=("parallelism", *_LIMITS),
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@click.pass_context
def change(
    context: click.Context, /, destination: PlacePath, timeout: float, **values: Any
) -> None:
    """Change the number of workers of the active run in DEST, or a limit on it.

    The command writes a request into DEST/_run, so you need the right to write there. The run may
    belong to another user, or run on another machine. Only the options on this command line
    change. Variables are ignored. A run cannot have more workers than the seats that it started
    with.

    Surplus workers finish their work units. If a unit lasts longer than two seconds, its worker is
    paused. The log and the manifest of the run record the request.

    The exit status is 6 without an active run, if the run refuses, or if it does not answer
    within --timeout.
    """
    given = on_command_line(context)
    asked = {name: values[name] for name in _LIMITS if name in given}
    if asked.get("slow_between") == "never":
        asked["slow_between"] = ""
    if "parallelism" in given:
        words: dict[int, Any] = {0: "auto", ADAPTIVE: "adaptive"}
        asked["parallelism"] = words.get(values["parallelism"], values["parallelism"])
    with stop_on_signals(lambda _: None) as give_up:
        changed = change_run(str(destination), Wish(id="", **asked), timeout, give_up)
    known = changed.parallelism
    text = f"run {changed.run_id} was asked. Next: unloader status {destination} --watch"
    if changed.taken and known is not None:
        limit = f"; limited by {known.limit}" if known.limit else ""
        mode = ", searching for the best number" if known.mode == "adaptive" else ""
        workers = f"{known.workers} of {counted(known.of, 'worker')}"
        text = f"run {changed.run_id} has applied the change: {workers}{mode}{limit}"
    render.answer(values, changed, render.visible(text))


_WAITS = {
    "nothing": "",
    "source": "the source",
    "destination": "the destination",
    "limit": "a limit on the run",
}


def status_page(status: RunStatus, now: datetime) -> str:
    page, live = render.facts(_facts(status, now)), status.live
    if status.state != "running" or live is None or not live.workers:
        return page
    heads = (">worker", ">node", "CPUs", "unit", ">attempt", ">rows", ">seconds", "waits for")
    rows = []
    for each in live.workers:
        waits = _WAITS.get(each.waits_for, each.waits_for)
        if each.waits_for == "retry" and each.retry_in_seconds is not None:
            waits = f"a retry in {each.retry_in_seconds:.0f} s"
        elif each.waits_detail:
            waits = f"{waits}: {each.waits_detail}"
        seat = (str(each.node), render.ranges(each.cpus)) if each.cpus else ("any", "any")
        unit: tuple[object, ...] = ("idle", "", "", "")
        if each.unit is not None:
            unit = (each.unit, each.attempt, each.rows, f"{each.seconds:.0f}")
        rows.append((str(each.worker), *seat, *unit, waits, render.name(each.partition or "")))
    return f"{page}\n\n{render.table((*heads, 'partition'), rows)}"


def _next_step(status: RunStatus) -> str:
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


def _facts(status: RunStatus, now: datetime) -> Iterator[tuple[str, object]]:
    live, left, finished = status.live, status.left, status.finished
    active, interrupted = status.state == "running", status.state == "interrupted"
    state: str = status.state
    yield "destination", status.destination
    if active:
        age = _age(status.since, now)
        state += "" if age == render.UNKNOWN else f" for {age}"
        state += ", asked to stop" if live is not None and live.stopping else ""
    elif interrupted:
        state += f": {status.reason or 'its process was killed, or its machine went down'}"
    yield "state", state
    yield "run", status.run_id
    yield "table", status.table or render.UNKNOWN
    yield "of the run in", status.home or None
    if status.tables is not None and interrupted:
        yield "tables", f"{status.tables.done:,} of {status.tables.total:,} complete"
    yield "started", status.started or render.UNKNOWN
    if active or interrupted:
        if status.host:
            yield "process", f"{status.pid} on {status.host}, since {status.since}"
        if live is not None:
            yield from _progress(status, live)
        elif left is not None and status.units is not None:
            # It was killed before it showed itself: its journal and its record have the units.
            yield "units", f"{left.units:,} of {status.units:,} done"
        if left is not None:
            yield "staged", f"{counted(left.files, 'file')}, {render.size(left.bytes)}"
    if finished is not None and status.state != "finished":
        yield "earlier run", f"{finished.run_id}, finished, {counted(finished.rows, 'row')}"
    elif finished is not None:
        yield "rows", finished.rows
        yield "bytes", render.exact_size(finished.bytes)
        yield "files", finished.files
        yield "seconds", f"{finished.seconds:.2f}"
        yield "verified", finished.verified
    yield "next", _next_step(status) or None


def _progress(status: RunStatus, live: LiveStatus) -> Iterator[tuple[str, object]]:
    units, done, running = live.units, live.units.done, status.state == "running"
    if running:
        yield "phase", f"{phase_text(live.phase)}, since {live.phase_since}"
        yield "tables", None if live.tables is None else tables_text(live.tables)
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
    yield "units", counts
    about = "" if live.rows_expected is None else f" of about {render.count(live.rows_expected)}"
    share = "" if live.fraction is None else f" ({live.fraction * 100:.0f} %)"
    rows = f"{render.count(live.rows)}{about}{share}"
    if done > units.done and status.tables is None:
        # The journal has more units than the run last showed, and it does not count rows.
        rows = f"{rows} when last seen" if live.rows else f"unknown{about}"
    yield "rows", rows
    if running:
        whole, left, known = live.bytes_expected, live.seconds_left, live.parallelism
        likely = "" if whole is None else f" of about {render.size(whole)}"
        yield "bytes", f"{render.size(live.bytes)}{likely}"
        mean = render.rows_per_second(live.mean_rows_per_second)
        speed = f"{render.rows_per_second(live.rows_per_second)} ({mean} on average)"
        yield "speed", f"{speed}, {render.megabytes_per_second(live.bytes_per_second)}"
        if known is not None:
            paused = f", {known.paused} paused within a unit" if known.paused else ""
            yield "workers", f"{known.workers} of {known.of} ({known.mode}){paused}: {known.reason}"
        yield "time left", None if left is None else f"about {render.seconds(left)}"
    yield "retries", live.retries
    yield "last error", None if live.ended else live.last_error or None
    yield "last notice", (live.last_notice or None) if running else None


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
