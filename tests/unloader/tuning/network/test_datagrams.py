"""`unloader network listen` and `send`: their reports agree with the packets that arrived."""

from __future__ import annotations

import csv
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any

import pytest

SECONDS = 180
DATA_KIND = 4

Started = Callable[..., "subprocess.Popen[str]"]
Mangle = Callable[[int, bytes], list[bytes]]


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def refusal(process: subprocess.Popen[str]) -> str:
    """Return the one line of an error."""
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode in (2, 3), err
    lines = [line for line in err.splitlines() if "error:" in line]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


class Relay(threading.Thread):
    """A network between a sender and a listener; it changes the packets with data."""

    def __init__(self, listener: int, mangle: Mangle) -> None:
        super().__init__(daemon=True)
        self.inner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.outer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each in (self.inner, self.outer):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            each.settimeout(0.2)
        self.outer.bind(("127.0.0.1", 0))
        self.inner.connect(("127.0.0.1", listener))
        self.port = int(self.outer.getsockname()[1])
        self.mangle = mangle
        self.data = 0
        self.answered = 0.0
        self.client: tuple[str, int] | None = None
        self.ended = False

    def __enter__(self) -> Relay:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.join()
        self.inner.close()
        self.outer.close()

    def run(self) -> None:
        back = threading.Thread(target=self._back, daemon=True)
        back.start()
        while not self.ended:
            try:
                packet, self.client = self.outer.recvfrom(65536)
                passed = [packet]
                if packet[5] == DATA_KIND:
                    passed = self.mangle(self.data, packet)
                    self.data += 1
                for each in passed:
                    self.inner.send(each)
            except (TimeoutError, ConnectionRefusedError):
                continue
        back.join()

    def _back(self) -> None:
        while not self.ended:
            try:
                packet = self.inner.recv(65536)
                self.answered = time.monotonic()
                if self.client is not None:
                    self.outer.sendto(packet, self.client)
            except (TimeoutError, ConnectionRefusedError):
                continue


def through(start: Started, mangle: Mangle, *options: str) -> tuple[dict[str, Any], ...]:
    """Return what sender and listener report of 2,000 packets through a relay."""
    port = free_port()
    listener = start("listen", f"127.0.0.1:{port}", "--json")
    with Relay(port, mangle) as relay:
        sender = start(
            *("send", f"127.0.0.1:{relay.port}", "--count", "2000", "--rate", "4MB"),
            *("--packet-size", "1000", "--json", *options),
        )
        return answer(sender), answer(listener)


def test_a_sender_that_has_ended_gets_no_more_packets(start: Started) -> None:
    """A listener that goes on for others sends its counts to it for three seconds more."""
    port = free_port()
    listener = start("listen", f"127.0.0.1:{port}", "--json")
    with Relay(port, lambda at, packet: [packet]) as relay:
        other = start("send", f"127.0.0.1:{port}", "--duration", "120", "--rate", "1MB")
        short = start(
            "send", f"127.0.0.1:{relay.port}", "--count", "100", "--rate", "1MB", "--json"
        )
        assert other.stderr is not None
        assert "received" in other.stderr.readline()
        (flow,) = answer(short)["flows"]
        ended = time.monotonic()
        assert (flow["received"], flow["missing"]) == (100, 0)
        time.sleep(5)
        assert other.poll() is None, "the other test has to be longer"
        assert listener.poll() is None
        assert relay.answered - ended < 3.5
        other.send_signal(signal.SIGINT)
        assert sorted(flow["missing"] for flow in answer(listener)["flows"]) == [0, 0]


def test_every_packet_arrives_on_a_good_network(start: Started, tmp_path: Path) -> None:
    log = tmp_path / "network.csv"
    sent, heard = through(
        start, lambda at, packet: [packet], "--log", str(log), "--interval", "0.2"
    )
    (out,), (into,) = sent["flows"], heard["flows"]
    for flow in (out, into):
        assert (flow["sent"], flow["received"], flow["missing"]) == (2000, 2000, 0)
        assert flow["bytes"] == 2_000_000
        assert (flow["success_rate"], flow["out_of_order"], flow["duplicates"]) == (1.0, 0, 0)
    assert "lost 0.00%" in sent["verdict"]
    assert sent["mtu"] >= 16_384
    with log.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["scope"] for row in rows} == {"now", "life", "test"}
    # The parts between two reports add up to the last report.
    now = sum(int(row["received"]) for row in rows if row["scope"] == "now")
    life = [int(row["received"]) for row in rows if row["scope"] == "life"]
    assert now == life[-1]
    assert rows[-1]["received"] == "2000"


def test_lost_late_and_repeated_packets_are_counted(start: Started) -> None:
    held = list[bytes]()

    def mangle(at: int, packet: bytes) -> list[bytes]:
        if at % 100 == 50:
            return []
        if at % 100 == 10:
            held.append(packet)
            return []
        if at % 100 == 13:
            return [packet, held.pop()]  # Three later packets came first.
        return [packet, packet] if at % 100 == 70 else [packet]

    sent, heard = through(start, mangle)
    for flow in (*sent["flows"], *heard["flows"]):
        assert (flow["sent"], flow["received"], flow["missing"]) == (2000, 1980, 20)
        assert flow["success_rate"] == 0.99
        assert (flow["out_of_order"], flow["average_offset"]) == (20, 3.0)
        assert flow["duplicates"] == 20
    assert "lost 1.00%" in sent["verdict"]
    assert "check duplex" in sent["verdict"]


