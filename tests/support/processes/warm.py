"""The command as a fork of a program that has imported it already: the same, half a second sooner.

One such program serves a test process until that ends. A call is a process of its own, with its own
arguments, variables, directory and streams, and its workers are started as ever. What is decided
while Python starts cannot be asked for here: `suits` says whether a call may be made this way.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_MOST_BYTES = 1 << 20
_AT_IMPORT = ("UNLOADER_NATIVE", "UNLOADER_TEST")
"""Beginnings of variables that are read when a module is imported, or by tests alone."""


def suits(env: Mapping[str, str]) -> bool:
    """Return whether these variables differ from ours only in what the command reads when it runs."""
    known, paths = _surroundings(), env.get("PYTHONPATH")
    if paths not in (None, known.get("PYTHONPATH"), str(ROOT)):
        return False
    changed = {name for name in env.keys() | known.keys() if env.get(name) != known.get(name)}
    return all(_is_read_late(name) for name in changed - {"PYTHONPATH"})


def _is_read_late(name: str) -> bool:
    if name.startswith("PYTEST_"):
        return True
    return name.startswith("UNLOADER_") and not name.startswith(_AT_IMPORT)


@cache
def _surroundings() -> dict[str, str]:
    """Return the variables that the program was started with."""
    return dict(os.environ)


@cache
def _program() -> socket.socket:
    """Start the program; its end of the socket closes with ours, and ends it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    with its:
        process = subprocess.Popen(
            [sys.executable, __file__, str(its.fileno())],
            env={**_surroundings(), "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Make one call and wait for its end.

    Raises:
        subprocess.TimeoutExpired: It does not end; it was killed.
    """
    mask = os.umask(0)
    os.umask(mask)
    asked = {
        "arguments": list(arguments),
        "env": dict(env),
        "cwd": str(cwd or Path.cwd()),
        "umask": mask,
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    streams = [os.pipe(), os.pipe()]
    try:
        passed = [writes for _, writes in streams]
        socket.send_fds(_program(), [json.dumps(asked).encode()], [*passed, its.fileno()])
    finally:
        its.close()
        for _, writes in streams:
            os.close(writes)
    with ours:
        ours.settimeout(timeout)
        pid = int(_reply(ours))
        try:
            texts = _texts([reads for reads, _ in streams], timeout)
            status = int(_reply(ours))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        finally:
            for reads, _ in streams:
                os.close(reads)
    return subprocess.CompletedProcess(list(arguments), status, *texts)


def _reply(sock: socket.socket) -> bytes:
    found = sock.recv(100)
    assert found, "the program with the warm command has ended"
    return found


def _texts(descriptors: Sequence[int], timeout: float) -> list[str]:
    """Return what comes out of pipes until their ends."""
    pieces: dict[int, list[bytes]] = {each: [] for each in descriptors}
    with selectors.DefaultSelector() as ready:
        for each in descriptors:
            ready.register(each, selectors.EVENT_READ)
        while ready.get_map():
            events = ready.select(timeout)
            if not events:
                raise TimeoutError
            for key, _ in events:
                piece = os.read(key.fd, 1 << 16)
                pieces[key.fd].append(piece)
                if not piece:
                    ready.unregister(key.fd)
    return [b"".join(pieces[each]).decode() for each in descriptors]


def _serve(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each call until the tests end; in a fork, return the call and its streams."""
    waiting: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd != sock.fileno():
                    ready.unregister(key.fd)
                    pid, back = waiting.pop(key.fd)
                    os.close(key.fd)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with back:
                        back.send(str(status).encode())
                    continue
                asked, passed, _, _ = socket.recv_fds(sock, _MOST_BYTES, 3)
                if not asked:
                    return None
                pid = os.fork()
                if pid == 0:
                    os.close(passed[2])
                    for descriptor, (_, other) in waiting.items():
                        os.close(descriptor)
                        other.close()
                    sock.close()
                    return json.loads(asked), passed[:2]
                for each in passed[:2]:
                    os.close(each)
                back = socket.socket(fileno=passed[2])
                back.send(str(pid).encode())
                process = os.pidfd_open(pid)
                waiting[process] = pid, back
                ready.register(process, selectors.EVENT_READ)


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Take over the surroundings of a call."""
    import random

    for number, each in enumerate(streams, 1):
        os.dup2(each, number)
        os.close(each)
    for number, mode in ((0, "r"), (1, "w"), (2, "w")):
        errors = "backslashreplace" if number == 2 else "strict"
        text = os.fdopen(number, mode, errors=errors, closefd=False)
        if number == 2:
            text.reconfigure(line_buffering=True)
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    os.sched_setaffinity(0, asked["cpus"])
    random.seed()
    sys.path[0] = asked["cwd"]
    sys.argv[:] = ["unloader", *asked["arguments"]]


def _imported() -> None:
    from importlib import import_module

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does
    from unloader.cli.group import COMMANDS

    for name in COMMANDS:
        import_module(f"unloader.cli.commands.{name}")
    for name in ("unloader.api", "unloader.sources.duckdb.source", "pyarrow", "duckdb"):
        import_module(name)


if __name__ == "__main__":
    # A child of its own leaves nothing of this program behind it but what is imported.
    _imported()
    with socket.socket(fileno=int(sys.argv[1])) as _sock:
        _found = _serve(_sock)
    if _found is not None:
        _become(*_found)
        import runpy

        runpy.run_module("unloader", run_name="__main__", alter_sys=True)
