"""`unloader network`: measures the network between hosts."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from msgspec.structs import asdict

from unloader.cli.display import render
from unloader.cli.display.render import megabytes
from unloader.cli.options.command import declared, given
from unloader.cli.signals import stop_on_signals
from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.tuning.network import datagrams, messages
from unloader.tuning.network.datagrams import DatagramTest, Flow, Settings
from unloader.tuning.network.messages import MessageFlow, MessageSettings, MessageTest
from unloader.tuning.network.packets import PORT, parse_address

_SENDING = frozenset({"bind", "polite", "two_way", "packet_size", "burst", "count"})
_MESSAGES = frozenset(
    {"peer", "message_size", "message_size_max", "threads", "blocking", "relay", "backlog"}
    | {"warm_up_seconds", "sample_every"}
)
_OF_MODE = {"listen": frozenset[str](), "send": _SENDING, "messages": _MESSAGES | {"bind", "count"}}
"""Options that only some modes take."""

_LISTEN_SECONDS = 60.0


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

    listen counts what others send to ADDRESS, by default 127.0.0.1:7077. send sends datagrams to
    each ADDRESS and reports what arrived there. Nothing is sent to a host that does not answer as
    a listener. messages sends messages over TCP to each --peer, and counts messages that arrive at
    --bind. All end after --duration.
    """
    own = given(context)
    if mode not in _OF_MODE:
        raise UsageError("unknown test", f"use {', '.join(_OF_MODE)}")
    every = frozenset().union(*_OF_MODE.values())
    for name in sorted((every - _OF_MODE[mode]) & own):
        raise UsageError(f"network {mode} does not take --{name.replace('_', '-')}", "leave it out")
    for name, least in (("duration", 0.1), ("interval", 0.1), ("wait", 0.0)):
        value = values[name]
        if value is not None and not least <= value <= 3600:
            raise UsageError(
                f"--{name} is {value:g}", f"give a number of seconds from {least:g} to 3600"
            )
    if mode == "listen" and len(addresses) > 1:
        raise UsageError("network listen takes one address", "start one listener for each")
    if mode == "messages":
        _message_test(addresses, values, rate=values["rate"] if "rate" in own else 0)
        return
    if mode == "send" and not addresses:
        raise UsageError("network send needs a target", f"write HOST:{PORT}")
    for text in addresses:
        parse_address(text)
    settings = Settings(
        rate=values["rate"],
        seconds=values["duration"],
        packet_size=values["packet_size"],
        burst=values["burst"],
        count=values["count"],
        buffer=min(values["buffer"], 1 << 30),
        wait_seconds=10.0 if values["wait"] is None else values["wait"],
        polite=values["polite"],
        two_way=values["two_way"],
    )
    _datagrams(mode, addresses, settings, values)


def _message_test(addresses: Sequence[str], values: dict[str, Any], *, rate: int) -> None:
    peers, bind, least = values["peer"], values["bind"], values["message_size"]
    most = values["message_size_max"] or least
    if addresses or not (peers or bind):
        raise UsageError("network messages needs --peer, --bind or both", "leave the addresses out")
    if not least <= most <= messages.LARGEST:
        raise UsageError(
            "--message-size-max is not in the range",
            f"give a size from --message-size to {messages.LARGEST:,} bytes",
        )
    if values["relay"] and not (bind and len(peers) == 1):
        raise UsageError("--relay needs --bind and one --peer", "give both")
    for text in (*peers, *([bind] if bind else ())):
        parse_address(text)
    settings = MessageSettings(
        least=least,
        most=most,
        threads=values["threads"],
        rate=rate,
        seconds=values["duration"],
        warm_up=values["warm_up_seconds"],
        count=values["count"],
        backlog=values["backlog"],
        sample_every=values["sample_every"],
        blocking=values["blocking"],
        relay=values["relay"],
        wait_seconds=values["wait"] or (10.0 if peers else _LISTEN_SECONDS),
    )
    with _stopping() as stop, _log(values["log"]) as write:

        def report(flows: list[MessageFlow]) -> None:
            for flow in flows:
                write("life", _message_figures(flow))
                if not values["quiet"] and not values["json"]:
                    arrow = "to" if flow.direction == "out" else "from"
                    speed = megabytes(flow.bytes_per_second or None)
                    render.print_aside(f"{arrow} {flow.peer}: {speed} MB/s")

        flows = MessageTest(settings, bind=bind or "", peers=peers).run(
            report, values["interval"], stop
        )
        for flow in flows:
            write("test", _message_figures(flow))
    if not flows:
        raise ConfigError(
            f"no host sent a message to {bind}", "start unloader network messages on the other host"
        )
    found = [_message_figures(each) for each in flows]
    render.answer(values, {"test": "messages", "flows": found}, lambda: _message_table(flows))
    _raise_failed(error for each in flows for error in each.errors)


def _message_figures(flow: MessageFlow) -> dict[str, Any]:
    rates = {"bytes_per_second": round(flow.bytes_per_second)}
    return asdict(flow) | rates | {"errors": list(flow.errors)}


