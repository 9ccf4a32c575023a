#!/usr/bin/env python3
"""The network tests beside iperf3 and the counters of netfilter, between two namespaces.

    sudo python examples/bench_network.py --json
    sudo python examples/bench_network.py --seconds 5 --runs 5

It needs root, ip, iperf3 and nft. All traffic stays on loopback and in two network namespaces that
it makes and removes.

- `tcp_vs_iperf3` and `udp_vs_iperf3`: our received bytes per second over the rate of iperf3. Each
  program has its own best size. The median of runs in turn.
- `limited_vs_iperf3`: the same for TCP on a link that `tbf` limits to 400 Mbit/s.
- `loss_error`: the largest difference in percentage points between our loss and the loss that
  netfilter counts. It drops 0.1, 1 and 5 % of the packets.
- `order_error`: the relative error of our packets out of order and of their average offset. A relay
  holds packets back and counts them.

CPU seconds are the time of both sides for 10^9 bytes, with the start of the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

ADDRESS, PORT = "10.99.77.2", 7077
SPACES = ("unloader-bench-a", "unloader-bench-b")
OURS = (sys.executable, "-m", "unloader", "network")
UDP_SIZES = (1448, 8000, 32_000, 65_507)


def ran(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout


def inside(space: int, *words: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", SPACES[space], *words)


def ours(listen: tuple[str, ...], send: tuple[str, ...]) -> dict[str, Any]:
    """Return the flow that the sender reports."""
    with subprocess.Popen(
        inside(1, *OURS, *listen, "--quiet"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as listener:
        try:
            flow: dict[str, Any] = json.loads(ran(*inside(0, *OURS, *send, "--json")))["flows"][0]
        finally:
            listener.terminate()
    return flow


def iperf(seconds: float, *options: str) -> float:
    """Return the bytes per second that the server of iperf3 received."""
    with subprocess.Popen(inside(1, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL) as server:
        for _ in range(100):
            if ":5201" in ran(*inside(1, "ss", "-ltn")):
                break
            time.sleep(0.05)
        client = inside(0, "iperf3", "-c", ADDRESS, "-J", "-t", str(seconds), *options)
        end = json.loads(ran(*client))["end"]
        server.wait(20)
    found = end.get("sum_received") or end["sum"]
    share = 1 - found.get("lost_percent", 0) / 100
    received = end["sum"]["bytes"] * share if "-u" in options else found["bytes"]
    return float(received / found["seconds"])


def udp(seconds: float, *options: str) -> float:
    target = f"{ADDRESS}:{PORT}"
    send = ("send", target, "--rate", "0", "--duration", str(seconds), *options)
    return float(ours(("listen", target), send)["bytes_per_second"])


def tcp(seconds: float) -> float:
    target = f"{ADDRESS}:{PORT}"
    send = ("messages", "--peer", target, "--duration", str(seconds), "--message-size", "1MiB")
    return float(ours(("messages", "--bind", target), send)["bytes_per_second"])


def limited(seconds: float) -> float:
    """Return our rate over the rate of iperf3 on a slow link."""
    limit = ("tbf", "rate", "400mbit", "burst", "64kb", "latency", "50ms")
    ran(*inside(0, "tc", "qdisc", "add", "dev", "v0", "root", *limit))
    try:
        return tcp(seconds) / iperf(seconds)
    finally:
        ran(*inside(0, "tc", "qdisc", "del", "dev", "v0", "root"))


def order_error(every: int = 50, places: int = 3) -> float:
    """Return the error of order and offset of packets that a relay on loopback holds back."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inner,
    ):
        outer.bind(("127.0.0.1", 0))
        inner.connect(("127.0.0.1", PORT))
        outer.settimeout(5)
        inner.settimeout(5)
        client = list[Any]()
        late = list[int]()

        def there() -> None:
            held, number = list[bytes](), 0
            while True:
                packet, address = outer.recvfrom(1 << 16)
                client[:] = [address]
                with suppress(ConnectionRefusedError):
                    if len(packet) <= 128:
                        inner.send(packet)
                        continue
                    number += 1
                    if number % every == 0:
                        held.append(packet)
                        continue
                    inner.send(packet)
                    if held and number % every == places:
                        inner.send(held.pop())
                        late.append(places)

        def back() -> None:
            while True:
                with suppress(ConnectionRefusedError):
                    outer.sendto(inner.recv(1 << 16), client[0])

        def until_silent(work: Callable[[], None]) -> None:
            with suppress(OSError):
                work()

        threads = [threading.Thread(target=until_silent, args=(each,)) for each in (there, back)]
        with subprocess.Popen(
            (*OURS, "listen", f"127.0.0.1:{PORT}", "--quiet"), stderr=subprocess.DEVNULL
        ) as listener:
            time.sleep(1)
            for thread in threads:
                thread.start()
            send = ("send", f"127.0.0.1:{outer.getsockname()[1]}", "--count", "20000")
            options = ("--rate", "5MB", "--packet-size", "1000", "--json")
            flow = json.loads(ran(*OURS, *send, *options))["flows"][0]
            listener.terminate()
        for thread in threads:
            thread.join()
    wanted = (len(late), sum(late) / len(late))
    found = (flow["out_of_order"], flow["average_offset"])
    return max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))


