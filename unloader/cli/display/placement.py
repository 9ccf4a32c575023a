"""Where the workers of a run were, for its report: nothing to tell on a machine of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.cli.display import columns, render

if TYPE_CHECKING:
    from unloader.placement.evidence import NodeRecord, WorkerRecord

FEW_WORKERS = 8
"""So many are shown one by one; of more, the manifest tells."""


def tables(nodes: Sequence[NodeRecord], workers: Sequence[WorkerRecord]) -> str:
    """Return a table of the nodes, and one of the workers if they are few; "" on one node."""
    if len(nodes) < 2:
        return ""
    shown = [_of_nodes(nodes, workers)]
    if len(workers) <= FEW_WORKERS:
        shown.append(_of_workers(workers))
    return "\n\n".join(shown)


def _of_nodes(nodes: Sequence[NodeRecord], workers: Sequence[WorkerRecord]) -> str:
    heads = (">node", ">workers", ">rows/s", ">MB/s", ">least local memory")
    rows = []
    for node in nodes:
        mine = [each for each in workers if each.seat.node == node.node]
        shares = [each.local_share for each in mine if each.local_share is not None]
        speed = node.bytes_per_second
        rows.append(
            (
                str(node.node),
                str(node.workers),
                render.count(node.rows_per_second),
                render.UNKNOWN if speed is None else f"{speed / 1e6:,.1f}",
                _percent(min(shares, default=None)),
            )
        )
    return render.table(heads, rows)


def _of_workers(workers: Sequence[WorkerRecord]) -> str:
    places = (">worker", ">node", "seat's CPUs", "ran on CPUs", ">local memory")
    rows = (
        (
            str(each.worker),
            str(each.seat.node),
            columns.ranges(each.seat.cpus) or render.UNKNOWN,
            columns.ranges(each.ran_on) or render.UNKNOWN,
            _percent(each.local_share),
            render.count(each.rows),
            str(each.restarts),
        )
        for each in workers
    )
    return render.table((*places, ">rows", ">restarts"), rows)


def _percent(share: float | None) -> str:
    # Rounded down: 100.0 % is said of nothing but all.
    return render.UNKNOWN if share is None else f"{int(share * 1000) / 10:.1f} %"
