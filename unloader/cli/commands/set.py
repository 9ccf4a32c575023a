"""`unloader set`: change the number of workers of an active run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.signals import stop_on_signals
from unloader.nouns import counted
from unloader.request.settings import ADAPTIVE
from unloader.status.model import Wish
from unloader.storage.place_names import PlacePath

if TYPE_CHECKING:
    from unloader.status.requests import ChangedRun

_LIMITS = ("max_sessions", "max_cpu", "slow_between", "slow_parallelism")
"""The limits that can be changed; the request has the number of workers in a separate field."""


@click.command(
    "set",
    cls=JobCommand,
    short_help="Change the number of workers of an active run, from any shell.",
    epilog="""\b
    Examples:
      unloader set /extract/orders --parallelism 4
      unloader set /extract/orders --parallelism adaptive --max-cpu 75%
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("set", by_hand=("parallelism", *_LIMITS))
@click.pass_context
def command(
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
    wish = _wish({key: value for key, value in values.items() if key in given})
    with stop_on_signals(lambda _: None) as stop:
        changed = api.change(destination, wish, timeout_seconds=timeout, stop=stop)
    if values["json"]:
        render.emit_json(changed)
    elif not values["quiet"]:
        render.emit(render.visible(_text(changed, destination)))


def _wish(given: dict[str, Any]) -> Wish:

    found = {name: given[name] for name in _LIMITS if name in given}
    if found.get("slow_between") == "never":
        found["slow_between"] = ""
    if "parallelism" in given:
        words: dict[int, Any] = {0: "auto", ADAPTIVE: "adaptive"}
        found["parallelism"] = words.get(given["parallelism"], given["parallelism"])
    return Wish(id="", **found)


def _text(changed: ChangedRun, destination: PlacePath) -> str:
    run, known = f"run {changed.run_id}", changed.parallelism
    if not changed.taken or known is None:
        return f"{run} was asked. Next: unloader status {destination} --watch"
    limit = f"; limited by {known.limit}" if known.limit else ""
    mode = ", searching for the best number" if known.mode == "adaptive" else ""
    workers = f"{known.workers} of {counted(known.of, 'worker')}"
    return f"{run} has applied the change: {workers}{mode}{limit}"
