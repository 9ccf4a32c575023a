"""Options on the placement of workers, and on showing a machine."""

from __future__ import annotations

from functools import partial

from unloader.model import SeatOptions
from unloader.request.options.kinds import NUMBERS, Choice, PathText
from unloader.request.options.option import ONE_VALUE, READING, Option
from unloader.request.options.running import SEATS_PARALLELISM

_seats = partial(
    Option,
    section="Placement",
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
        help=(
            "auto places workers on NUMA nodes and binds them as far as the system allows. off "
            "binds nothing. require is like auto, but the run fails if there is only one node or "
            "if workers cannot be bound."
        ),
        example="off",
    ),
    _seats(
        name="numa-nodes",
        kind=NUMBERS,
        field="seats.nodes",
        default_text="all",
        record="nodes",
        help=(
            "Place workers only on these NUMA nodes, such as 0,2-3. all is every node with usable "
            "CPUs."
        ),
        example="0,1",
    ),
    _seats(
        name="placement",
        commands=(*ONE_VALUE, "topology"),
        kind=Choice("spread", "close"),
        field="seats.placement",
        record="placement",
        help=(
            "Spread workers over the nodes in proportion to their CPUs (spread), or fill the cores "
            "of one node after another (close)."
        ),
        example="close",
    ),
    _seats(
        name="bind",
        kind=Choice("none", "node", "core"),
        field="seats.bind",
        record="bind",
        help=(
            "Bind each worker to nothing (none), to all CPUs of its node (node), or to one core of "
            "it (core)."
        ),
        example="core",
    ),
    _seats(
        name="memory-policy",
        kind=Choice("local", "preferred", "bind", "interleave"),
        field="seats.memory_policy",
        record="memory_policy",
        help=(
            "Nodes from which a worker gets its memory. local: the node on which it runs. "
            "preferred: its own node, and other nodes when its own node is full. bind: only its "
            "own node; the kernel kills the worker when this node is full. interleave: all nodes "
            "with CPUs in turn."
        ),
        example="preferred",
    ),
    _seats(
        name="near",
        kind=PathText("DEVICE"),
        field="seats.near",
        shape=_device,
        record="near",
        help=(
            "Prefer the NUMA node of this network interface, disk or path, such as eth0, nvme0n1 "
            "or /extract."
        ),
        example="eth0",
    ),
)

MACHINE = (
    _machine(
        name="sysfs",
        kind=PathText("DIR|FILE"),
        help=(
            "Show another machine from its files. DIR has the layout of /sys/devices/system, with "
            "node/ and cpu/ in it. FILE was written by --record. This machine is ignored."
        ),
    ),
    _machine(
        name="allowed-cpus",
        kind=NUMBERS,
        default_text="all",
        help="Use only these CPUs, as if a cpuset or taskset had set them, such as 0-7,16-23.",
    ),
    _machine(
        name="record",
        kind=PathText("FILE", only="file"),
        help=(
            "Write a description of this machine to FILE, as one text file to send. It holds "
            "numbers of CPUs and nodes, and sizes. It holds no names."
        ),
        example="machine.txt",
    ),
)

OPTIONS = (*SEATS, *MACHINE)
