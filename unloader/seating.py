"""Which seats a run gets on this machine, and what to tell the user about them."""

from __future__ import annotations

from dataclasses import dataclass

from numa.affinity import probe_memory_policy, warning_of
from numa.model import Seat, Topology
from numa.placement import place
from numa.topology import detect
from unloader.errors import ConfigError
from unloader.model import SeatOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """The seats of a run."""

    seats: tuple[Seat, ...]
    memory_policy: str
    notice: str | None
    """One line on what this machine cannot give; None if it gives all."""


def machine() -> Topology:
    """Return what this process may use of the machine.

    Raises:
        TopologyError: The kernel's files cannot be read.
    """
    return detect()


def seat_workers(topology: Topology, workers: int, options: SeatOptions) -> Seating:
    """Return one seat a worker.

    Raises:
        ConfigError: `--numa require` on a machine that cannot give it.
        PlacementError: `--numa-nodes` names a node that is not there.
    """
    bind = "none" if options.numa == "off" else options.bind
    seats = place(
        topology,
        workers,
        placement=options.placement,
        bind=bind,
        nodes=options.nodes or None,
    )
    if options.numa == "off":
        return Seating(seats=seats, memory_policy="local", notice=None)
    notice = warning_of(topology, options.memory_policy)
    if options.numa == "require":
        refusal = topology.note or probe_memory_policy()
        if len(topology.nodes) < 2:
            refusal = refusal or "this machine has one NUMA node"
        if refusal:
            raise ConfigError(
                f"--numa require cannot be met: {refusal}",
                "use --numa auto, or run where several nodes and memory policies are available",
            )
    return Seating(seats=seats, memory_policy=options.memory_policy, notice=notice)
