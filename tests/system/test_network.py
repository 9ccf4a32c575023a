"""`unloader network` between network namespaces: netfilter and the kernel count the same packets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 180
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MISSING = [name for name in ("ip", "nft", "tc") if shutil.which(name, path=PATH) is None]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root only"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def ran(*words: str) -> str:
    env = {**os.environ, "PATH": PATH}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Hosts:
    """Network namespaces on one bridge; host number n has the address 10.99.76.n."""

    def __init__(self, undo: ExitStack, count: int) -> None:
        self.spaces = [f"unloader-{os.getpid()}-{at}" for at in range(count + 1)]
        for space in self.spaces:
            ran("ip", "netns", "add", space)
            undo.callback(ran, "ip", "netns", "del", space)
            ran("ip", "-n", space, "link", "set", "lo", "up")
        switch = self.spaces[0]
        ran("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        ran("ip", "-n", switch, "link", "set", "switch", "up")
        for at, space in enumerate(self.spaces[1:], 1):
            veth = ("ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", "name")
            ran(*veth, f"p{at}", "netns", switch)
            ran("ip", "-n", switch, "link", "set", f"p{at}", "master", "switch", "up")
            ran("ip", "-n", space, "addr", "add", f"10.99.76.{at}/24", "dev", "eth")
            ran("ip", "-n", space, "link", "set", "eth", "up")
        self.undo = undo

    def inside(self, host: int, *words: str) -> str:
        return ran("ip", "netns", "exec", self.spaces[host], *words)

    def start(self, host: int, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of `unloader` on a host; it is ended after the test."""
        return self.begin(host, sys.executable, "-m", "unloader", *arguments, "--json")

    def listen(self, host: int, address: str) -> None:
        """Start a listener and wait until it takes connections."""
        process = self.start(host, "network", "listen", address)
        wanted, ends = f":{int(address.partition(':')[2]):04X} ", time.monotonic() + SECONDS
        while wanted not in Path(f"/proc/{process.pid}/net/tcp").read_text():
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)

    def begin(self, host: int, *words: str) -> subprocess.Popen[str]:
        kept = {name: it for name, it in os.environ.items() if not name.startswith("UNLOADER_")}
        process = subprocess.Popen(
            ("ip", "netns", "exec", self.spaces[host], *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "PATH": PATH, "PYTHONPATH": str(ROOT)},
        )
        self.undo.callback(process.communicate)
        self.undo.callback(process.kill)
        return process


@pytest.fixture
def hosts() -> Iterator[Callable[[int], Hosts]]:
    with ExitStack() as undo:
        yield lambda count: Hosts(undo, count)


def flows(process: subprocess.Popen[str], status: int = 0) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == status, err
    found: list[dict[str, Any]] = json.loads(out)["flows"]
    return found


def test_the_reported_loss_is_that_of_netfilter(hosts: Callable[[int], Hosts]) -> None:
    """Three senders at the same time lose 0.1, 1 and 5 % of their packets."""
    net, per_mille = hosts(2), (1, 10, 50)
    rules = "add table ip t; add chain ip t c { type filter hook input priority 0; };"
    for each in per_mille:
        data = f"udp dport {7000 + each} udp length > 1000"
        rules += f"add rule ip t c {data} counter;"
        rules += f"add rule ip t c {data} numgen random mod 1000 < {each} counter drop;"
    net.inside(2, "nft", rules)
    targets = [f"10.99.76.2:{7000 + each}" for each in per_mille]
    for target in targets:
        net.listen(2, target)
    # Single packets: netfilter counts a group of packets as one packet.
    options = ("--count", "10000", "--rate", "5MB", "--burst", "1")
    senders = [net.start(1, "network", "send", target, *options) for target in targets]
    reported = [flows(sender)[0] for sender in senders]
    counted = re.findall(r"counter packets (\d+)", net.inside(2, "nft", "list", "ruleset"))
    for at, flow in enumerate(reported):
        seen, dropped = int(counted[2 * at]), int(counted[2 * at + 1])
        assert seen == flow["sent"] == 10_000
        assert dropped > 0
        assert abs(dropped / seen - flow["missing"] / flow["sent"]) <= 0.001
        assert flow["out_of_order"] == flow["duplicates"] == 0


def test_four_hosts_send_to_each_other(hosts: Callable[[int], Hosts]) -> None:
    net, numbers = hosts(4), (1, 2, 3, 4)
    targets = [f"10.99.76.{each}:7077" for each in numbers]
    rules = "add table ip t; add chain ip t c { type filter hook input priority 0; };"
    for each in numbers:
        net.inside(each, "nft", f"{rules} add rule ip t c udp length > 1000 counter")
    options = ("--polite", "--count", "1000", "--rate", "2MB", "--burst", "1")
    started = [
        net.start(number, "network", "send", *targets, "--bind", own, *options)
        for number, own in zip(numbers, targets, strict=True)
    ]
    for number, process in zip(numbers, started, strict=True):
        found = flows(process)
        others = {each for each in targets if each != targets[number - 1]}
        assert {flow["peer"] for flow in found if flow["direction"] == "out"} == others
        received = [flow["received"] for flow in found if flow["direction"] == "in"]
        assert received == [1000, 1000, 1000]
        text = net.inside(number, "nft", "list", "ruleset")
        assert "counter packets 3000 " in text


