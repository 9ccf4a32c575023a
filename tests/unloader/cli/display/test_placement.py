"""The report's tables of nodes and workers, from the manifest of a run on several nodes."""

from __future__ import annotations

from typing import Any

from numa.model import BindReport, Residence, Seat
from unloader.cli.display.placement import FEW_WORKERS, tables
from unloader.placement.evidence import Evidence, WorkerEvidence, nodes_json, workers_json


def manifest(count: int, nodes: int = 2) -> dict[str, Any]:
    """Return what a manifest tells of so many workers, the last half on memory of another node."""
    workers = tuple(
        WorkerEvidence(
            seat=Seat(worker=at, node=at % nodes, cpus=(at % nodes,), memory_node=at % nodes),
            bound=BindReport(cpus=(at % nodes,), memory_policy="preferred", note=None),
            residence=Residence(
                cpus=(at % nodes,), looks=1, memory=((0, 1000),), file_memory=(), note=None
            ),
        )
        for at in range(count)
    )
    evidence = Evidence(workers=workers, machine_pages={node: {} for node in range(nodes)})
    return {"workers": workers_json(evidence, []), "nodes": nodes_json(evidence, [], 1.0)}


def test_one_node_has_no_table() -> None:
    """On most machines the report stays as short as it was."""
    assert tables(manifest(4, nodes=1)) == ""
    assert tables({"workers": [], "nodes": []}) == ""


def test_few_workers_are_shown_one_by_one() -> None:
    """A line for each node and each worker, with the share of its memory that is local."""
    by_node, by_worker = tables(manifest(4)).split("\n\n")
    assert [line.split() for line in by_node.splitlines()] == [
        ["node", "workers", "rows/s", "MB/s", "least", "local", "memory"],
        ["0", "2", "0", "0.0", "100.0", "%"],
        ["1", "2", "0", "0.0", "0.0", "%"],
    ]
    assert len(by_worker.splitlines()) == 5
    assert by_worker.splitlines()[2].split() == ["1", "1", "1", "1", "0.0", "%", "0", "0"]


def test_many_workers_are_in_the_manifest() -> None:
    """Of more than a few only the nodes are shown."""
    assert len(tables(manifest(FEW_WORKERS)).split("\n\n")) == 2
    assert len(tables(manifest(FEW_WORKERS + 1)).splitlines()) == 3


def test_what_is_not_known_is_a_dash() -> None:
    """A run too short for rates, workers that nobody saw."""
    told = manifest(2)
    for node in told["nodes"]:
        node |= {"rows_per_second": None, "bytes_per_second": None}
    for each in told["workers"]:
        each |= {"local_share": None, "ran_on": []}
    by_node, by_worker = tables(told).split("\n\n")
    assert by_node.splitlines()[1].split() == ["0", "1", "-", "-", "-"]
    assert by_worker.splitlines()[1].split() == ["0", "0", "0", "-", "-", "0", "0"]


def test_all_is_said_of_all_only() -> None:
    """One page elsewhere is not 100.0 %."""
    told = manifest(2)
    told["workers"][0] = replace_share(told["workers"][0], 0.9996)
    assert "99.9 %" in tables(told)
    assert "100.0 %" not in tables(told)


def replace_share(worker: dict[str, Any], share: float) -> dict[str, Any]:
    """Return a worker with another share."""
    return {**worker, "local_share": share}
