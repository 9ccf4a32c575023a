#!/usr/bin/env python3
"""The network tests beside iperf3 and the counters of netfilter, between two namespaces.

    sudo python examples/bench_network.py --json
    sudo python examples/bench_network.py --seconds 5 --runs 5
    sudo python examples/bench_network.py --soak 3600

It needs root, ip, iperf3 and nft. All traffic stays on loopback and in network namespaces that it
makes and removes.

- `tcp_vs_iperf3` and `udp_vs_iperf3`: our received bytes per second over the rate of iperf3. Each
  program has its own best size. The median of runs in turn.
- `limited_vs_iperf3`: the same for TCP on a link that `tbf` limits to 400 Mbit/s.
- `loss_error`: the largest difference in percentage points between our loss and the loss that
  netfilter and the kernel count. Netfilter drops 0.1, 1 and 5 % of the packets. The kernel drops
  packets that a busy machine leaves in a full buffer.
- `order_error`: the relative error of our packets out of order and of their average offset. A relay
  holds packets back and counts them.
- `spread_error`: four hosts send to each other. The largest difference between the packets that a
  host reports from all others and those that netfilter counts there. Packets that a busy machine
  leaves in a full buffer are subtracted.
- `overrun_error`: the difference between missing packets and those that the kernel drops because
  the buffer of the receiver is too small. The report must name the buffer.
- `soak_growth`: with `--soak`, by how much the memory of one listener grows from its second to its
  last test, relative. Tests of a minute with 1 % loss follow each other, and `soak_loss_error` is
  the relative error of their missing packets.

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
from pathlib import Path
from typing import Any

ADDRESS, PORT = "10.99.77.2", 7077
SPACES = ("unloader-bench-a", "unloader-bench-b", "unloader-bench-c", "unloader-bench-d")
SWITCH = "unloader-bench-switch"
OURS = (sys.executable, "-m", "unloader", "network")
CHAIN = "add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c"
"""Of nft; a rule follows."""
LARGE = "udp length > 1000"
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
        for each in (outer, inner):
            each.settimeout(5)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
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
            options = ("--rate", "2MB", "--packet-size", "1000", "--json")
            flow = json.loads(ran(*OURS, *send, *options))["flows"][0]
            listener.terminate()
        for thread in threads:
            thread.join()
    wanted = (len(late), sum(late) / len(late))
    found = (flow["out_of_order"], flow["average_offset"])
    return max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))


def loss_error(per_mille: int) -> dict[str, float]:
    """Return our loss and the losses that netfilter and the kernel count, in percent."""
    lossy = f"numgen random mod 1000 < {per_mille} counter drop"
    ran(*inside(1, "nft", f"{CHAIN} {LARGE} counter; add rule ip t c {LARGE} {lossy}"))
    target = f"{ADDRESS}:{PORT}"
    # Single packets: netfilter counts a group of packets as one packet.
    send = ("send", target, "--count", "20000", "--rate", "10MB", "--burst", "1")
    before = full_buffers()
    flow = ours(("listen", target), send)
    seen, dropped = counters(1)
    return {
        "netfilter": 100 * dropped / seen,
        "full_buffers": 100 * (full_buffers() - before) / seen,
        "reported": 100 * flow["missing"] / flow["sent"],
        "packets": seen,
    }


def spread_error(count: int = 2000) -> int:
    """Return the difference in packets between four hosts and netfilter."""
    ran("ip", "netns", "add", SWITCH)
    ran("ip", "-n", SWITCH, "link", "add", "switch", "up", "type", "bridge")
    targets = [f"10.99.76.{at + 1}:{PORT}" for at in range(len(SPACES))]
    for at, space in enumerate(SPACES):
        veth = ("ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", "name")
        ran(*veth, f"p{at}", "netns", SWITCH)
        ran("ip", "-n", SWITCH, "link", "set", f"p{at}", "up", "master", "switch")
        ran("ip", "-n", space, "addr", "add", f"10.99.76.{at + 1}/24", "dev", "eth")
        ran("ip", "-n", space, "link", "set", "eth", "up")
        ran(*inside(at, "nft", f"{CHAIN} {LARGE} counter"))
    before = [full_buffers(at) for at in range(len(SPACES))]
    options = ("--polite", "--count", str(count), "--rate", "1MB", "--burst", "1", "--json")
    hosts = [
        subprocess.Popen(
            inside(at, *OURS, "send", *targets, "--bind", own, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for at, own in enumerate(targets)
    ]
    errors = []
    for at, host in enumerate(hosts):
        flows = json.loads(host.communicate(timeout=120)[0])["flows"]
        arrived = [flow["received"] for flow in flows if flow["direction"] == "in"]
        counted = counters(at)[0] + before[at] - full_buffers(at)
        errors.append(abs(sum(arrived) - counted) if len(arrived) == 3 else 3 * count)
    return max(errors)


def counters(space: int) -> list[int]:
    """Return the packets that netfilter has counted by rule, and end the rules."""
    text = ran(*inside(space, "nft", "list", "ruleset"))
    ran(*inside(space, "nft", "delete table ip t"))
    return [int(each) for each in re.findall(r"counter packets (\d+)", text)]


def full_buffers(space: int = 1) -> int:
    """Return the packets that the kernel of the receiver has dropped for want of room."""
    lines = ran(*inside(space, "cat", "/proc/net/snmp")).splitlines()
    names, figures = (each.split() for each in lines if each.startswith("Udp:"))
    return int(figures[names.index("RcvbufErrors")])


def overrun_error() -> float:
    """Return the error of missing packets where the buffer of the receiver is too small."""
    before, target = full_buffers(), f"{ADDRESS}:{PORT}"
    send = ("send", target, "--rate", "0", "--duration", "2", "--burst", "1")
    flow = ours(("listen", target, "--buffer", "8k"), send)
    dropped = full_buffers() - before
    if not dropped or not flow["overruns"]:
        return 1.0
    return abs(int(flow["missing"]) - dropped) / dropped


def soak(seconds: float) -> dict[str, float]:
    """Repeat a test of a minute with one listener, and return how much it grows."""
    ran(*inside(1, "nft", f"{CHAIN} {LARGE} numgen random mod 1000 < 10 counter drop"))
    target, sizes, missing, before = f"{ADDRESS}:{PORT}", list[int](), 0, full_buffers()
    begun = time.monotonic()
    options = ("--rate", "3MB", "--burst", "1", "--json")
    listen = ("listen", target, "--duration", str(min(3600, seconds + 60)), "--quiet")
    with subprocess.Popen(inside(1, *OURS, *listen), stdout=subprocess.DEVNULL) as listener:
        # A second sender keeps the listener between two tests.
        keep = ("send", target, "--duration", str(min(3600, seconds + 30)), "--packet-size", "128")
        keeper = subprocess.Popen(
            inside(0, *OURS, *keep, "--rate", "10k", "--quiet"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while (left := seconds - (time.monotonic() - begun)) > 1:
            send = ("send", target, "--duration", str(min(60, left)), *options)
            missing += json.loads(ran(*inside(0, *OURS, *send)))["flows"][0]["missing"]
            status = Path(f"/proc/{listener.pid}/status").read_text()
            sizes.append(int(status.partition("VmRSS:")[2].split()[0]))
        keeper.terminate()
        listener.terminate()
    dropped = counters(1)[0] + full_buffers() - before
    return {
        "soak_growth": sizes[-1] / sizes[min(1, len(sizes) - 1)] - 1,
        "soak_loss_error": abs(missing - dropped) / dropped,
    }


def main() -> None:
    """Make the namespaces, measure, and remove them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--soak", type=float, default=0, help="seconds; default: none")
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
        for at, space in enumerate(SPACES[:2]):
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
        checks: dict[str, float] = {"spread_error": spread_error()}
        checks["overrun_error"] = overrun_error()
        checks |= soak(options.soak) if options.soak else {}
    finally:
        for space in (*SPACES, SWITCH):
            subprocess.run(("ip", "netns", "del", space), check=False, stderr=subprocess.DEVNULL)
    ratios = {
        f"{kind}_vs_iperf3": statistics.median(
            a / b for a, b in zip(figures[kind], figures[f"iperf_{kind}"], strict=True)
        )
        for kind in ("tcp", "udp")
    }
    ratios["limited_vs_iperf3"] = slow
    ratios["order_error"] = order_error()
    ratios["loss_error"] = max(
        abs(each["netfilter"] + each["full_buffers"] - each["reported"]) for each in lost
    )
    ratios |= checks
    found = {"ratios": ratios, "bytes_per_second": figures, "loss": lost}
    found |= {"iperf_udp_size": size, "udp_size": our_size, "cpu_seconds_per_gb": cpu}
    print(json.dumps(found if options.json else ratios, indent=2))


if __name__ == "__main__":
    main()
