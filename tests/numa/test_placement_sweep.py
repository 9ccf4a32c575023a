"""Every topology of the test data has the same seats on every run."""

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES
from machines.sysfs_trees import all_trees

from numa.model import Topology
from numa.placement import place

PATHS = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

RUNS = 8
HASH_SEEDS = ("0", "1", "4294967295")
"""Of as many more processes, each with a share of the runs as large as this one's."""


def cpus_of(topology: Topology) -> int:
    """Return the number of CPUs there are for workers."""
    return sum(len(node.cpus) for node in topology.nodes)


def digest(trees: Mapping[str, Topology]) -> str:
    """Return a sum of all seats of all trees, at twice the CPUs, by both placements."""
    total = hashlib.sha256()
    for name, topology in trees.items():
        for placement in ("spread", "close"):
            seats = place(topology, 2 * cpus_of(topology), placement=placement, bind="core")
            drawn = [(seat.node, seat.cpus, seat.memory_node) for seat in seats]
            total.update(f"{name} {placement} {drawn}".encode())
    return total.hexdigest()


@pytest.mark.long(OTHER_ROUTES)
def test_the_seats_are_the_same_on_every_run(tmp_path: Path) -> None:
    """Several runs, in processes whose sets and dicts hash differently, give the same seats."""
    trees = all_trees()
    share = RUNS // (1 + len(HASH_SEEDS))
    found: list[str] = [digest(trees) for _ in range(share)]
    known = tmp_path / "trees"
    known.write_bytes(pickle.dumps(trees))
    for seed in HASH_SEEDS:
        done = subprocess.run(
            [sys.executable, __file__, str(known), str(share)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(PATHS)},
            check=True,
            capture_output=True,
            text=True,
        )
        found += done.stdout.split()
    assert len(found) == RUNS
    assert set(found) == {found[0]}


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        print(digest(pickle.loads(Path(sys.argv[1]).read_bytes())))
