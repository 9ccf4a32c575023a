"""The report's tables of nodes and workers, from the manifest of a run on several nodes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from numa.model import BindReport, Residence, Seat
from unloader.cli.display.summary import FEW_WORKERS, placement_tables
from unloader.placement.evidence import Evidence, WorkerEvidence, node_records, worker_records


def shown(count: int, nodes: int = 2, **unknown: Any) -> str:
    """Return the tables of `count` workers, the last half on memory of another node.

    Args:
        count: Number of workers.
        nodes: Number of nodes.
        unknown: Unknown fields of nodes and workers, with their values.
    """
    workers = tuple(
        WorkerEvidence(
            seat=Seat(worker=at, node=at % nodes, cpus=(at % nodes,), memory_node=at % nodes),
            bound=BindReport(cpus=(at % nodes,), memory_policy="preferred", note=None),
            residence=Residence(cpus=(at % nodes,), memory=((0, 1000),), file_memory=(), note=None),
        )
        for at in range(count)
    )
    evidence = Evidence(workers=workers, machine_pages={node: {} for node in range(nodes)})

    def without(found: tuple[Any, ...]) -> list[Any]:
        own = {key: value for key, value in unknown.items() if hasattr(found[0], key)}
        return [replace(each, **own) for each in found]

    return placement_tables(
        without(node_records(evidence, [], 1.0)), without(worker_records(evidence, []))
    )


def test_one_node_has_no_table() -> None:
    """On most machines the report stays as short as it was."""
    assert shown(4, nodes=1) == ""
    assert placement_tables([], []) == ""


def test_few_workers_are_shown_one_by_one() -> None:
    """A line for each node and each worker, with the share of its memory that is local."""
    by_node, by_worker = shown(4).split("\n\n")
    assert [line.split() for line in by_node.splitlines()] == [
        ["node", "workers", "rows/s", "MB/s", "least", "local", "memory"],
        ["0", "2", "0", "0.0", "100.0", "%"],
        ["1", "2", "0", "0.0", "0.0", "%"],
    ]
    assert len(by_worker.splitlines()) == 5
    assert by_worker.splitlines()[2].split() == ["1", "1", "1", "1", "0.0", "%", "0", "0"]


def test_many_workers_are_in_the_manifest() -> None:
    """Of more than a few only the nodes are shown."""
    assert len(shown(FEW_WORKERS).split("\n\n")) == 2
    assert len(shown(FEW_WORKERS + 1).splitlines()) == 3


def test_what_is_not_known_is_a_dash() -> None:
    """A run too short for rates, and workers that were not observed."""
    unknown = {"rows_per_second": None, "bytes_per_second": None, "local_share": None, "ran_on": []}
    by_node, by_worker = shown(2, **unknown).split("\n\n")
    assert by_node.splitlines()[1].split() == ["0", "1", "-", "-", "-"]
    assert by_worker.splitlines()[1].split() == ["0", "0", "0", "-", "-", "0", "0"]


def test_all_is_said_of_all_only() -> None:
    """One page elsewhere is not 100.0 %."""
    text = shown(2, local_share=0.9996)
    assert "99.9 %" in text
    assert "100.0 %" not in text
