"""`unloader network`: measures the network between hosts."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from msgspec.structs import replace

from unloader.cli.display import render
from unloader.cli.display.render import megabytes
from unloader.cli.options.command import declared, given
from unloader.cli.signals import stop_on_signals
from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.tuning.network import messages
from unloader.tuning.network.datagrams import DatagramTest
from unloader.tuning.network.flows import (
    SILENCE_SECONDS,
    Counts,
    Flow,
    MessageFlow,
    PacketFlow,
    Settings,
    verdict,
)
from unloader.tuning.network.measuring import watched
from unloader.tuning.network.messages import MessageTest
from unloader.tuning.network.wire import PORT

_OF_MODE = {
    "listen": frozenset[str](),
    "send": frozenset({"bind", "polite", "two_way", "packet_size", "burst", "count"}),
    "messages": frozenset(
        {"bind", "count", "peer", "message_size", "message_size_max", "threads", "blocking"}
        | {"relay", "reverse", "backlog", "warm_up_seconds", "sample_every"}
    ),
}
"""Options that only some modes take."""

_LISTEN_SECONDS = 60.0

_PACKET_HEADS = (
    *("peer", "direction", ">MB/s", ">sent", ">received", ">missing", ">success rate"),
    *(">out of order", ">average offset", ">twice", ">delay ms", ">round trip ms"),
)
_MESSAGE_HEADS = (
    *("peer", "direction", ">connections", ">MB/s", ">messages", ">receipts", ">backlog"),
    *(">min ms", ">mean ms", ">50 % ms", ">99 % ms", ">99.9 % ms", ">max ms"),
)


@declared(
    "network",
    "Measure the network between hosts.",
    """
    unloader network listen 10.0.0.2:7077
    unloader network send 10.0.0.2:7077 --rate 100MB --two-way
    unloader network messages --peer 10.0.0.2:7077 --threads 2
    unloader network send db1:7077 db2:7077 --bind db1:7077 --polite
    """,
)
@click.argument("mode", metavar="listen|send|messages")
@click.argument("addresses", metavar="[ADDRESS...]", nargs=-1)
@click.pass_context
def network(
    context: click.Context, /, mode: str, addresses: tuple[str, ...], **values: Any
) -> None:
    """Measure throughput, loss and order of packets between hosts that run this command.

    listen counts what others send to ADDRESS, by default 127.0.0.1:7077, and answers both tests.
    send sends datagrams to each ADDRESS and reports what arrived there. messages sends messages
    over TCP to each --peer, and counts messages that arrive at --bind. Nothing is sent to a host
    that does not answer as a listener. All end after --duration.
    """
    own = given(context)
    if mode not in _OF_MODE:
        raise UsageError("unknown test", f"use {', '.join(_OF_MODE)}")
    for name in sorted((frozenset().union(*_OF_MODE.values()) - _OF_MODE[mode]) & own):
        raise UsageError(f"network {mode} does not take --{name.replace('_', '-')}", "leave it out")
    times = {"duration": 0.1, "interval": 0.1, "wait": 0.0, "warm_up_seconds": 0.0}
    for name, least in times.items():
        value = values[name]
        if value is not None and not least <= value <= 3600:
            raise UsageError(
                f"--{name.replace('_', '-')} is {value:g}",
                f"give a number of seconds from {least:g} to 3600",
            )
    bind, peers = values["bind"], values["peer"]
    if mode == "listen":
        if len(addresses) > 1:
            raise UsageError("network listen takes one address", "start one listener for each")
        bind = addresses[0] if addresses else f"127.0.0.1:{PORT}"
    if mode == "send" and not addresses:
        raise UsageError("network send needs a target", f"write HOST:{PORT}")
    waits = values["wait"]
    if waits is None:
        waits = 10.0 if mode == "send" or peers else _LISTEN_SECONDS
    rate = values["rate"] if mode == "send" or "rate" in own else 0
    settings = replace(
        Settings(**{name: values[name] for name in Settings.__struct_fields__}),
        buffer=min(values["buffer"], 1 << 30),
        wait=waits,
        message_size_max=values["message_size_max"] or values["message_size"],
    )
    datagram_test, message_test = None, None
    if mode != "send":
        # A default of --rate is for datagrams.
        of_messages = replace(settings, rate=rate)
        _check_messages(mode, addresses, bind, peers, of_messages)
        message_test = MessageTest(of_messages, bind, peers)
    if mode != "messages":
        datagram_test = DatagramTest(settings, bind, addresses if mode == "send" else ())
        if mode == "send" and not datagram_test.targets:
            raise UsageError("the only target is this host", "name another host")
    tests = [each for each in (datagram_test, message_test) if each is not None]
    before = dict[tuple[str, str], Counts]()

    def report(flows: Sequence[Flow]) -> None:
        for flow in flows:
            scopes = {"life": flow}
            if isinstance(flow, PacketFlow):
                key = flow.peer, flow.direction
                scopes = {"now": flow.since(before.get(key, Counts())), "life": flow}
                before[key] = flow.counts
            for scope, part in scopes.items():
                write(scope, part)
                if not values["quiet"] and not values["json"]:
                    render.print_aside(f"{scope:5} {_line(part)}")

    if bind is not None and not values["quiet"] and not values["json"]:
        render.print_aside(f"listening on {bind}; the test begins within {waits:g} seconds")
    with stop_on_signals(lambda text: None) as stop, _log(values["log"]) as write:
        flows = watched(tests, report, values["interval"], stop)
        for flow in flows:
            write("test", flow)
    if bind is not None and not flows:
        raise ConfigError(
            f"no host sent anything to {bind} in {waits:g} seconds",
            f"start unloader network send {bind} on the other host in this time",
        )
    mtu = datagram_test.mtu if datagram_test else None
    found = verdict(flows, rate, settings.packet_size, mtu)
    document = {"flows": [each.figures for each in flows], "mtu": mtu, "verdict": found}
    render.answer(values, document, lambda: "\n\n".join((*_tables(flows), found)))
    if failed := [each.error for each in flows if each.error]:
        error = ConfigError("; ".join(dict.fromkeys(failed)), "check that host, and run it again")
        if not values["json"]:
            raise error
        # The flows are the one JSON object of a call, so that an error gets none.
        click.echo(f"unloader: error: {error}", err=True)
        context.exit(error.exit_code)


def _check_messages(
    mode: str, addresses: Sequence[str], bind: str | None, peers: Sequence[str], settings: Settings
) -> None:
    if mode == "messages" and (addresses or not (peers or bind)):
        raise UsageError("network messages needs --peer, --bind or both", "leave the addresses out")
    least, most, rate = settings.message_size, settings.message_size_max, settings.rate
    if not least <= most <= messages.LARGEST:
        raise UsageError(
            "--message-size-max is not in the range",
            f"give a size from --message-size to {messages.LARGEST:,} bytes",
        )
    if rate and mode == "messages" and most > rate * SILENCE_SECONDS:
        raise UsageError(
            f"a message of {most:,} bytes takes over {SILENCE_SECONDS:g} seconds at this rate",
            "raise --rate, or lower --message-size",
        )
    if settings.relay and not (bind and len(peers) == 1):
        raise UsageError("--relay needs --bind and one --peer", "give both")
    if settings.reverse and (settings.relay or not peers):
        raise UsageError("--reverse needs --peer, and excludes --relay", "give --peer")


@contextmanager
def _log(path: str | None) -> Iterator[Callable[[str, Flow], None]]:
    """Yield a function that writes a line of the log, or does nothing without a log."""
    if path is None:
        yield lambda scope, flow: None
        return
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ("time", "scope"), restval="")

            def write(scope: str, flow: Flow) -> None:
                line = {"time": f"{time.time():.3f}", "scope": scope} | flow.figures
                if not set(line) <= set(writer.fieldnames):
                    # Another header follows where a listener serves both tests.
                    writer.fieldnames = tuple(dict.fromkeys((*writer.fieldnames, *line)))
                    writer.writeheader()
                writer.writerow(line)
                file.flush()

            yield write
    except OSError as error:
        raise OutputFailed(
            f"cannot write the log {path}: {error.strerror}", "give another --log"
        ) from error


def _line(flow: Flow) -> str:
    arrow = "to" if flow.direction == "out" else "from"
    text = f"{arrow} {flow.peer}: {megabytes(flow.bytes_per_second or None)} MB/s, "
    if isinstance(flow, MessageFlow):
        return f"{text}{flow.messages:,} messages, {flow.receipts:,} receipts"
    counts, figures = flow.counts, flow.figures
    return (
        f"{text}received {counts.received:,} of {counts.sent:,} packets, {flow.missing:,} missing, "
        f"success rate {figures['success_rate']:.4f}, {counts.out_of_order:,} out of order, "
        f"average offset {figures['average_offset']:.1f}"
    )


def _tables(flows: Sequence[Flow]) -> Iterator[str]:
    """Yield the table of each test."""
    packets = [each for each in flows if isinstance(each, PacketFlow)]
    if packets:
        yield render.table(_PACKET_HEADS, map(_packet_row, packets))
    others = [each for each in flows if isinstance(each, MessageFlow)]
    if others:
        yield render.table(_MESSAGE_HEADS, map(_message_row, others))


def _packet_row(flow: PacketFlow) -> tuple[object, ...]:
    counts, figures = flow.counts, flow.figures
    return (
        *(flow.peer, flow.direction, megabytes(flow.bytes_per_second or None)),
        *(counts.sent, counts.received, flow.missing),
        # A lost packet shows, however many arrived.
        f"{math.floor(figures['success_rate'] * 1e4) / 1e4:.4f}",
        *(counts.out_of_order, f"{figures['average_offset']:.1f}", counts.duplicates),
        *(_ms(figures["delay_seconds"]), _ms(flow.round_trip_seconds)),
    )


def _message_row(flow: MessageFlow) -> tuple[object, ...]:
    times = (flow.minimum, flow.average, flow.p50, flow.p99, flow.p999, flow.maximum)
    return (
        *(flow.peer, flow.direction, flow.connections),
        *(megabytes(flow.bytes_per_second or None), flow.messages, flow.receipts),
        render.size(flow.backlog),
        *(_ms(each or None) for each in times),
    )


def _ms(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1000:.3f}"
