"""The program of `warm`: it imports the command once, and forks for each call.

It reads calls from a socket, each with three descriptors: standard output, standard error and the
socket to which it sends the call's process id, then its exit status. The end of the first socket
ends the program. Its second argument selects its imports: `databases`, or `stores`, which is more.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any, NoReturn

from numa.processes import member, server

_MOST_BYTES = 1 << 20
_OURS = ("numa", "partition_planner", "unloader", "writers")
"""Packages whose modules are all imported. A command imports modules when it needs them: up to two
hundred of them, a quarter of the time of a short run."""

_THEIRS = ("oracledb", "duckdb", "pyarrow", "pyarrow.parquet", "xxhash")

_AT_STORES = (
    "boto3",
    "crc32c",
    "obstore.auth.boto3",
    "obstore.store",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
)
"""With them a command is there that opens a store or a catalog."""


def _import_all(what: str) -> None:
    """Import what calls need; a thread that runs by then would be missing in every fork."""
    # As the command does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in (*_modules(), *_THEIRS):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    if what == "stores":
        for name in _AT_STORES:
            with contextlib.suppress(ModuleNotFoundError):
                import_module(name)
        # These read variables as they are imported: each call does that for itself.
        for name in [name for name in sys.modules if name.startswith("pyiceberg.catalog")]:
            del sys.modules[name]
    tasks = Path("/proc/self/task").glob("*/comm")
    others = [task.read_text().strip() for task in tasks if task.parent.name != str(os.getpid())]
    assert not others, others


_LAKES = tuple(f"unloader.lakehouse.{kind}_" for kind in ("iceberg", "delta", "ducklake"))
"""Beginnings of modules that import a library of tables: deltalake starts threads, and pyiceberg
reads variables."""


def _modules() -> Iterator[str]:
    """Yield the names of our modules, without programs and libraries in C++."""
    for package in map(import_module, _OURS):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            name = found.name
            if not name.rpartition(".")[2].startswith("_") and not name.startswith(_LAKES):
                yield name


def _serve(calls: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each call until the tests end; in a fork, return the call and its streams."""
    waiting: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(calls, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd != calls.fileno():
                    ready.unregister(key.fd)
                    _report(key.fd, *waiting.pop(key.fd))
                    continue
                asked, passed, _, _ = socket.recv_fds(calls, _MOST_BYTES, 3)
                if not asked:
                    return None
                pid = os.fork()
                if pid == 0:
                    for process, (_, other) in waiting.items():
                        os.close(process)
                        other.close()
                    os.close(passed[2])
                    return json.loads(asked), passed[:2]
                os.close(passed[0])
                os.close(passed[1])
                process = os.pidfd_open(pid)
                answers = socket.socket(fileno=passed[2])
                waiting[process] = pid, answers
                ready.register(process, selectors.EVENT_READ)
                if not _send(answers, pid):
                    # Who asked has given up before he knew whom to kill.
                    os.kill(pid, signal.SIGKILL)


def _report(process: int, pid: int, answers: socket.socket) -> None:
    """Report the end of a call."""
    os.close(process)
    with answers:
        _send(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _send(answers: socket.socket, number: int) -> bool:
    """Send a number; return False where no one waits for this call any more."""
    try:
        answers.send(str(number).encode())
    except BrokenPipeError:
        return False
    return True


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Take over the surroundings of a call."""
    if asked["new_session"]:
        os.setsid()
    for number, each in enumerate(streams, 1):
        os.dup2(each, number)
        os.close(each)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if number == 2 else None
        text = os.fdopen(number, "w" if number else "r", errors=errors, closefd=False)
        if number == 2:
            text.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    os.sched_setaffinity(0, asked["cpus"])
    for name, limits in zip(_LIMITS, asked["limits"], strict=True):
        resource.setrlimit(getattr(resource, name), tuple(limits))
    random.seed()
    sys.path[0] = asked["cwd"]
    sys.argv[:] = ["unloader", *asked["arguments"]]


_LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(getattr(resource, name)) for name in _LIMITS]


class _Forked:
    """A child, with the methods that are used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def _prepare_fork_server() -> None:
    """Fork the process that becomes the fork server of this call, if the call starts one.

    As a new interpreter it would import everything again, which takes two thirds of a short run. It
    is forked before the command begins, and so knows nothing of it. It gets the command's variables,
    directory and processors at the start. A second fork server, and workers without one, are new
    interpreters.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    call = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_fork_server(its, call)
    its.close()
    waiting = [ours]
    new_interpreter = server.start_interpreter

    def start(
        module: str, name: str, entry: str, theirs: socket.socket, stderr: int | IO[bytes]
    ) -> Any:
        if module != server.__name__ or not waiting:
            return new_interpreter(module, name, entry, theirs, stderr)
        asked = {
            "name": name,
            "entry": entry,
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "cpus": sorted(os.sched_getaffinity(0)),
        }
        with waiting.pop() as sock:
            socket.send_fds(sock, [json.dumps(asked).encode()], [theirs.fileno()])
        return _Forked(pid)

    server.start_interpreter = start


def _be_fork_server(calls: socket.socket, call: int) -> NoReturn:
    """Wait until the call starts a fork server, and be that; end with the call."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    member.die_with_parent(call)
    data, descriptors, _, _ = socket.recv_fds(calls, _MOST_BYTES, 1)
    calls.close()
    if not data:
        os._exit(0)
    asked = json.loads(data)
    os.setsid()
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    os.sched_setaffinity(0, asked["cpus"])
    server._set_title("python", server.__name__, asked["name"])
    server.serve(descriptors[0], call, True, asked["entry"])


def _main() -> None:
    # Ctrl-C is for the tests: they close the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all(sys.argv[2])
    gc.freeze()  # A collection in a fork would copy the objects that it looks at.
    with socket.socket(fileno=int(sys.argv[1])) as calls:
        found = _serve(calls)
    if found is None:
        os._exit(0)  # Libraries take frozen modules for leaks, and warn.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    limits = _limits()
    _become(*found)
    del found
    if _limits() == limits:
        _prepare_fork_server()
    _end(_status())


def _status() -> int:
    """Run the command and return its exit status, as Python would end with it."""
    try:
        runpy.run_module("unloader", run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return ending.code or 0
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End this process as Python does, except for taking its modules apart.

    That would copy every page of memory that the fork shares, which takes longer than most calls.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        status = 120  # Python's status if a stream cannot be flushed
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _main()
