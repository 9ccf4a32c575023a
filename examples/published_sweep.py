#!/usr/bin/env python3
"""A published sweep, re-enacted: what even seats and finer cuts would have given.

The record is another unloader's: a table of 10,000,000,000 rows (1,542 GiB of CSV) in 32 hash
partitions of about 312,500,000 rows each, at ten parallelisms on 2 sockets x 8 cores x 2 threads.
Below full parallelism all its load fell on one NUMA node until that was full, and a partition was
always read by one worker. 28 workers were slower than 24, and 12 slower than 8.

Nothing is unloaded here. The planner plans that table, the seats are dealt for that machine, and
the plan is played through on a MODEL of it, which has three figures, each taken from the record:

- a core with one worker gives 29,695 kB/s: at 8 workers 237,562 kB/s, a core each;
- a core with two gives 32,085 kB/s for both: at 16 workers 256,679 kB/s, one node's 8 cores full;
- the machine gives no more than 462,202 kB/s, its best: 91 % of what its disks write.

The workers of a node share what its cores give, and free cores are taken before second threads. The
model knows no turbo clock, which made the record's 2 and 4 workers faster than it says.

Four runs are shown for each parallelism. "one node, whole" is the fault of the record, there to see
how well the model follows the published seconds. "even, whole" changes only the seats; "even, cut"
lets the planner cut the partitions, too; "4 nodes, cut" is that on sockets split in two (sub-NUMA
clusters). "cut, alike" is the plan's makespan on workers that are all alike and do not share cores,
as the planner's own simulation has it: 1 is the time of a whole partition.

    python examples/published_sweep.py [--json] [--every]
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from published_timeline import Speeds, Turn, timeline

from numa.model import Node, Topology
from numa.placement import place
from partition_planner.costs import simulate
from partition_planner.model import PartitionInfo, PlanLimits, RowExtent, TableInfo
from partition_planner.planner import plan

RECORD = {
    2: (23760, 68041),
    3: (18380, 87956),
    4: (12841, 125898),
    8: (6805, 237562),
    12: (7158, 225840),
    16: (6298, 256679),
    20: (5260, 307323),
    24: (4463, 362178),
    28: (4740, 341032),
    32: (3497, 462202),
}
"""Parallelism to seconds and kB/s (kB = 1,024 bytes) as published."""

CORES = 16
MOST_WORKERS = 64

ONE_WORKER = RECORD[8][1] / 8
TWO_WORKERS = RECORD[16][1] / 8
MACHINE = RECORD[32][1]

PARTITIONS = 32
ROWS_EACH = 312_500_000
# The published rate times the published time; the article rounds it to 1,542 GiB.
KILOBYTES_EACH = RECORD[32][0] * RECORD[32][1] // PARTITIONS


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run the sweep."""

    name: str
    nodes: int
    split: str
    even: bool
    """False: busy workers are on the first node until it is full."""


WAYS = (
    Way(name="one node, whole", nodes=2, split="partition", even=False),
    Way(name="even, whole", nodes=2, split="partition", even=True),
    Way(name="even, cut", nodes=2, split="auto", even=True),
    Way(name="4 nodes, cut", nodes=4, split="auto", even=True),
)


def machine(nodes: int) -> Topology:
    """Return the machine as `nodes` nodes of 2 sockets; second threads are CPUs 16 to 31."""
    each = CORES // nodes
    made: list[Node] = []
    for node in range(nodes):
        cores = tuple((core, core + CORES) for core in range(node * each, (node + 1) * each))
        made.append(
            Node(
                id=node,
                cpus=tuple(sorted(cpu for core in cores for cpu in core)),
                memory_bytes=(64 << 30) // nodes,
                cores=cores,
                package=node * 2 // nodes,
            )
        )
    return Topology(nodes=tuple(made), cpu_quota=None, note=None)


def table() -> TableInfo:
    """Return the table of the record, each row an address."""
    parts = tuple(
        PartitionInfo(
            name=f"P{at + 1:02d}",
            relation=None,
            position=at,
            rows=ROWS_EACH,
            bytes=KILOBYTES_EACH * 1024,
            extents=(RowExtent(first=at * ROWS_EACH, last=(at + 1) * ROWS_EACH),),
        )
        for at in range(PARTITIONS)
    )
    return TableInfo(
        schema=None,
        name="HASH_PART_0160",
        columns=(),
        partitions=parts,
        named_partitions=True,
        row_ranges=True,
    )


def node_speed(workers: int, cores: int) -> float:
    """Return the kB/s of a node with this number of busy workers."""
    doubled = min(max(workers - cores, 0), cores)
    return (min(workers, cores) - doubled) * ONE_WORKER + doubled * TWO_WORKERS


