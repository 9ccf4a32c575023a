"""What every run in a guest is held to: by its own account, and by what an observer saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vm_machine import Ended

UNITS = ("--unit-bytes", "2MiB")
"""Options that cut the table into about thirty units, for any parallelism."""

LOCAL_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker is to be."""

    node: int
    cpus: str
    """As the kernel lists them, `0-2`."""
    memory_node: int


def check_finished(ended: Ended, expected: dict[str, bytes]) -> None:
    """Check that the run ended well with the very files that a run on the host has."""
    assert ended.status == 0, ended.stderr
    assert ended.manifest["status"] == "complete"
    assert files_of(ended.folder) == expected


def check_seats(ended: Ended, places: tuple[Place, ...]) -> None:
    """Check that each worker has its seat, was bound to its CPUs and ran only there."""
    told = {each["worker"]: each for each in ended.manifest["workers"]}
    assert sorted(told) == list(range(len(places)))
    assert [each.worker for each in ended.seen] == sorted(told), "one process a worker"
    for seen, place in zip(ended.seen, places, strict=True):
        seat, cpus = told[seen.worker]["seat"], _numbers(place.cpus)
        assert (seat["node"], seat["cpus"]) == (place.node, sorted(cpus))
        assert seat["memory_node"] == place.memory_node
        assert seen.allowed == (place.cpus,)
        assert seen.ran_on <= cpus
        assert set(told[seen.worker]["ran_on"]) <= cpus


def check_policy(ended: Ended, places: tuple[Place, ...], policy: str | None) -> None:
    """Check the memory policy of each worker; None = it is without one, and the run reports it."""
    kernel = {"preferred": "prefer", "bind": "bind"}
    for told, seen, place in zip(ended.manifest["workers"], ended.seen, places, strict=True):
        named = "default" if policy is None else f"{kernel[policy]}:{place.memory_node}"
        assert told["seat"]["memory_policy"] == policy
        assert seen.policies == {named}, seen


def check_local(ended: Ended, places: tuple[Place, ...]) -> None:
    """Check that nearly all of each worker's memory is where it is to be."""
    workers = ended.manifest["workers"]
    for told, seen, place in zip(workers, ended.seen, places, strict=True):
        assert seen.local_share(place.memory_node) >= LOCAL_SHARE, seen
        assert told["local_share"] >= LOCAL_SHARE, told
    assert sum(told["units"] for told in workers) == len(ended.manifest["units"])


def files_of(folder: Path) -> dict[str, bytes]:
    """Return name and content of the data files of a run."""
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


def _numbers(cpus: str) -> set[int]:
    ends = (part.split("-") for part in cpus.split(","))
    return {cpu for each in ends for cpu in range(int(each[0]), int(each[-1]) + 1)}