def loss_error(per_mille: int) -> dict[str, float]:
    """Return our loss and the loss that netfilter counts, in percent."""
    rules = (
        "add table ip t; add chain ip t c { type filter hook input priority 0; };"
        "add rule ip t c udp length > 1000 counter;"
        f"add rule ip t c udp length > 1000 numgen random mod 1000 < {per_mille} counter drop"
    )
    ran(*inside(1, "nft", rules))
    target = f"{ADDRESS}:{PORT}"
    # Single packets: netfilter counts a group of packets as one packet.
    send = ("send", target, "--count", "20000", "--rate", "10MB", "--burst", "1")
    flow = ours(("listen", target), send)
    text = ran(*inside(1, "nft", "list", "ruleset"))
    ran(*inside(1, "nft", "delete table ip t"))
    seen, dropped = map(int, re.findall(r"counter packets (\d+)", text))
    return {
        "netfilter": 100 * dropped / seen,
        "reported": 100 * flow["missing"] / flow["sent"],
        "packets": seen,
    }


def main() -> None:
    """Make the namespaces, measure, and remove them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("bench_network.py needs root for network namespaces")
    for space in SPACES:
        ran("ip", "netns", "add", space)
    try:
        ran(
            *("ip", "link", "add", "v0", "netns", SPACES[0], "type", "veth"),
            *("peer", "name", "v1", "netns", SPACES[1]),
        )
        for at, space in enumerate(SPACES):
            ran("ip", "-n", space, "addr", "add", f"10.99.77.{at + 1}/24", "dev", f"v{at}")
            ran("ip", "-n", space, "link", "set", f"v{at}", "up")
        lost = [loss_error(per_mille) for per_mille in (1, 10, 50)]
        size = max(UDP_SIZES, key=lambda each: iperf(1, "-u", "-b", "0", "-l", str(each)))
        our_size = max((1468, *UDP_SIZES), key=lambda each: udp(1, "--packet-size", str(each)))
        seconds = options.seconds
        runs: dict[str, Callable[[], float]] = {
            "iperf_tcp": lambda: iperf(seconds),
            "tcp": lambda: tcp(seconds),
            "iperf_udp": lambda: iperf(seconds, "-u", "-b", "0", "-l", str(size)),
            "udp": lambda: udp(seconds, "--packet-size", str(our_size)),
        }
        figures: dict[str, list[float]] = {name: [] for name in runs}
        cpu: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.runs):
            for name, measure in runs.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                rate = measure()
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                figures[name].append(round(rate))
                cpu[name].append(round(used / (rate * seconds) * 1e9, 3))
        slow = limited(seconds)
    finally:
        for space in SPACES:
            subprocess.run(("ip", "netns", "del", space), check=False)
    ratios = {
        f"{kind}_vs_iperf3": statistics.median(
            a / b for a, b in zip(figures[kind], figures[f"iperf_{kind}"], strict=True)
        )
        for kind in ("tcp", "udp")
    }
    ratios["limited_vs_iperf3"] = slow
    ratios["order_error"] = order_error()
    ratios["loss_error"] = max(abs(each["netfilter"] - each["reported"]) for each in lost)
    found = {"ratios": ratios, "bytes_per_second": figures, "loss": lost}
    found |= {"iperf_udp_size": size, "udp_size": our_size, "cpu_seconds_per_gb": cpu}
    print(json.dumps(found if options.json else ratios, indent=2))


if __name__ == "__main__":
    main()
