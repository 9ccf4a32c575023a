#!/usr/bin/env python3
"""Kill Dask workers, units and whole machines at random, and compare each run with a local one.

    sudo python examples/cluster_kills.py --runs 50 --seed 1 --json

The machines are network namespaces: `head` has the scheduler and the runs. Each of two hosts is
connected to it by a separate cable (a veth pair) and has two Dask workers with nannies. The script
makes them and removes them at the end; no traffic leaves them. During each run one thing happens at
a random moment:

  the process of a unit is killed
  a Dask worker is killed
  all processes of a host are killed, and start again two seconds later
  the cable of a host is pulled for ten seconds
  a Dask worker with its children is stopped, and continues after ten seconds

The files of every run must equal the files of a local run, byte for byte. If they do not, the
script ends with status 1, and prints the log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import psutil

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "support")]

from clusters.cluster import Cluster, Node, cluster  # noqa: E402
from processes import program  # noqa: E402

from unloader.request.settings import parse_count  # noqa: E402

KILLS = ("unit", "worker", "host", "cable", "stopped")
AWAY_SECONDS = 10.0
"""Longer than the parent waits for a silent machine with the --stall-timeout of these runs."""


class Host:
    """One machine with two Dask workers."""

    def __init__(self, network: Network, number: int) -> None:
        self.network, self.number = network, number
        self.node: Node | None = None

    @property
    def name(self) -> str:
        return f"{self.network.prefix}-{self.number}"

    def begin(self, found: Cluster) -> None:
        (self.node,) = found.add(
            host=f"10.213.{self.number}.2",
            nanny=True,
            workers=2,
            inside=("ip", "netns", "exec", self.name),
        )

    def processes(self) -> list[psutil.Process]:
        assert self.node is not None
        return self.node.tree()

    def dask_workers(self) -> list[psutil.Process]:
        return [each for each in self.processes() if _is_dask_worker(each)]

    def kill(self) -> None:
        for each in self.processes():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        assert self.node is not None
        self.node.process.wait()

    def pull_cable(self, *, pulled: bool) -> None:
        _ip("-n", self.name, "link", "set", "eth0", "down" if pulled else "up")


class Network:
    """A head and two hosts, each in a separate namespace."""

    def __init__(self) -> None:
        self.prefix = f"unl{os.getpid()}"
        self.head = f"{self.prefix}-head"
        self.hosts = [Host(self, number) for number in (1, 2)]

    def make(self) -> None:
        for name in (self.head, *(host.name for host in self.hosts)):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        # One address of the head that both hosts have a way to.
        _ip("-n", self.head, "address", "add", "10.213.0.1/32", "dev", "lo")
        for host in self.hosts:
            cable = f"v{self.prefix}{host.number}"
            peer = ("peer", "name", "eth0", "netns", host.name)
            _ip("-n", self.head, "link", "add", cable, "type", "veth", *peer)
            net = f"10.213.{host.number}"
            _ip("-n", self.head, "address", "add", f"{net}.1/24", "dev", cable)
            _ip("-n", self.head, "link", "set", cable, "up")
            _ip("-n", host.name, "address", "add", f"{net}.2/24", "dev", "eth0")
            self.connect(host)

    def connect(self, host: Host) -> None:
        host.pull_cable(pulled=False)
        _ip("-n", host.name, "route", "replace", "default", "via", f"10.213.{host.number}.1")

    def remove(self) -> None:
        for name in (*(host.name for host in self.hosts), self.head):
            subprocess.run(("ip", "netns", "delete", name), check=False)


def main() -> None:
    """Kill, compare, report."""
    options = _options()
    chance = random.Random(options.seed)
    network = Network()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _made(folder / "t.duckdb", options.rows)
        subprocess.run((*_call(source, folder / "local"), "--quiet"), check=True, cwd=CHECKOUT)
        expected = _files(folder / "local")
        try:
            network.make()
            with _started(network, folder) as found:
                report = _rounds(found, network, chance, source, folder, expected, options)
        finally:
            network.remove()
    report["seed"] = options.seed
    print(json.dumps(report, indent=1) if options.json else report)
    sys.exit(1 if report["broken"] else 0)


def _rounds(
    found: Cluster,
    network: Network,
    chance: random.Random,
    source: str,
    folder: Path,
    expected: dict[str, bytes],
    options: argparse.Namespace,
) -> dict[str, object]:
    kills: Counter[str] = Counter()
    attempts = 0
    for number in range(options.runs):
        dest = folder / "out"
        call = (*_call(source, dest), "--overwrite", "--cluster", found.address)
        kind = chance.choice(options.kinds)
        before = time.monotonic()
        running = subprocess.Popen(
            ("ip", "netns", "exec", network.head, *call),
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        hurt = _hurt(kind, found, network, chance, dest, running)
        out, log = running.communicate(timeout=600)
        hurt.join()
        took = time.monotonic() - before
        problem = ""
        if running.returncode:
            problem = f"exit status {running.returncode}"
        elif _files(dest) != expected:
            problem = "the files differ"
        if problem:
            text = f"run {number} ({kind}): {problem}\n{out}\n{log}"
            return {"runs": number, "kills": kills, "broken": text}
        manifest = json.loads((dest / "_manifest.json").read_text())
        failed = sum(each["attempts"] - 1 for each in manifest["units"])
        attempts += failed
        kills[kind] += 1
        text = f"run {number + 1}: {kind}, {failed} attempts lost, {took:.1f} s, equal"
        print(text, file=sys.stderr, flush=True)
    return {"runs": options.runs, "kills": kills, "attempts_lost": attempts, "broken": ""}


def _hurt(
    kind: str,
    found: Cluster,
    network: Network,
    chance: random.Random,
    dest: Path,
    running: subprocess.Popen[str],
) -> threading.Thread:
    """Do something at a random moment of the reading, and set it right again."""
    host, units = chance.choice(network.hosts), chance.randint(1, 12)
    number = chance.random()

    def act() -> None:
        # The place of the run before remains until its manifest is replaced.
        while running.poll() is None and _staged(dest) < units:
            time.sleep(0.01)
        if kind == "host":
            host.kill()
            time.sleep(2.0)
            host.begin(found)
        elif kind == "cable":
            host.pull_cable(pulled=True)
            time.sleep(AWAY_SECONDS)
            network.connect(host)
        else:
            _hurt_process(kind, host, number)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def _hurt_process(kind: str, host: Host, number: float) -> None:
    units = [each for each in host.processes() if program.reads_units(each)]
    candidates = units if kind == "unit" else host.dask_workers()
    if not candidates:
        return
    chosen = candidates[int(number * len(candidates))]
    with suppress(psutil.NoSuchProcess):
        if kind != "stopped":
            chosen.kill()
            return
        tree = [chosen, *chosen.children(recursive=True)]
        for signal_number, pause in ((signal.SIGSTOP, AWAY_SECONDS), (signal.SIGCONT, 0.0)):
            for each in tree:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal_number)
            time.sleep(pause)


def _staged(dest: Path) -> int:
    with suppress(OSError):
        return (dest / "_run" / "journal.jsonl").read_bytes().count(b'"staged"')
    return 0


def _is_dask_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        words = " ".join(process.cmdline())
        return "multiprocessing" in words and "spawn_main" in words
    return False


@contextmanager
def _started(network: Network, folder: Path) -> Iterator[Cluster]:
    inside = ("ip", "netns", "exec", network.head)
    with cluster(folder / "cluster", host="10.213.0.1", inside=inside) as found:
        for host in network.hosts:
            host.begin(found)
        yield found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=parse_count, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KILLS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _made(path: Path, rows: int) -> str:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'name of row ' || i AS name, i * 1.5 AS d "
            f"FROM range({rows}) r(i)"
        )
    return f"duckdb://{path}"


def _call(source: str, dest: Path) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "unloader", "run", source, "--table", "t", "--to", str(dest)),
        *("--unit-bytes", "600kB", "--parallelism", "4", "--progress", "none"),
        *("--stall-timeout", "5", "--retry-delay", "0.2", "--retries", "10"),
    )


def _files(dest: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dest.iterdir() if path.name[0] != "_"}


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)


if __name__ == "__main__":
    main()
