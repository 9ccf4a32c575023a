"""Commands of the user after the end of a run, with its facts in their environment.

The variables have the prefix UNLOADER_RUN_. UNLOADER_TO and the like are options, and would apply
to each `unloader` that the command calls.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from unloader.operations.account import Account
from unloader.redaction import redact
from unloader.storage.place_names import absolute, path_of
from writers.objects.location import is_location

PREFIX = "UNLOADER_RUN_"

PASSED = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "PWD")
)
"""Variables that every command gets, with all `LC_...`: programs need them to start. Each other
variable may hold a secret, so only `--hook-env` passes it on."""

_GRACE_SECONDS = 5.0
"""Between the signal that asks a command to end and the one that ends it."""
_LOOK_SECONDS = 0.1
_LONGEST = 65_536
"""Bytes of a line of its output."""
_MANIFEST = "_manifest.json"
_PARTIAL = "_run/_manifest.json"
"""The manifest of an interrupted run that can be resumed."""


def run_hook(
    command: str,
    account: Account,
    take: Callable[[str], None],
    stop: Callable[[], bool],
    timeout_seconds: float = 0.0,
    variables: Collection[str] = (),
) -> str:
    """Run a command by `/bin/sh -c` to its end; return its failure, "" without a failure.

    It has no standard input. It has a separate process group, which is ended as a whole, after the
    timeout (0 sets none) or when `stop` returns True. `take` takes each line of its output. Besides
    those in `PASSED`, it gets the named variables.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED or name.startswith("LC_") or name in variables
    }
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, **facts(account)},
            start_new_session=True,
        )
    except OSError as error:
        return f"it could not be started: {error.strerror or error}"
    assert process.stdout is not None
    pipe, rest, ended_by, gave_up_at = process.stdout, b"", "", 0.0
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else float("inf")
    os.set_blocking(pipe.fileno(), False)
    try:
        with pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                ended, now = process.poll() is not None, time.monotonic()
                # Processes that the shell has left may hold the pipe open after its end.
                seconds = 0.0 if ended else _LOOK_SECONDS
                if selector.get_map() and selector.select(seconds):
                    data = os.read(pipe.fileno(), _LONGEST)
                    *lines, rest = (rest + data).split(b"\n")
                    if len(rest) > _LONGEST or not data:
                        lines, rest = [*lines, rest], b""
                    if not data:
                        selector.unregister(pipe)
                    for line in b"\n".join(lines).decode("utf-8", "backslashreplace").splitlines():
                        take(line)
                elif ended:
                    break
                elif not selector.get_map():
                    time.sleep(_LOOK_SECONDS)
                if ended_by and now > gave_up_at:
                    # This also ends processes that the shell has left.
                    _kill(process, signal.SIGKILL)
                elif not ended_by and not ended and (now > deadline or stop()):
                    ended_by = "it was ended by a signal"
                    if now > deadline:
                        ended_by = f"it was ended after {timeout_seconds:g} s (--hook-timeout)"
                    _kill(process, signal.SIGTERM)
                    gave_up_at = now + _GRACE_SECONDS
            if rest:
                take(rest.decode("utf-8", "backslashreplace"))
    except BaseException:
        _kill(process, signal.SIGKILL)
        raise
    if ended_by:
        _kill(process, signal.SIGKILL)
    code = process.returncode
    if code < 0:
        return ended_by or f"it was killed by {signal.Signals(-code).name}"
    return ended_by or (f"it ended with status {code}" if code else "")


def facts(account: Account) -> dict[str, str]:
    """Return the variables with the facts of a run; unknown facts are empty."""
    error, places = account.error, account.destinations
    tables = account.tables
    known = {
        "ID": account.run_id,
        "STATUS": account.status,
        "TABLE": account.table or account.job.table,
        "SOURCE": account.job.source,
        "DEST": ",".join(places) or account.job.destination,
        "MANIFEST": _manifest(places, _MANIFEST) if account.status == 0 else "",
        "PARTIAL_MANIFEST": _manifest(places, _PARTIAL) if account.status else "",
        "ROWS": account.rows,
        "BYTES": account.bytes,
        "UNITS": account.units,
        # Lines for `read -r name rows bytes files directory` of a shell.
        "ROUTES": "\n".join(
            f"{each.route} {each.rows} {each.bytes} {each.files} {_full(each.directory)}"
            for each in account.routes
        ),
        "TABLES": "" if tables is None else tables.total,
        "TABLES_DONE": "" if tables is None else tables.done,
        "TABLES_FAILED": "" if tables is None else tables.failed,
        "SECONDS": f"{(account.finished_at or account.started_at) - account.started_at:.3f}",
        "ERROR": "" if error is None else redact(error.message),
        "ERROR_KIND": "" if error is None else type(error).__name__,
        "HINT": "" if error is None else redact(error.hint),
    }
    # No variable can hold that character.
    return {PREFIX + name: str(value).replace("\0", "") for name, value in known.items()}


def _full(directory: str) -> str:
    return directory if directory.startswith("null:") else absolute(directory)


def _manifest(places: tuple[str, ...], name: str) -> str:
    """Return the path of the manifest; empty for a stream."""
    if places and is_location(places[0]):
        return str(path_of(places[0]) / name)
    path = os.path.join(places[0], name) if places else ""
    return os.path.abspath(path) if path and os.path.isfile(path) else ""


def _kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