def speeds(nodes: int, node_of: Callable[[int, int], int]) -> Speeds:
    """Return the bytes/s of busy workers.

    Args:
        nodes: Number of nodes.
        node_of: From a worker and its place among the busy ones to its node.
    """
    cores = CORES // nodes

    def asked(busy: tuple[int, ...]) -> Sequence[float]:
        places = [node_of(worker, at) for at, worker in enumerate(busy)]
        crowd = Counter(places)
        given = {node: node_speed(workers, cores) for node, workers in crowd.items()}
        granted = min(1.0, MACHINE / sum(given.values()))
        return [granted * 1024 * given[node] / crowd[node] for node in places]

    return asked


def busy_seconds(turns: Sequence[Turn], node_of: Callable[[int], int]) -> dict[int, float]:
    """Return for how long workers of each node were busy, summed over the workers."""
    seconds: dict[int, float] = {}
    for turn in turns:
        node = node_of(turn.worker)
        seconds[node] = seconds.get(node, 0.0) + turn.end - turn.start
    return dict(sorted(seconds.items()))


def idle_beside_two(
    turns: Sequence[Turn], nodes: Sequence[int], node_of: Callable[[int], int]
) -> float:
    """Return for how long a node had no busy worker while another had two or more.

    Counted until the last unit is taken: after that workers finish one by one, wherever they are.
    """
    changes = sorted(
        change
        for turn in turns
        for change in ((turn.start, 1, turn.worker), (turn.end, -1, turn.worker))
    )
    busy = dict.fromkeys(nodes, 0)
    last_taken = max(turn.start for turn in turns)
    seconds, before = 0.0, 0.0
    for now, change, worker in changes:
        if now <= last_taken and min(busy.values()) == 0 and max(busy.values()) >= 2:
            seconds += now - before
        busy[node_of(worker)] += change
        before = now
    return seconds


def run(way: Way, parallelism: int) -> dict[str, Any]:
    """Return what one way gives at one parallelism."""
    topology = machine(way.nodes)
    seats = place(topology, parallelism)
    full = 2 * CORES // way.nodes

    def seated(worker: int) -> int:
        return seats[worker].node

    def piled(worker: int, at: int) -> int:
        return at // full % way.nodes

    made = plan(table(), PlanLimits(parallelism=parallelism, split=way.split))
    node_of = (lambda worker, at: seated(worker)) if way.even else piled
    turns = timeline(made, parallelism, speeds(way.nodes, node_of))
    seconds = max(turn.end for turn in turns)
    answer: dict[str, Any] = {
        "seconds": seconds,
        "kb_per_second": PARTITIONS * KILOBYTES_EACH / seconds,
        "units": len(made.units),
        "rounds_if_alike": simulate(made, parallelism).makespan / (KILOBYTES_EACH * 1024),
    }
    if way.even:
        ids = [node.id for node in topology.nodes]
        crowd = Counter(seat.node for seat in seats)
        answer["workers_of_nodes"] = [crowd[node] for node in ids]
        answer["busy_seconds_of_nodes"] = list(busy_seconds(turns, seated).values())
        answer["tail_seconds"] = seconds - max(turn.start for turn in turns)
        answer["seconds_idle_beside_two"] = idle_beside_two(turns, ids, seated)
    return answer


def sweep(parallelisms: Sequence[int]) -> dict[str, Any]:
    """Return all ways at each parallelism, with the published figures."""
    return {
        "model": {
            "kb_per_second_of_a_core_with_one_worker": ONE_WORKER,
            "kb_per_second_of_a_core_with_two": TWO_WORKERS,
            "kb_per_second_of_the_machine": MACHINE,
        },
        "runs": [
            {
                "parallelism": parallelism,
                "published_seconds": RECORD.get(parallelism, (None,))[0],
                "ways": {way.name: run(way, parallelism) for way in WAYS},
            }
            for parallelism in parallelisms
        ],
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Return the table as text."""
    names = [way.name for way in WAYS]
    heads = ["workers", "published", *names, "cut, alike", "workers of nodes"]
    rows = [heads]
    for each in report["runs"]:
        ways = each["ways"]
        crowds = (ways[name]["workers_of_nodes"] for name in names[2:])
        rows.append(
            [
                str(each["parallelism"]),
                f"{each['published_seconds']:,}" if each["published_seconds"] else "",
                *(f"{ways[name]['seconds']:,.0f}" for name in names),
                f"{ways['even, cut']['rounds_if_alike']:.3f}",
                "  ".join("+".join(map(str, crowd)) for crowd in crowds),
            ]
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    return ["  ".join(f"{cell:>{widths[at]}}" for at, cell in enumerate(row)) for row in rows]


def main() -> None:
    """Print the sweep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    parser.add_argument(
        "--every", action="store_true", help=f"every parallelism from 1 to {MOST_WORKERS}"
    )
    options = parser.parse_args()
    report = sweep(range(1, MOST_WORKERS + 1) if options.every else sorted(RECORD))
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("Seconds as published, and by a model of that machine (see the head of this file):\n")
    print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
