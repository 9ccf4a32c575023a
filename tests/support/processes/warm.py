"""The command as a fork of a program that has imported it already: the same, half a second sooner.

One such program (`warm_program`) serves a test process until that ends, and another one the calls
that have variables of object stores or catalogs. A call is a separate process: it has its
arguments, variables, directory, standard streams, umask, limits and processors, and starts its
workers as usual. Settings that Python reads at its start cannot be changed here: `unsuited` returns
their variables.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from processes.program import LONGEST_SECONDS

ROOT = Path(__file__).parents[3]
LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
_PROGRAM = Path(__file__).with_name("warm_program.py")
_AT_IMPORT = ("UNLOADER_NATIVE", "UNLOADER_TEST")
"""Beginnings of variables that are read when a module is imported, or by tests alone."""

_BY_TESTS = (
    "ARROW_DEFAULT_MEMORY_POOL",
    "JE_ARROW_MALLOC_CONF",
    "OPENBLAS_NUM_THREADS",
    "_RJEM_MALLOC_CONF",
)
"""Set in this process once a test imports the worker's modules, calls the command's `main` or imports
polars. A command and its workers set the first three for themselves; only polars reads the last."""

_SURROUNDINGS = dict(os.environ)
"""The state at the start of the program, before any test changes it."""

_AT_STORES = ("AWS_", "PYICEBERG_")
"""Beginnings of variables that are read when a store or a catalog is opened: `warm_program` sees to
that. Its calls import much more, which is there with them."""

_END_SECONDS = 60
_START_SECONDS = 180
_UMASK = re.compile(r"^Umask:\s*([0-7]+)$", re.MULTILINE)
_lock = threading.Lock()
_sockets: dict[str, socket.socket] = {}
"""Our ends of the sockets of the programs that are started, by what these are asked to import."""


def unsuited(env: Mapping[str, str]) -> list[str]:
    """Return the variables that differ from ours and are read before the command runs.

    Without any a call may be made this way.
    """
    names = env.keys() | _SURROUNDINGS.keys()
    changed = [name for name in names if env.get(name) != _SURROUNDINGS.get(name)]
    return [name for name in changed if not _is_read_late(name, env)]


def _is_read_late(name: str, env: Mapping[str, str]) -> bool:
    if name == "PYTHONPATH":
        return env.get(name) in (None, str(ROOT))
    if name.startswith("PYTEST_") or name in _BY_TESTS:
        return True
    if name.startswith(_AT_STORES):
        return True
    return name.startswith("UNLOADER_") and not name.startswith(_AT_IMPORT)


def _is_for_stores(env: Mapping[str, str]) -> bool:
    """Whether a test has set a variable of stores or catalogs; variables from outside do not count."""
    return any(
        name.startswith(_AT_STORES) and value != _SURROUNDINGS.get(name)
        for name, value in env.items()
    )


def run(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Make one call without standard input and wait for its end. For any thread.

    Raises:
        subprocess.TimeoutExpired: It does not end in time; it was killed.
    """
    with _asked(arguments, env, cwd) as (answers, pipes):
        deadline = time.monotonic() + timeout
        pid = 0
        try:
            pid = int(_answer(answers, deadline))
            texts = _read(pipes, deadline)
            status = int(_answer(answers, deadline))
        except BaseException as error:
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if isinstance(error, TimeoutError):
                raise subprocess.TimeoutExpired(list(arguments), timeout) from error
            raise
    return subprocess.CompletedProcess(list(arguments), status, *texts)


class Background:
    """A running call in a separate session, with the methods of `Popen` that the tests use."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it."""
        self._open = contextlib.ExitStack()
        call = self._open.enter_context(_asked(arguments, env, None, new_session=True))
        self._answers, self._pipes = call
        self.pid = int(_answer(self._answers, time.monotonic() + _START_SECONDS))
        self.returncode: int | None = None
        self.stdout, self.stderr = (os.fdopen(each, closefd=False) for each in self._pipes)
        self._texts: tuple[str, str] | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = LONGEST_SECONDS) -> int:
        """Wait for the end and return the exit status."""
        if self.returncode is None:
            try:
                self.returncode = int(_answer(self._answers, time.monotonic() + timeout))
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("a call", timeout) from error
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """Take all that it writes and wait for its end, at most some minutes."""
        if self._texts is None:
            with self._open:
                try:
                    found = _read(self._pipes, time.monotonic() + LONGEST_SECONDS)
                    self.wait()
                except BaseException:
                    self.kill()
                    raise
                out, err = (io.TextIOWrapper(io.BytesIO(each)).read() for each in found)
                self._texts = out, err
        return self._texts

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def _asked(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path | None, *, new_session: bool = False
) -> Iterator[tuple[socket.socket, tuple[int, int]]]:
    """Send a call to a program; yield the socket of its answers, the pipes of stdout and stderr."""
    asked = json.dumps(
        {
            "arguments": list(arguments),
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "umask": _umask(),
            "limits": [resource.getrlimit(getattr(resource, name)) for name in LIMITS],
            "cpus": sorted(os.sched_getaffinity(0)),
            "new_session": new_session,
        }
    )
    what = "stores" if _is_for_stores(env) else "databases"
    answers, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    try:
        try:
            socket.send_fds(_program(what), [asked.encode()], [to_out, to_err, its.fileno()])
        finally:
            its.close()
            os.close(to_out)
            os.close(to_err)
        yield answers, (out, err)
    finally:
        answers.close()
        os.close(out)
        os.close(err)


def _program(what: str) -> socket.socket:
    """Start a program if it is not there; its socket closes with this process, and ends it."""
    with _lock:
        if what not in _sockets:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            paths = os.pathsep.join(filter(None, (str(ROOT), _SURROUNDINGS.get("PYTHONPATH"))))
            with its:
                process = subprocess.Popen(
                    [sys.executable, str(_PROGRAM), str(its.fileno()), what],
                    env={**_SURROUNDINGS, "PYTHONPATH": paths},
                    stdin=subprocess.DEVNULL,
                    pass_fds=(its.fileno(),),
                )
            atexit.register(_await_end, process)
            atexit.register(ours.close)
            _sockets[what] = ours
        return _sockets[what]


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a program whose socket is closed here; a fork of ours may still have it."""
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _umask() -> int:
    found = _UMASK.search(Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1], base=8)


def _answer(answers: socket.socket, deadline: float) -> bytes:
    """Return the next number.

    Raises:
        TimeoutError: It is too late.
    """
    answers.settimeout(max(deadline - time.monotonic(), 0.001))
    found = answers.recv(100)
    assert found, "the program that makes the calls has ended"
    return found


def _read(pipes: Sequence[int], deadline: float) -> list[bytes]:
    """Return the content of pipes until their ends.

    Raises:
        TimeoutError: That is too late.
    """
    pieces: dict[int, list[bytes]] = {each: [] for each in pipes}
    with selectors.DefaultSelector() as ready:
        for each in pipes:
            ready.register(each, selectors.EVENT_READ)
        while ready.get_map():
            events = ready.select(max(deadline - time.monotonic(), 0))
            if not events:
                raise TimeoutError
            for key, _ in events:
                piece = os.read(key.fd, 1 << 16)
                pieces[key.fd].append(piece)
                if not piece:
                    ready.unregister(key.fd)
    return [b"".join(pieces[each]) for each in pipes]
