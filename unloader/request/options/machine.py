"""Options on where workers sit, and on showing a machine."""

from __future__ import annotations

from functools import partial

from unloader.model import SeatOptions
from unloader.request.options.kinds import NUMBERS, Choice, PathText
from unloader.request.options.option import READING, Option
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
        kind=Choice("auto", "off", "require"),
        field="seats.numa",
        record="numa",
        help="Seat workers on NUMA nodes and bind them, or bind nothing (off), or fail where auto "
        "would do with less (require), as on one node.",
    ),
    _seats(
        name="numa-nodes",
        kind=NUMBERS,
        field="seats.nodes",
        default_text="all",
        record="nodes",
        help="Seat workers on these NUMA nodes only, for instance 0,2-3; all is every node whose "
        "CPUs we may use.",
    ),
    _seats(
        name="placement",
        kind=Choice("spread", "close"),
        field="seats.placement",
        record="placement",
        help="Spread workers evenly over the nodes, by their CPUs, or fill the cores of one node "
        "after the other.",
    ),
    _seats(
        name="bind",
        kind=Choice("none", "node", "core"),
        field="seats.bind",
        record="bind",
        help="Bind each worker to nothing, to all CPUs of its node, or to one core of it.",
    ),
    _seats(
        name="memory-policy",
        kind=Choice("local", "preferred", "bind", "interleave"),
        field="seats.memory_policy",
        record="memory_policy",
        help="Where a worker's memory comes from: its node, and others once that is full "
        "(preferred); its node alone, and once that is full the kernel kills it (bind); all nodes "
        "with CPUs by turns (interleave); wherever it runs (local).",
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
        help="Show another machine by its files: a folder laid out as /sys/devices/system, with "
        "node/ and cpu/ in it, or a file made by --record. Nothing of this machine counts then.",
    ),
    _machine(
        name="allowed-cpus",
        kind=NUMBERS,
        default_text="all",
        help="Only these CPUs, as if a cpuset or taskset allowed no others; for instance "
        "0-7,16-23.",
    ),
    _machine(
        name="record",
        kind=PathText("FILE", only="file"),
        help="Write the files that describe the machine to FILE, as one text to send to somebody; "
        "it holds CPU and node numbers and sizes, and no names.",
    ),
)

OPTIONS = (*SEATS, *MACHINE)
