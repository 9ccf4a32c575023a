"""The seats of a run on this machine, and notices about them for the user."""

from __future__ import annotations

import os

from msgspec import Struct
from msgspec.structs import replace

from numa.affinity import losses, policy_is_idle, probe_cpu_binding, probe_memory_policy
from numa.kernel_files import cpu_list_text
from numa.model import DeviceNode, Node, Seat, Topology
from numa.placement import place
from numa.topology import detect
from unloader.errors import ConfigError, UsageError
from unloader.model import Request, SeatOptions


class Seating(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seats: tuple[Seat, ...]
    memory_policy: str
    """What workers are to set."""
    notices: tuple[str, ...] = ()
    """Requests that this machine cannot meet, one line each."""
    near: DeviceNode | None = None
    """Where the device is that workers are to be near; None if none was named or looked at."""


class SeatPlan(Struct, frozen=True, kw_only=True):
    """The machine, the parallelism and the seats of a request: decided once and carried."""

    topology: Topology
    options: SeatOptions
    """As asked for."""
    seating: Seating
    """All the seats that the run may want."""
    missing: tuple[str, ...] = ()
    """What this machine cannot give, one line each."""
    near_note: str | None = None
    """One line on the device that workers are to be near; None if there is nothing to say."""

    @property
    def parallelism(self) -> int:
        return len(self.seating.seats)

    def first(self, workers: int) -> Seating:
        """Return the first seats: fewer workers have the first seats of more workers."""
        seats = self.seating.seats[:workers]
        if self.options.numa == "off":
            return replace(self.seating, seats=seats)
        # Where a policy names nodes: from which other nodes the memory comes.
        borrowed: dict[tuple[str, int], list[int]] = {}
        if self.options.memory_policy in ("preferred", "bind"):
            lenders = {seat.node: seat.memory_node for seat in seats}
            for node in self.topology.nodes:
                lender = lenders.get(node.id)
                if lender is not None and lender != node.id:
                    borrowed.setdefault((_why_no_memory(node), lender), []).append(node.id)
        notices = list(self.missing)
        for (why, lender), nodes in borrowed.items():
            notices.append(
                f"memory for the workers on node {cpu_list_text(nodes)} is taken from node "
                f"{lender}: {why}"
            )
        if self.near_note:
            notices.append(self.near_note)
        return replace(self.seating, seats=seats, notices=tuple(notices))


def seat_request(request: Request, parallelism: int | None = None) -> SeatPlan:
    """Decide how many workers a request may have on this machine, and their seats."""
    topology = detect()
    automatic = automatic_parallelism(topology, request.seats)
    return _seat_plan(topology, most_workers(request, parallelism, automatic), request.seats)


ADAPTIVE_FACTOR = 2
"""Workers for each CPU, so that waits for a source or a disk are filled (a guess)."""


def most_workers(request: Request, parallelism: int | None, automatic: int) -> int:
    """Return how many workers there may be; UsageError if `--max-sessions` leaves none."""
    known = request.concurrency
    asked = parallelism or request.parallelism
    workers = asked or automatic
    if known is None:
        return workers
    is_open = known.adaptive and not asked
    if known.max_sessions is None:
        return workers * ADAPTIVE_FACTOR if is_open else workers
    others = sessions_beside_workers(request)
    room = known.max_sessions - others
    if room < 1:
        raise UsageError(
            f"--max-sessions {known.max_sessions} leaves no session for a worker: the run itself "
            f"needs {others}",
            f"give at least {others + 1}",
        )
    return room if is_open else min(workers, room)


def sessions_beside_workers(request: Request) -> int:
    """Return the number of a run's sessions for itself, its load and its kept snapshot."""
    known = request.concurrency
    loads = known is not None and known.max_db_load is not None
    return 1 + int(loads) + int(request.source.session.keep_snapshot_seconds > 0)


def automatic_parallelism(topology: Topology, options: SeatOptions) -> int:
    """Return the usable CPUs of the requested nodes, at least 1, within the control group's quota.

    Missing nodes are ignored: `seat_workers` names them.
    """
    if options.numa == "off" or not options.nodes:
        return topology.usable_cpus
    chosen = tuple(node for node in topology.nodes if node.id in options.nodes)
    return replace(topology, nodes=chosen).usable_cpus


def seat_workers(topology: Topology, workers: int, options: SeatOptions) -> Seating:
    """Return one seat a worker.

    With `--numa off` nothing is bound, and nodes, device and memory policy are not looked at.
    Raises ConfigError for `--numa require` that cannot be met, or a hard memory policy on a node
    that was asked for and has no memory for us, PlacementError if `--numa-nodes` names a node that
    is not there, and TopologyError if `--near` names a device that is not there.
    """
    return _seat_plan(topology, workers, options).first(workers)


def _seat_plan(topology: Topology, workers: int, options: SeatOptions) -> SeatPlan:
    if options.numa == "off":
        seating = Seating(seats=deal(topology, workers, options), memory_policy="local")
        return SeatPlan(topology=topology, options=options, seating=seating)
    device = None
    if options.near is not None:
        # Imported here: few runs name a device.
        from numa.devices import node_of_device

        device = node_of_device(options.near)
    near = None if device is None else device.node
    near_note = None if device is None else device.note
    if device is not None and near not in {node.id for node in topology.nodes}:
        reason = near_note or "the kernel does not show its node"
        if near is not None:
            reason = f"it is at node {near}, which this process may not use"
        near, near_note = None, f"--near {options.near} prefers no node: {reason}"
    # Whether this is a system on which processes can be bound to CPUs, allowed or not.
    can_bind = hasattr(os, "sched_setaffinity")
    seats = deal(topology, workers, options, near=near, can_bind=can_bind)
    policy = options.memory_policy
    for node in topology.nodes if policy == "bind" and options.bind != "none" else ():
        if node.id in options.nodes and not node.has_memory:
            raise ConfigError(
                f"--memory-policy bind on node {node.id}: {_why_no_memory(node)}",
                "leave the node out of --numa-nodes, or use --memory-policy preferred, which "
                "takes memory from the nearest node with memory",
            )
    if options.numa == "require":
        _check_required(topology, options)
    if policy_is_idle(topology, policy):
        # The kernel's own does the same. So a container of one node whose profile refuses policies
        # is as quiet as any machine of one.
        known = any(node.has_memory for node in topology.nodes)
        policy = policy if known and probe_memory_policy() is None else "local"
    # Such systems do not show nodes either, so only explicit requests need a notice.
    is_plain = not can_bind and options == SeatOptions()
    return SeatPlan(
        topology=topology,
        options=options,
        seating=Seating(seats=seats, memory_policy=policy, near=device),
        missing=() if is_plain else losses(topology, options.memory_policy, options.bind),
        near_note=near_note,
    )


def deal(
    topology: Topology,
    workers: int,
    options: SeatOptions,
    *,
    near: int | None = None,
    can_bind: bool = True,
) -> tuple[Seat, ...]:
    """Return the seats that the options come to on a machine; errors as `seat_workers`."""
    return place(
        topology,
        workers,
        placement=options.placement,
        bind=options.bind if can_bind and options.numa != "off" else "none",
        nodes=None if options.numa == "off" else options.nodes or None,
        near=near,
    )


def _why_no_memory(node: Node) -> str:
    # First, because Linux allows the memory of a node without memory to no process.
    if node.memory_bytes == 0:
        return "it has no memory"
    return (
        "its memory is unknown"
        if node.memory_allowed
        else "the cpuset of this process excludes its memory"
    )


def _check_required(topology: Topology, options: SeatOptions) -> None:
    """Refuse to do with less: workers over several nodes, bound, with the memory policy set."""
    refused = probe_cpu_binding()
    if options.bind == "none":
        problem, remedy = "--bind none does not bind workers", "use --bind node or core"
    elif topology.note is not None:
        problem, remedy = topology.note, "run where the whole machine is visible"
    elif sum(bool(node.cpus) for node in topology.nodes) < 2:
        problem = "this process has only CPUs of one NUMA node"
        remedy = "widen its affinity or cpuset, or run on a machine of several nodes"
    elif refused is not None:
        problem = f"workers cannot be bound to CPUs ({refused})"
        remedy = "allow sched_setaffinity in the container's seccomp profile"
    # Without any policy the kernel does what `local` asks for.
    elif options.memory_policy != "local" and (refused := probe_memory_policy()) is not None:
        problem = f"memory policies cannot be set ({refused})"
        remedy = (
            "allow set_mempolicy in the container (CAP_SYS_NICE, or its seccomp profile), use "
            "--memory-policy local"
        )
    else:
        return
    raise ConfigError(
        f"--numa require is not possible: {problem}",
        f"{remedy}, or use --numa auto, which uses the available nodes",
    )
