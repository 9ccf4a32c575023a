"""`unloader network` between network namespaces: netfilter and the kernel count the same packets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60
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
        """Start `unloader network` on a host; it is ended after the test."""
        words = ("ip", "netns", "exec", self.spaces[host], sys.executable, "-m", "unloader")
        kept = {name: it for name, it in os.environ.items() if not name.startswith("UNLOADER_")}
        process = subprocess.Popen(
            (*words, "network", *arguments, "--json"),
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
        net.start(2, "listen", target)
    # Single packets: netfilter counts a group of packets as one packet.
    options = ("--count", "10000", "--rate", "5MB", "--burst", "1")
    senders = [net.start(1, "send", target, *options) for target in targets]
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
        net.start(number, "send", *targets, "--bind", own, *options)
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


@pytest.mark.parametrize("options", [(), ("--reverse",)])
def test_a_slow_link_is_measured(hosts: Callable[[int], Hosts], options: tuple[str, ...]) -> None:
    net = hosts(2)
    sender = 2 if options else 1
    limit = ("root", "tbf", "rate", "80mbit", "burst", "16kb", "latency", "50ms")
    net.inside(sender, "tc", "qdisc", "add", "dev", "eth", *limit)
    net.start(2, "listen", "10.99.76.2:7077")
    options = (*options, "--duration", "2", "--backlog", "1MiB")
    (flow,) = flows(net.start(1, "messages", "--peer", "10.99.76.2:7077", *options))
    assert flow["direction"] == ("in" if sender == 2 else "out")
    # 1,448 bytes of data in a frame of 1,514 bytes are 9.56 MB/s.
    assert 9.0e6 < flow["bytes_per_second"] < 10.0e6


def test_a_host_that_vanishes_ends_the_test(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    net, log = hosts(2), tmp_path / "log.csv"
    net.start(2, "listen", "10.99.76.2:7077")
    options = ("--rate", "1MB", "--duration", "50", "--interval", "0.2", "--log", str(log))
    sender = net.start(1, "send", "10.99.76.2:7077", *options)
    while not log.exists() or ",out," not in log.read_text():
        assert sender.poll() is None
    ran("ip", "-n", net.spaces[0], "link", "set", "p2", "down")
    (flow,) = flows(sender, 3)
    assert flow["error"] == "10.99.76.2:7077 does not answer any more"
    assert flow["seconds"] < 40
