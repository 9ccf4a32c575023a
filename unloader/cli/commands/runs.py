"""Commands on the runs of a directory: status, runs, stop and set."""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Any

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.commands import declared
from unloader.cli.display import pages, render
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.signals import stop_on_signals
from unloader.errors import Interrupted, OutputFailed, PartialUnload
from unloader.nouns import counted
from unloader.request.settings import ADAPTIVE
from unloader.status.model import Wish
from unloader.status.reading import RunStatus
from unloader.status.requests import ChangedRun, StoppedRun
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
    found = api.status(destination)
    if found.state != "none":
        return found
    below = [each.destination for each in api.runs(destination, depth=1)]
    if below:
        more = len(below) - _MOST_NAMED
        raise OutputFailed(
            f"{destination} has no run, but its directories have runs: "
            f"{', '.join(below[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}",
            f"give one of these directories, or see all with: unloader runs {destination}",
        )
    raise OutputFailed(
        f"{destination} has no finished, active or interrupted run",
        "give the directory of --to. A run appears there when its plan is complete",
    )


def _show(found: RunStatus, values: dict[str, Any], *, more: bool, last: bool = False) -> None:
    """Write the whole status, or with `--watch` the part that fits the terminal."""
    on_terminal, screen = sys.stdout.isatty(), shutil.get_terminal_size()
    if values["json"]:
        render.emit(json.dumps(to_builtins(found))) if more else render.emit_json(found)
    elif values["quiet"]:
        return
    elif more and not last and not on_terminal:
        render.emit(pages.status_line(found))
    else:
        page = pages.status_page(found, datetime.now(UTC), screen.columns if on_terminal else None)
        if more and not last:
            # Of more lines the first ones would be out of sight, and a broken line would be two.
            lines, height = [line[: screen.columns] for line in page.splitlines()], screen.lines - 1
            if len(lines) > height:
                kept = max(height - 1, 1)
                page = "\n".join([*lines[:kept], f"and {len(lines) - kept} more lines"])
            # The cursor goes home and the screen below it is cleared.
            page = f"\x1b[H\x1b[J{page}"
        render.emit(page)


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
    found = api.runs(directory, depth=depth)

    def text() -> str:
        return pages.runs_page(found, datetime.now(UTC)) if found else f"no runs in {directory}"

    render.answer(values, {"runs": found}, text)


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
        ended = api.stop(destination, timeout_seconds=timeout, stop=give_up)
    render.answer(values, ended, lambda: render.visible(_stopped(ended, destination)))


def _stopped(ended: StoppedRun, destination: PlacePath) -> str:
    run, took = f"run {ended.run_id}", render.seconds(ended.seconds)
    if ended.state == "running":
        return f"{run} was asked to stop. Next: unloader status {destination} --watch"
    if ended.state == "finished":
        return f"{run} was already finishing, and is complete in {destination}"
    if ended.state == "none":
        return f"{run} has ended after {took}. No work unit was finished, and no file remains"
    of_all = "" if ended.units is None else f" of {ended.units:,}"
    return (
        f"{run} has ended after {took} with {ended.units_done:,}{of_all} work units finished. "
        f"Next: {pages.next_step(ended.status)}"
    )


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
        changed = api.change(
            destination, Wish(id="", **asked), timeout_seconds=timeout, stop=give_up
        )
    render.answer(values, changed, lambda: render.visible(_changed(changed, destination)))


def _changed(changed: ChangedRun, destination: PlacePath) -> str:
    run, known = f"run {changed.run_id}", changed.parallelism
    if not changed.taken or known is None:
        return f"{run} was asked. Next: unloader status {destination} --watch"
    limit = f"; limited by {known.limit}" if known.limit else ""
    mode = ", searching for the best number" if known.mode == "adaptive" else ""
    workers = f"{known.workers} of {counted(known.of, 'worker')}"
    return f"{run} has applied the change: {workers}{mode}{limit}"
