"""A process beside this one that others are forked from: for a program that has threads.

A fork copies one thread, so a program with several cannot be forked. It can have a process of its
own that has one, and has loaded what its children need: they are up at once, and share its memory.
That process lives as long as the program, or until it has been of no use for a while; its children
end with it.

The parent's calls are answered one after the other. A child that has ended is kept until the
parent asks how, so that its number stays its own.
"""

import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from msgspec import Struct

from numa.affinity import seated
from numa.model import BindReport, Seat
from numa.processes.beside import start_beside
from numa.processes.forked import Forked, fork, is_possible
from numa.processes.member import main

_MOST_BYTES = 64 * 1024
"""Of one call or answer; far more than a seat and some names need."""

_ANSWER_SECONDS = 60.0
"""Guess: a busy machine takes its time to load a driver. Later answers take milliseconds."""

_IDLE_SECONDS = 600.0
"""Guess: whoever starts one run after another does it within that."""


class _Birth(Struct, frozen=True, kw_only=True):
    """Asks for a child. Its pipe and its standard error come with it as descriptors."""

    seat: Seat
    memory_policy: str
    entry: str
    name: str


class Served(Forked):
    """A child of the server, which alone can ask the kernel how it ended."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        """Take a child that runs."""
        super().__init__(pid)
        self._server = server

    def has_ended(self) -> bool:
        """Return whether it has ended; it is not reaped by that."""
        return self.returncode is not None or bool(self._server.ask(("ended", self.pid), True))

    def poll(self) -> int | None:
        """Return how it ended, None while it runs; reap it once it has."""
        if self.returncode is None:
            # The kernel kills the children of a server that has died.
            self.returncode = self._server.ask(("reap", self.pid), -signal.SIGKILL)
        return self.returncode


class ForkServer:
    """The parent's side. It is started by the first child that is wanted; for any thread."""

    def __init__(self, prepare: str, argument: object) -> None:
        """Start nothing yet.

        Args:
            prepare: `package.module:function`, called as `function(argument)` before the first
                fork. It may start no thread that stays: nothing is forked then.
            argument: Is pickled.
        """
        self._prepare = prepare
        self._argument = argument
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None

    def fork(
        self, seat: Seat, memory_policy: str, entry: str, name: str, descriptors: tuple[int, int]
    ) -> tuple[Served, BindReport] | None:
        """Start a child on a seat; return it, or None where the server cannot be had.

        Args:
            seat: Where it sits.
            memory_policy: See `numa.affinity.seated`.
            entry: See `numa.pool.Pool`.
            name: What the child is called in the list of processes.
            descriptors: Its end of the pipe, and what takes its standard error.
        Raises:
            OSError: The system refuses the child.
        """
        if sys.platform != "linux":
            return None
        birth = _Birth(seat=seat, memory_policy=memory_policy, entry=entry, name=name)
        with self._lock:
            self._begin()
            answer = self._answer(("fork", birth), None, descriptors)
        if isinstance(answer, OSError):
            raise answer
        return None if answer is None else (Served(self, answer[0]), answer[1])

    def ask(self, call: tuple[str, int], otherwise: Any) -> Any:
        """Return the answer to a call, or the other value if the server is not there any more."""
        with self._lock:
            return self._answer(call, otherwise)

    def close(self) -> None:
        """End the server, and with it what was forked; the next fork starts another one."""
        with self._lock:
            self._end()

    def _begin(self) -> None:
        """Start the process, unless it runs. Where the system refuses it, there is none."""
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_ANSWER_SECONDS)
        with theirs:
            try:
                self._process = start_beside(__name__, theirs)
            except OSError:
                ours.close()
                return
        self._sock = ours
        self._answer(("prepare", (self._prepare, pickle.dumps(self._argument))), None)

    def _answer(
        self, call: tuple[str, object], otherwise: Any, descriptors: tuple[int, ...] = ()
    ) -> Any:
        if self._sock is None:
            return otherwise
        try:
            data = pickle.dumps(call, protocol=pickle.HIGHEST_PROTOCOL)
            socket.send_fds(self._sock, [data], descriptors, socket.MSG_NOSIGNAL)
            received = self._sock.recv(_MOST_BYTES)
        except OSError:  # A timeout is one, too.
            received = b""
        if not received:
            self._end()
            return otherwise
        return pickle.loads(received)

    def _end(self) -> None:
        if self._sock is not None:
            self._sock.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._sock = self._process = None


def serve(descriptor: int) -> None:
    """Be the server until the parent is gone, or has not called for long and has no child."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, Forked] = {}
    calls = select.poll()
    calls.register(sock, select.POLLIN)
    while calls.poll(_IDLE_SECONDS * 1000) or children:
        data, descriptors, _, _ = socket.recv_fds(sock, _MOST_BYTES, 2)
        if not data:
            return
        kind, value = pickle.loads(data)
        try:
            answer = _done(kind, value, children, descriptors)
        finally:
            for each in descriptors:
                os.close(each)
        sock.send(pickle.dumps(answer), socket.MSG_NOSIGNAL)


def _done(kind: str, value: Any, children: dict[int, Forked], descriptors: list[int]) -> object:
    """Do what the parent asks for; return the answer."""
    if kind == "prepare":
        name, argument = value
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)(pickle.loads(argument))
        return None
    if kind == "fork":
        pipe, stderr = descriptors
        return _born(value, pipe, stderr, children)
    if value not in children:
        return -signal.SIGKILL
    if kind == "ended":
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, value, flags) is not None
    status = children[value].poll()
    if status is not None:
        del children[value]
    return status


def _born(
    birth: _Birth, pipe: int, stderr: int, children: dict[int, Forked]
) -> tuple[int, BindReport] | OSError | None:
    if not is_possible():
        return None
    parent = os.getpid()
    title = ("python", main.__module__, birth.name)
    try:
        with seated(birth.seat, birth.memory_policy) as bound:
            child = fork(lambda: main(pipe, parent, True, birth.entry), title, pipe, stderr)
    except OSError as error:
        return error
    children[child.pid] = child
    return child.pid, bound
