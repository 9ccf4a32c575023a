"""`unloader topology`: the NUMA nodes of a machine, and the seats that workers would get."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display import render, seats
from unloader.cli.display.render import folded_facts, legend, ranges, terminal_width
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import seats_of
from unloader.cli.options.rules import seats_out_of_place
from unloader.errors import OutputFailed, UsageError
from unloader.nouns import counted

if TYPE_CHECKING:
    from numa.model import Topology
    from unloader.placement.survey import Survey


@click.command(
    "topology",
    cls=JobCommand,
    short_help="Show NUMA nodes, and the placement of workers on them.",
    epilog="""\b
    Examples:
      unloader topology
      unloader topology --parallelism 12 --placement close
      unloader topology --sysfs /tmp/db01/system --allowed-cpus 0-31 --json
    """,
)
@declared_options("topology")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> None:
    """Draw the NUMA nodes, their CPUs, memory and distances, and the seats of the workers.

    The command takes the placement options of run and reads the same limits of the machine:
    affinity, cpusets, quotas. With --parallelism auto, the number of workers is the number of CPUs
    that can be used in parallel.
    """

    for error in seats_out_of_place(values, given(context)):
        raise error
    tree = _path(values, "sysfs")
    record = _path(values, "record")
    found = api.topology(
        seats_of(_applicable(values, given(context))),
        parallelism=values["parallelism"],
        tree=tree,
        allowed_cpus=frozenset(values["allowed_cpus"] or ()) or None,
    )
    if record is not None:
        _save(record, api.recorded_machine(tree))
    if values["json"]:
        render.emit_json(found.to_json())
    elif not values["quiet"]:
        render.emit(_shown(found, terminal_width()))
        for notice in found.notices:
            click.echo(f"unloader: notice: {notice}", err=True)


def _applicable(values: dict[str, Any], asked: frozenset[str]) -> dict[str, Any]:
    """Return the options; a variable that describes this machine is dropped if another is shown."""
    if values["sysfs"] and "near" not in asked:
        return {**values, "near": None}
    return values


def _path(values: dict[str, Any], option: str) -> Path | None:
    """Return the path of an option; an empty one is a script's unset variable, and no default."""
    if values[option] == "":
        raise UsageError(f"--{option} is empty", "name a path, or leave the option out")
    return Path(values[option]) if values[option] is not None else None


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise OutputFailed(
            f"the machine cannot be recorded in {path}: {error.strerror}", "give another --record"
        ) from error


def _shown(found: Survey, width: int) -> str:
    parts = (
        folded_facts(_facts(found), width),
        seats.node_table(found.topology, found.seats, width),
        seats.distances(found.topology, width),
        seats.seat_table(found.topology, found.seats, found.memory_policy, width),
    )
    return "\n\n".join(part for part in (*parts, legend("\n".join(parts[1:]))) if part)


def _facts(found: Survey) -> list[tuple[str, str]]:
    topology = found.topology
    pairs = [
        ("machine", found.recorded_at or "this one, limited to the CPUs of this process"),
        ("nodes", _nodes(topology)),
        ("CPUs", _cpus(topology)),
        ("memory", _memory(topology)),
        ("workers", _workers(found)),
    ]
    if topology.cpu_quota is not None:
        quota = f"the time of {topology.cpu_quota:g} CPUs, by the control group"
        pairs.insert(3, ("quota", quota))
    if found.near is not None:
        pairs.append(("near", _near(found)))
    return pairs


def _nodes(topology: Topology) -> str:
    count = len(topology.nodes)
    sockets = {node.package for node in topology.nodes if node.cpus}
    bare = sum(not node.cpus for node in topology.nodes)
    text = render.count(count)
    if None not in sockets:
        text += f" in {counted(len(sockets), 'socket')}"
    if bare:
        text += f"; {bare:,} without usable CPUs"
    return text


def _cpus(topology: Topology) -> str:
    count = sum(len(node.cpus) for node in topology.nodes)
    denied = sum(len(node.cpus_denied) for node in topology.nodes)
    cores = seats.cores_by_threads(topology.nodes).items()
    shapes = (f"{counted(each, 'core')} x {counted(threads, 'thread')}" for threads, each in cores)
    parts = [f"{count:,} ({' + '.join(shapes)})"]
    speeds = {speed for node in topology.nodes for speed in node.speeds}
    parts += [f"cores of {len(speeds)} speeds"] if len(speeds) > 1 else []
    parts += [f"{denied:,} more not usable"] if denied else []
    parts += [f"off: {ranges(topology.offline_cpus)}"] if topology.offline_cpus else []
    return "; ".join(parts)


def _memory(topology: Topology) -> str:
    sizes = [node.memory_bytes for node in topology.nodes if node.memory_allowed]
    known = [size for size in sizes if size is not None]
    return render.size(sum(known)) if known and len(known) == len(sizes) else render.UNKNOWN


def _workers(found: Survey) -> str:
    count = f"{len(found.seats):,}" + (" (auto)" if found.automatic else "")
    usable = found.topology.usable_cpus
    more = f", on {usable:,} usable CPUs" if len(found.seats) > usable else ""
    return (
        f"{count}{more}; placement {found.options.placement}, bind {found.bind}, "
        f"memory {found.memory_policy}"
    )


def _near(found: Survey) -> str:
    assert found.near is not None
    device = found.near
    what = "network interface" if device.kind == "network" else "disk"
    if device.node is None:
        return device.note or f"unknown node of {device.name}"
    note = f"; {device.note}" if device.note else ""
    return f"node {device.node}, of the {what} {device.name}{note}"
