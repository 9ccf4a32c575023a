"""`unloader network messages`: both sides report the messages that were sent."""

from __future__ import annotations

import csv
import json
import socket
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import pytest

Started = Callable[..., "subprocess.Popen[str]"]
SECONDS = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def flow(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    (found,) = json.loads(out)["flows"]
    assert isinstance(found, dict)
    return found


def refusal(process: subprocess.Popen[str]) -> str:
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode in (2, 3), err
    (line,) = [line for line in err.splitlines() if "error:" in line]
    return line


@pytest.mark.parametrize("options", [(), ("--blocking",), ("--message-size-max", "9000")])
def test_all_messages_arrive_and_are_timed(start: Started, options: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    bound = start("messages", "--bind", address, "--json")
    sender = start(
        *("messages", "--peer", address, "--count", "500", "--threads", "2"),
        *("--message-size", "5000", "--json", *options),
    )
    out, into = flow(sender), flow(bound)
    assert out["messages"] == into["messages"] == 1000
    assert out["bytes"] == into["bytes"]
    if "--message-size-max" in options:
        assert 6.5e6 < out["bytes"] < 7.5e6
    else:
        assert out["bytes"] == 5_000_000
    assert out["connections"] == into["connections"] == 2
    assert out["receipts"] == (1000 if "--blocking" in options else 100)
    times = [out[name] for name in ("minimum", "p50", "p99", "p999", "maximum")]
    assert times == sorted(times)
    assert 0 < out["minimum"] <= out["average"] <= out["maximum"]
    assert out["backlog"] >= 5000


@pytest.mark.parametrize(
    ("options", "count", "size"),
    [((), 300, 65_536), (("--rate", "10KB", "--message-size", "10000"), 7, 10_000)],
    ids=["fast", "no receipt for six seconds"],
)
def test_a_relay_passes_messages_on(
    start: Started, options: tuple[str, ...], count: int, size: int
) -> None:
    last, middle = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    end = start("messages", "--bind", last, "--json")
    start("messages", "--bind", middle, "--peer", last, "--relay")
    sender = start("messages", "--peer", middle, "--count", str(count), *options, "--json")
    out, into = flow(sender), flow(end)
    assert out["messages"] == into["messages"] == count
    assert out["bytes"] == into["bytes"] == count * size


def test_a_listener_sends_and_counts_messages(start: Started, tmp_path: Path) -> None:
    address, log = f"127.0.0.1:{free_port()}", tmp_path / "log.csv"
    listener = start("listen", address, "--json", "--log", str(log))
    options = ("--count", "400", "--message-size", "3000", "--rate", "500KB", "--json")
    backward = start("messages", "--peer", address, "--reverse", *options)
    forward = start("messages", "--peer", address, *options)
    into, out = flow(backward), flow(forward)
    assert (into["direction"], out["direction"]) == ("in", "out")
    heard, err = listener.communicate(timeout=SECONDS)
    assert listener.returncode == 0, err
    flows = {each["direction"]: each for each in json.loads(heard)["flows"]}
    for ours, theirs in ((into, flows["out"]), (out, flows["in"])):
        assert ours["messages"] == theirs["messages"] == 400
        assert ours["bytes"] == theirs["bytes"] == 1_200_000
    # The sender measures the times.
    assert flows["out"]["receipts"] == 40
    with log.open() as file:
        logged = [row for row in csv.DictReader(file) if row["scope"] == "test"]
    assert {row["direction"]: row["messages"] for row in logged} == {"in": "400", "out": "400"}


def test_a_client_that_asks_for_something_else_gets_nothing(start: Started) -> None:
    address = f"127.0.0.1:{free_port()}"
    listener = start("listen", address, "--json", "--wait", "20")
    for _ in range(200):
        with suppress(ConnectionRefusedError):
            link = socket.create_connection(address.split(":"), timeout=20)
            break
        sleep(0.1)
    with link:
        link.sendall(b"ULNM\2\0\0\0" + struct.pack("!IBxxxQQ", 5, 6, 0, 0) + b"terms")
        assert link.recv(100, socket.MSG_WAITALL) == b"ULNM\2\0\0\0"
    out, err = listener.communicate(timeout=SECONDS)
    assert "asks for something unknown" in err
    assert json.loads(out)["flows"][0]["bytes"] == 0


def test_the_backlog_is_limited(start: Started) -> None:
    address = f"127.0.0.1:{free_port()}"
    start("messages", "--bind", address)
    options = ("--backlog", "256KiB", "--count", "200", "--json")
    out = flow(start("messages", "--peer", address, *options))
    assert out["messages"] == 200
    # The message that exceeds the limit is sent before the sender waits.
    assert out["backlog"] <= 262_144 + 65_536


def test_a_peer_that_dies_is_named(start: Started) -> None:
    address = f"127.0.0.1:{free_port()}"
    bound = start("messages", "--bind", address)
    options = ("--rate", "1MB", "--duration", "50", "--interval", "0.3")
    sender = start("messages", "--peer", address, *options)
    assert sender.stderr is not None
    assert "MB/s" in sender.stderr.readline()
    bound.kill()
    assert f"the connection to {address} failed" in refusal(sender)


def test_other_programs_get_a_greeting_only(start: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(SECONDS)
        address = f"127.0.0.1:{other.getsockname()[1]}"
        sender = start("messages", "--peer", address, "--wait", "1")
        link, _ = other.accept()
        with link:
            link.sendall(b"220 mail ready\r\n")
            got = link.recv(65536)
            assert len(got) == 8
            with suppress(ConnectionResetError):  # The rest of our line was not read.
                assert link.recv(65536) == b""
    assert "does not answer the message test" in refusal(sender)


def test_another_version_is_named(start: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as old:
        old.settimeout(SECONDS)
        sender = start("messages", "--peer", f"127.0.0.1:{old.getsockname()[1]}")
        link, _ = old.accept()
        with link:
            link.sendall(b"ULNM\x63\0\0\0")
            assert "has version 99 of the network test" in refusal(sender)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "needs --peer, --bind or both"),
        (("--relay", "--bind", "127.0.0.1:7077"), "--relay needs"),
        (("--peer", "127.0.0.1"), "is not an address"),
        (("--peer", "127.0.0.1:7077", "--rate", "10KB"), "at this rate"),
        (("--bind", "127.0.0.1:7077", "--reverse"), "--reverse needs --peer"),
        (("--peer", "127.0.0.1:7077", "--polite"), "does not take --polite"),
        (("--peer", "127.0.0.1:7077", "--message-size", "1GiB"), "not in the range"),
        (("--peer", "127.0.0.1:7077", "--warm-up-seconds", "7200"), "--warm-up-seconds is 7200"),
    ],
)
def test_wrong_options(start: Started, arguments: tuple[str, ...], text: str) -> None:
    assert text in refusal(start("messages", *arguments))


def test_a_busy_port_is_named(start: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        assert f"cannot listen on {address}" in refusal(start("messages", "--bind", address))