def test_both_directions(start: Started) -> None:
    port = free_port()
    listener = start("listen", f"127.0.0.1:{port}", "--json")
    sender = start(
        *("send", f"127.0.0.1:{port}", "--two-way", "--count", "1000", "--rate", "2MB", "--json")
    )
    for found in (answer(sender), answer(listener)):
        flows = {flow["direction"]: flow for flow in found["flows"]}
        assert set(flows) == {"in", "out"}
        for flow in flows.values():
            assert (flow["sent"], flow["received"]) == (1000, 1000)


def test_hosts_with_one_list_leave_themselves_out(start: Started) -> None:
    targets = [f"127.0.0.{host}:{free_port()}" for host in (1, 2, 3, 4)]
    hosts = [
        start(
            *("send", *targets, "--bind", own, "--polite", "--count", "500", "--rate", "1MB"),
            "--json",
        )
        for own in targets
    ]
    for own, host in zip(targets, hosts, strict=True):
        flows = answer(host)["flows"]
        out = {flow["peer"] for flow in flows if flow["direction"] == "out"}
        assert out == set(targets) - {own}
        assert sum(flow["direction"] == "in" for flow in flows) == 3
        assert all((flow["sent"], flow["received"]) == (500, 500) for flow in flows)


def test_a_small_receive_buffer_is_named(start: Started) -> None:
    port = free_port()
    start("listen", f"127.0.0.1:{port}", "--buffer", "4096")
    options = ("--rate", "0", "--duration", "2", "--json")
    found = answer(start("send", f"127.0.0.1:{port}", *options))
    (flow,) = found["flows"]
    assert flow["overruns"] > 0
    assert flow["missing"] > 0
    assert f"the receive buffer of 127.0.0.1:{port}" in found["verdict"]
    assert "rmem_max" in found["verdict"]


def test_a_host_that_does_not_answer_gets_small_packets_only(start: Started) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        sender = start("send", f"127.0.0.1:{port}", "--wait", "1.5", "--rate", "0")
        assert "does not answer the datagram test" in refusal(sender)
        sizes = list[int]()
        silent.setblocking(False)
        while select([silent], [], [], 0.1)[0]:
            sizes.append(len(silent.recv(65536)))
        assert set(sizes) == {128}
        assert len(sizes) < 30


def test_a_listener_that_dies_stops_the_sender(start: Started) -> None:
    port = free_port()
    listener = start("listen", f"127.0.0.1:{port}")
    sender = start(
        *("send", f"127.0.0.1:{port}", "--rate", "1MB", "--duration", "50", "--interval", "0.3")
    )
    assert sender.stderr is not None
    assert "received" in sender.stderr.readline()
    listener.kill()
    assert f"127.0.0.1:{port}" in refusal(sender)


def test_another_version_is_named(start: Started) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        old.bind(("127.0.0.1", 0))
        old.settimeout(SECONDS)
        sender = start("send", f"127.0.0.1:{old.getsockname()[1]}")
        hello, address = old.recvfrom(65536)
        old.sendto(hello[:4] + b"\x63\x07" + hello[6:], address)
        assert "has version 99 of the network test, but this program has 2" in refusal(sender)


def test_data_without_the_token_of_a_listener_is_ignored(start: Started) -> None:
    port = free_port()
    listener = start("listen", f"127.0.0.1:{port}", "--wait", "3", "--json")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        forger.settimeout(0.2)
        forger.connect(("127.0.0.1", port))
        answered = 0
        start_packet = b"ULNT\x02\x03\x01".ljust(8, b"\0") + b"\7" * 16
        while listener.poll() is None:
            try:
                forger.send(start_packet.ljust(128, b"\0"))
                forger.send(b"ULNT\x02\x01\x00")  # Shorter than its answer would be.
                answered += len(forger.recv(65536))
            except OSError:
                continue
    assert answered == 0
    assert "no host sent anything" in refusal(listener)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("send",), "needs a target"),
        (("send", "10.0.0.2"), "is not an address"),
        (("send", "127.0.0.1:99999"), "is not an address"),
        (("send", "no-such-host.invalid:7077"), "has no address"),
        (("listen", "--packet-size", "1000"), "does not take --packet-size"),
        (("listen", "192.0.2.1:7077"), "cannot listen on"),
        (("send", "127.0.0.1:7077", "--duration", "7200"), "from 0.1 to 3600"),
        (("shout",), "unknown test"),
    ],
)
def test_wrong_addresses_and_options(start: Started, arguments: tuple[str, ...], text: str) -> None:
    assert text in refusal(start(*arguments))


def test_a_busy_port_is_named(start: Started) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refusal(start("listen", f"127.0.0.1:{port}"))


def test_a_polite_sender_keeps_its_first_listener_until_the_last_one_starts(start: Started) -> None:
    """A listener ends four seconds after a sender that is silent."""
    first, last = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listeners = [start("listen", first, "--json")]
    options = ("--polite", "--count", "200", "--rate", "1MB", "--json")
    sender = start("send", first, last, *options)
    time.sleep(6)
    assert sender.poll() is None
    listeners.append(start("listen", last, "--json"))
    flows = answer(sender)["flows"]
    flows += [flow for each in listeners for flow in answer(each)["flows"]]
    assert [(flow["sent"], flow["received"]) for flow in flows] == [(200, 200)] * 4