def _message_table(flows: Sequence[MessageFlow]) -> str:
    heads = (
        *("peer", "direction", ">connections", ">MB/s", ">messages", ">receipts", ">backlog"),
        *(">min ms", ">mean ms", ">50 % ms", ">99 % ms", ">99.9 % ms", ">max ms"),
    )
    return render.table(
        heads,
        (
            (
                *(each.peer, each.direction, each.connections),
                *(megabytes(each.bytes_per_second or None), each.messages, each.receipts),
                render.size(each.backlog),
                *(
                    _ms(value or None)
                    for value in (each.minimum, each.average, each.p50, each.p99, each.p999)
                ),
                _ms(each.maximum or None),
            )
            for each in flows
        ),
    )


def _datagrams(
    mode: str, addresses: Sequence[str], settings: Settings, values: dict[str, Any]
) -> None:
    listens = mode == "listen"
    bind = (addresses[0] if addresses else f"127.0.0.1:{PORT}") if listens else values["bind"]
    waits = _LISTEN_SECONDS if listens and values["wait"] is None else settings.wait_seconds
    with _stopping() as stop, _log(values["log"]) as write:
        test = DatagramTest(
            settings, bind=bind or "", targets=() if listens else addresses, waits=waits
        )
        if not listens and not test.targets:
            test.close()
            raise UsageError("the only target is this host", "name another host")
        mtu = None
        before = dict[tuple[str, str], Flow]()

        def report(flows: list[Flow]) -> None:
            nonlocal mtu
            mtu = min((m for each in test.receivers if (m := each.wire.mtu)), default=mtu)
            for flow in flows:
                key = (flow.peer, flow.direction)
                now = flow.since(before.get(key, Flow(peer=flow.peer, direction=flow.direction)))
                before[key] = flow
                for scope, figures in (("now", now), ("life", flow)):
                    write(scope, _figures(figures))
                if not values["quiet"] and not values["json"]:
                    render.print_aside(f"now   {_line(now)}\nlife  {_line(flow)}")

        flows = test.run(report, values["interval"], stop)
        for flow in flows:
            write("test", _figures(flow))
    if listens and not any(each.received for each in flows):
        raise ConfigError(
            f"no host sent anything to {bind} in {waits:g} seconds",
            f"start unloader network send {bind} on the other host in this time",
        )
    found = datagrams.verdict(flows, settings, mtu)
    reported = [_figures(each) for each in flows]
    document = {"test": "datagrams", "flows": reported, "mtu": mtu, "verdict": found}
    render.answer(values, document, lambda: f"{_flow_table(flows)}\n\n{found}")
    _raise_failed(each.error for each in flows)


def _raise_failed(errors: Iterable[str | None]) -> None:
    failed = [each for each in errors if each]
    if failed:
        raise ConfigError("; ".join(dict.fromkeys(failed)), "check that host, and run it again")


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    with stop_on_signals(lambda text: None) as stop:
        yield stop


@contextmanager
def _log(path: str | None) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Yield a function that writes a line of the log, or does nothing without a log."""
    if path is None:
        yield lambda scope, figures: None
        return
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)

            def write(scope: str, figures: dict[str, Any]) -> None:
                if not file.tell():
                    writer.writerow(("time", "scope", *figures))
                writer.writerow((f"{time.time():.3f}", scope, *figures.values()))
                file.flush()

            yield write
    except OSError as error:
        raise OutputFailed(
            f"cannot write the log {path}: {error.strerror}", "give another --log"
        ) from error


def _figures(flow: Flow) -> dict[str, Any]:
    """Return a flow with its rates, as JSON and the log have it."""
    rates = {
        "bytes_per_second": round(flow.bytes_per_second),
        "success_rate": round(flow.success_rate, 6),
        "average_offset": round(flow.average_offset, 3),
    }
    return asdict(flow) | rates


def _line(flow: Flow) -> str:
    arrow = "to" if flow.direction == "out" else "from"
    return (
        f"{arrow} {flow.peer}: {megabytes(flow.bytes_per_second or None)} MB/s, received "
        f"{flow.received:,} of {flow.sent:,} packets, {flow.missing:,} missing, success rate "
        f"{flow.success_rate:.4f}, {flow.out_of_order:,} out of order, average offset "
        f"{flow.average_offset:.1f}"
    )


def _flow_table(flows: Sequence[Flow]) -> str:
    heads = (
        *("peer", "direction", ">MB/s", ">sent", ">received", ">missing", ">success rate"),
        *(">out of order", ">average offset", ">twice", ">delay ms", ">round trip ms"),
    )
    return render.table(
        heads,
        (
            (
                *(each.peer, each.direction, megabytes(each.bytes_per_second or None)),
                *(each.sent, each.received, each.missing, _share(each)),
                *(each.out_of_order, f"{each.average_offset:.1f}", each.duplicates),
                *(_ms(each.delay_seconds), _ms(each.round_trip_seconds)),
            )
            for each in flows
        ),
    )


def _share(flow: Flow) -> str:
    # A lost packet shows, however many arrived.
    return f"{math.floor(flow.success_rate * 1e4) / 1e4:.4f}"


def _ms(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1000:.3f}"