def test_a_slow_link_is_measured_in_both_directions(hosts: Callable[[int], Hosts]) -> None:
    """1,448 bytes of data in a frame of 1,514 bytes are 9.56 of 10 MB/s."""
    net, peer = hosts(2), "10.99.76.2:7077"
    for host, megabits in ((1, 80), (2, 40)):
        limit = ("tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "50ms")
        net.inside(host, "tc", "qdisc", "add", "dev", "eth", "root", *limit)
    net.listen(2, peer)
    options = ("--duration", "2", "--backlog", "1MiB")
    (flow,) = flows(net.start(1, "network", "messages", "--peer", peer, *options))
    # A busy machine is slower than the link. The other direction has half as much.
    assert 5.0e6 < flow["bytes_per_second"] < 10.0e6
    peer = "10.99.76.2:7078"  # The first listener may still wait for others.
    net.listen(2, peer)
    out, err = net.start(1, "preflight", "--network", peer).communicate(timeout=SECONDS)
    ceiling = json.loads(out)["network"]
    assert ceiling is not None, out
    assert 2.5e6 < ceiling["bytes_per_second"] < 5.0e6, err
    assert (ceiling["peers"], ceiling["interface"]) == ([peer], "eth")
    assert 0 < ceiling["round_trip_seconds"] < 1


def test_a_host_that_vanishes_ends_the_test(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    net, log = hosts(2), tmp_path / "log.csv"
    net.listen(2, "10.99.76.2:7077")
    options = ("--rate", "1MB", "--duration", "50", "--interval", "0.2", "--log", str(log))
    sender = net.start(1, "network", "send", "10.99.76.2:7077", *options)
    while not log.exists() or ",out," not in log.read_text():
        assert sender.poll() is None
    ran("ip", "-n", net.spaces[0], "link", "set", "p2", "down")
    (flow,) = flows(sender, 3)
    assert flow["error"] == "10.99.76.2:7077 does not answer any more"
    assert flow["seconds"] < 40


@pytest.mark.long("runs in clusters")
def test_dask_workers_receive_together(hosts: Callable[[int], Hosts]) -> None:
    net, peer = hosts(2), "10.99.76.2:7077"
    limit = ("root", "tbf", "rate", "80mbit", "burst", "128kb", "latency", "50ms")
    net.inside(2, "tc", "qdisc", "add", "dev", "eth", *limit)
    net.listen(2, peer)
    options = ("--network", peer, "--cluster", "local:2", "--parallelism", "2")
    out, err = net.start(1, "preflight", *options).communicate(timeout=SECONDS)
    found = json.loads(out)
    ceiling = found["network"]
    assert ceiling is not None, found
    assert (ceiling["machines"], ceiling["connections"]) == (2, 4), err
    # The workers' rates of slightly different seconds are added up.
    assert 5.0e6 < ceiling["bytes_per_second"] < 12.0e6


_RELAY = """
import socket, sys, threading
def copy(origin, target):
    while data := origin.recv(1 << 16):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
with socket.create_server(("0.0.0.0", 5432)) as server:
    while True:
        link, _ = server.accept()
        inner = socket.socket(socket.AF_UNIX)
        inner.connect(sys.argv[1])
        for pair in ((link, inner), (inner, link)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
"""
"""The PostgreSQL server of the tests has a local socket only."""


@pytest.mark.long("runs between network namespaces")
def test_a_run_is_compared_with_the_network(
    hosts: Callable[[int], Hosts], postgres: Any, tmp_path: Path
) -> None:
    """The rows of a server behind 400 Mbit/s come as fast as preflight has measured its network."""
    local = postgres.database("network")
    postgres.run(
        "CREATE TABLE t AS SELECT repeat('x', 995) AS a FROM generate_series(1, 30000)", url=local
    )
    net, peer = hosts(2), "10.99.76.2:7077"
    limit = ("tbf", "rate", "400mbit", "burst", "64kb", "latency", "50ms")
    net.inside(2, "tc", "qdisc", "add", "dev", "eth", "root", *limit)
    (folder,) = re.findall(r"host=([^&]+)", unquote(local))
    net.begin(2, sys.executable, "-c", _RELAY, f"{folder}/.s.PGSQL.5432")
    net.listen(2, peer)
    url = "postgresql://postgres@10.99.76.2/network?sslmode=disable"
    options = (url, "--table", "t", "--parallelism", "1")
    ceilings = tmp_path / "c.json"
    measured = net.start(
        *(1, "preflight", *options, "--without", "disk,encoder", "--network", peer),
        *("--source-seconds", "10", "--save", str(ceilings)),
    )
    out, err = measured.communicate(timeout=SECONDS)
    network = json.loads(out)["network"]
    # 995 characters, the end of the line, and the headers of the protocol and of TCP.
    assert 1000 < network["row_bytes"] < 1150, err
    run = net.start(1, "run", *options, "--to", str(tmp_path / "out"), "--ceilings", str(ceilings))
    _, err = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, err
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    (part,) = (each for each in manifest["efficiency"]["parts"] if each["what"] == "network")
    assert part["ceiling"] == pytest.approx(
        network["bytes_per_second"] / network["row_bytes"], rel=0.01
    )
    # The snapshot, the connection and the files take some of the time.
    assert 0.1 < part["share"] <= 1.02
