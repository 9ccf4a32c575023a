"""A machine, and the seats of a number of workers on it. Nothing is started.

The machine is this one, as far as this process may use it, or another one by its recorded files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from numa.kernel_files import cpu_list_text, text_of
from numa.model import Seat, Topology, TopologyError
from numa.recording import lay_out, record
from numa.topology import detect, own_cpus, recorded
from unloader.errors import ConfigError, UsageError
from unloader.model import SeatOptions
from unloader.placement.seating import automatic_parallelism, deal, seat_workers

if TYPE_CHECKING:
    from numa.model import DeviceNode


class Survey(Struct, frozen=True, kw_only=True):
    topology: Topology
    seats: tuple[Seat, ...]
    options: SeatOptions
    """The requested options; with `numa` off nothing is bound."""
    automatic: bool
    """The parallelism is the number of usable CPUs, not one that was asked for."""
    notices: tuple[str, ...]
    """What this machine cannot give, one line each."""
    recorded_at: str | None = None
    """Folder or file that another machine was read from; None = this machine."""
    near: DeviceNode | None = None
    """Where the device is that workers are to be near; None if none was named."""

    @property
    def bind(self) -> str:
        return "none" if self.options.numa == "off" else self.options.bind

    @property
    def memory_policy(self) -> str:
        return "local" if self.options.numa == "off" else self.options.memory_policy

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": to_builtins(self.topology.nodes),
            "seats": to_builtins(self.seats),
            "parallelism": len(self.seats),
            "placement": self.options.placement,
            "bind": self.bind,
            "memory_policy": self.memory_policy,
            "cpu_quota": self.topology.cpu_quota,
            "usable_cpus": self.topology.usable_cpus,
            "offline_cpus": list(self.topology.offline_cpus),
            "note": self.topology.note,
            "notices": list(self.notices),
            "near": to_builtins(self.near),
            "recorded_at": self.recorded_at,
        }


def survey(
    options: SeatOptions,
    *,
    parallelism: int = 0,
    tree: Path | None = None,
    allowed_cpus: frozenset[int] | None = None,
) -> Survey:
    """Return the machine and the seats of its workers, or raise an error as `seat_workers`.

    `parallelism` 0 is the number of usable CPUs. `tree` is a folder laid out as
    /sys/devices/system of another machine, or a file that `recording` made of one; None is this
    machine. `allowed_cpus` None is all CPUs of the tree, or all that this process may use.
    """
    if tree is None:
        ours = own_cpus()
        if allowed_cpus is not None and not allowed_cpus <= ours:
            raise ConfigError(
                f"this process may not use CPUs {cpu_list_text(allowed_cpus - ours)}",
                f"give some of {cpu_list_text(ours)}; to read another machine's files, use --sysfs",
            )
        topology = detect(allowed_cpus=allowed_cpus)
        workers = parallelism or automatic_parallelism(topology, options)
        seating = seat_workers(topology, workers, options)
        seats, notices, near = seating.seats, seating.notices, seating.near
    else:
        if options.near is not None:
            raise UsageError(
                "--near needs the devices of this machine, but --sysfs shows another machine",
                "leave one of the two out",
            )
        with _folder(tree) as folder:
            topology = recorded(folder, allowed_cpus=allowed_cpus)
        if topology.note is not None:
            topology = replace(topology, note=topology.note.replace(str(folder), str(tree)))
        seats = deal(topology, parallelism or automatic_parallelism(topology, options), options)
        notices, near = (topology.note,) if topology.note else (), None
    return Survey(
        topology=topology,
        seats=seats,
        options=options,
        automatic=not parallelism,
        notices=notices,
        recorded_at=None if tree is None else str(tree),
        near=near,
    )


def recording(tree: Path | None = None) -> str:
    """Return the files that describe a machine as one text, which `survey` reads as a tree."""
    if tree is None:
        return record()
    with _folder(tree) as folder:
        return record(folder)


@contextmanager
def _folder(tree: Path) -> Iterator[Path]:
    """Lay out a recorded text in a folder for a while; a folder is one already."""
    if not tree.is_file():
        yield tree
        return
    text = text_of(tree)
    if text is None:
        raise TopologyError(f"cannot read {tree}.", "give a file that --record made.")
    with TemporaryDirectory(prefix="unloader-sysfs-") as name:
        try:
            lay_out(text, Path(name))
            yield Path(name)
        except TopologyError as error:
            raise TopologyError(error.message.replace(name, str(tree)), error.hint) from None
        except OSError as error:
            # Such as a name that the text gives to a file and to a folder.
            raise TopologyError(
                f"{tree} is not a machine recorded by --record: {error.strerror}.",
                "record the machine again.",
            ) from None
