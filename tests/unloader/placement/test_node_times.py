"""The load of NUMA nodes, from the kernel's counters."""

from __future__ import annotations

from pathlib import Path

from numa.topology import detect
from unloader.placement.evidence import busy_share, node_times

BEFORE = "cpu  9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 7 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\nintr 1 2\n"
AFTER = "cpu  9 9 9 9\ncpu0 140 5 60 840 65 0 0 0 7 0\ncpu1 0 0 0 1100 0 0 0 0 0 0\nintr 1 2\n"


def test_the_load_of_a_node_is_that_of_its_cpus(tmp_path: Path) -> None:
    """Ticks of user, nice and system are busy, idle and waiting for I/O are not."""
    stat = tmp_path / "stat"
    stat.write_text(BEFORE)
    cpus = {0: (0,), 1: (1,), 4: (0, 1), 7: (12,)}
    before = node_times(cpus, stat)
    assert before[0] == (150, 1000)
    stat.write_text(AFTER)
    shares = {node: busy_share(before[node], now) for node, now in node_times(cpus, stat).items()}
    assert shares == {0: 0.5, 1: 0.0, 4: 55 / 210}, "node 7 has no CPU in the file"


def test_no_time_and_no_file_is_no_load(tmp_path: Path) -> None:
    """Without counts the load is unknown and not 0."""
    assert busy_share((5, 10), (5, 10)) is None
    assert node_times({0: (0,)}, tmp_path / "missing") == {}


def test_this_machine_has_loads() -> None:
    """The kernel counts for every node with CPUs that we may use."""
    cpus = {node.id: node.cpus for node in detect().nodes if node.cpus}
    assert set(node_times(cpus)) == set(cpus) != set()
