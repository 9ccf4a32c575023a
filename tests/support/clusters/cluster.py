"""A Dask cluster of processes, with a relay that cuts connections."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from processes import command, program
from processes.program import Program


class Relay:
    """Listens, and passes bytes on."""

    def __init__(self, address: str) -> None:
        """Stand before an address such as tcp://127.0.0.1:8786."""
        parts = urlsplit(address)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = bytearray()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and take no more."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                far = socket.create_connection(self._target)
                self._sockets.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relay(address: str) -> Iterator[Relay]:
    """Open a relay; its observations can be read afterwards."""
    found = Relay(address)
    try:
        yield found
    finally:
        found.close()


DASK = (sys.executable, "-m", "dask")


class Node:
    """One Dask worker, or the nanny of one."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """Start it in its own session."""
        self.log = log
        with log.open("ab") as out:
            self.process = Program(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def tree(self) -> list[psutil.Process]:
        """Return the process and all below it, the ones that have ended left out."""
        try:
            top = psutil.Process(self.process.pid)
        except psutil.NoSuchProcess:
            return []
        return [*program.living([top]), *program.below(self.process.pid)]

    def unit_processes(self) -> list[psutil.Process]:
        """Return the processes in which units are read."""
        return [each for each in self.tree() if program.reads_units(each)]

    def signal_all(self, number: signal.Signals) -> None:
        """Send all of it a signal."""
        for each in self.tree():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def kill(self) -> None:
        """Kill the process alone; its children must end without a kill."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End all of it."""
        left = self.tree()
        for number in (signal.SIGCONT, signal.SIGKILL):
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
        self.process.wait()
        psutil.wait_procs(left, timeout=command.PATIENCE_SECONDS)


class Cluster:
    """A scheduler, and the workers that were started so far."""

    def __init__(
        self,
        directory: Path,
        *,
        tls: Mapping[str, Path] | None = None,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a scheduler.

        Args:
            directory: For logs and scratch files.
            tls: ca, cert and key; None is plain TCP.
            host: Where it listens.
            inside: A command that runs the scheduler in another namespace.
            env: More variables.
        """
        self.directory = directory
        self.nodes: list[Node] = []
        self._tls = [
            word
            for name, option in (("ca", "ca-file"), ("cert", "cert"), ("key", "key"))
            for word in ((f"--tls-{option}", str(tls[name])) if tls else ())
        ]
        self._file = directory / "scheduler.json"
        protocol = ("--protocol", "tls") if tls else ()
        self.scheduler = Node(
            [
                *inside,
                *DASK,
                "scheduler",
                *("--host", host, "--port", "0", "--no-dashboard", "--no-show"),
                *("--dashboard-address", ":0", "--scheduler-file", str(self._file)),
                *protocol,
                *self._tls,
            ],
            env or {},
            directory / "scheduler.log",
        )
        command.wait_for(self._is_up, "the scheduler")
        self.address: str = json.loads(self._file.read_text())["address"]

    def _is_up(self) -> bool:
        assert self.scheduler.process.poll() is None, self.scheduler.log.read_text()
        with suppress(OSError, ValueError):
            return bool(json.loads(self._file.read_text())["address"])
        return False

    def add(
        self,
        count: int = 1,
        *,
        threads: int = 1,
        workers: int = 1,
        nanny: bool = False,
        inside: Sequence[str] = (),
        host: str = "127.0.0.1",
        env: Mapping[str, str] | None = None,
    ) -> list[Node]:
        """Start that many workers, and wait until they have joined.

        Args:
            count: How many.
            threads: Of each.
            workers: Dask workers that each command starts; with nannies.
            nanny: Each with a process that starts another one when it is killed.
            inside: As for the scheduler.
            host: Where they listen.
            env: More variables.
        """
        new = []
        for _ in range(count):
            name = f"worker-{len(self.nodes)}"
            arguments = [
                *inside,
                *DASK,
                "worker",
                self.address,
                *("--nworkers", str(workers), "--nthreads", str(threads)),
                *("--host", host, "--no-dashboard"),
                *("--memory-limit", "0", "--local-directory", str(self.directory / name)),
                "--nanny" if nanny else "--no-nanny",
                *self._tls,
            ]
            node = Node(arguments, env or {}, self.directory / f"{name}.log")
            self.nodes.append(node)
            new.append(node)
        for node in new:
            command.wait_for(lambda node=node: _has_joined(node), "a Dask worker")  # type: ignore[misc]
        return new

    def end(self) -> None:
        """End all of it."""
        for node in (*self.nodes, self.scheduler):
            node.end()


def _has_joined(node: Node) -> bool:
    text = node.log.read_text()
    assert node.process.poll() is None, text
    return "Registered to" in text


@contextmanager
def cluster(directory: Path, **options: object) -> Iterator[Cluster]:
    """Start a cluster without workers; all of it ends with the context."""
    directory.mkdir(parents=True, exist_ok=True)
    found = Cluster(directory, **options)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.end()
