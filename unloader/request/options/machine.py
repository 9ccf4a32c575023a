"""Options on where workers sit, and on showing a machine."""

from __future__ import annotations

from functools import partial

from unloader.model import SeatOptions
from unloader.request.options.kinds import NUMBERS, Choice, PathText
from unloader.request.options.option import ONE_VALUE, READING, Option
from unloader.request.options.running import SEATS_PARALLELISM

_seats = partial(
    Option,
    section="Seats on the machine",
    commands=(*READING, "topology"),
    effect="none",
    owner=SeatOptions,
)
_machine = partial(Option, section="Machine", commands=("topology",), effect="unrecorded")


def _device(name: str) -> str | None:
    return name or None


SEATS = (
    SEATS_PARALLELISM,
    _seats(
        name="numa",
        commands=(*ONE_VALUE, "topology"),
        kind=Choice("auto", "off", "require"),
        field="seats.numa",
        record="numa",
        help="Place workers on NUMA nodes and bind them (auto), bind nothing (off), or fail where"
        " auto would bind less, for instance on a machine with one node (require).",
    ),
    _seats(
        name="numa-nodes",
        kind=NUMBERS,
        field="seats.nodes",
        default_text="all",
        record="nodes",
        help="Place workers on these NUMA nodes only, for instance 0,2-3; all is every node with "
        "usable CPUs.",
    ),
    _seats(
        name="placement",
        commands=(*ONE_VALUE, "topology"),
        kind=Choice("spread", "close"),
        field="seats.placement",
        record="placement",
        help="Spread workers over the nodes in proportion to their CPUs (spread), or fill the "
        "cores of one node after the other (close).",
    ),
    _seats(
        name="bind",
        kind=Choice("none", "node", "core"),
        field="seats.bind",
        record="bind",
        help="Bind each worker to nothing (none), to all CPUs of its node (node), or to one core "
        "of it (core).",
    ),
    _seats(
        name="memory-policy",
        kind=Choice("local", "preferred", "bind", "interleave"),
        field="seats.memory_policy",
        record="memory_policy",
        help="Memory policy of a worker: its own node, then other nodes once that is full "
        "(preferred); its own node only, where the kernel kills the worker once that is full"
        " (bind); all nodes with CPUs in turn (interleave); the node it runs on (local).",
    ),
    _seats(
        name="near",
        kind=PathText("DEVICE"),
        field="seats.near",
        shape=_device,
        record="near",
        help="Prefer the NUMA node of this network interface, disk or path; for instance eth0, "
        "nvme0n1, /extract.",
    ),
)

MACHINE = (
    _machine(
        name="sysfs",
        kind=PathText("DIR|FILE"),
        help="Show another machine from its files: a directory laid out as /sys/devices/system, "
        "with node/ and cpu/ in it, or a file made by --record. This machine is ignored "
        "then.",
    ),
    _machine(
        name="allowed-cpus",
        kind=NUMBERS,
        default_text="all",
        help="Use these CPUs only, as if a cpuset or taskset allowed no others; for instance "
        "0-7,16-23.",
    ),
    _machine(
        name="record",
        kind=PathText("FILE", only="file"),
        help="Write a description of this machine to FILE, as one text file to send. It holds CPU"
        " and node numbers and sizes, and no names.",
    ),
)

OPTIONS = (*SEATS, *MACHINE)
