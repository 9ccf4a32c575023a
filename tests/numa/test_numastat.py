"""The kernel's counts of memory by node, recorded and real."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from numa.residence import NODES, machine_pages


def write(root: Path, node: int, text: str) -> None:
    """Write one node's counters."""
    (root / f"node{node}").mkdir(exist_ok=True)
    (root / f"node{node}" / "numastat").write_text(text)


def test_what_was_counted_between_two_readings(tmp_path: Path) -> None:
    """Counters grow separately; a node that came, went or is broken is left out."""
    write(tmp_path, 0, "numa_hit 100\nother_node 5\n")
    write(tmp_path, 2, "numa_hit 1\nother_node 1\n")
    write(tmp_path, 3, "numa_hit 1\n")
    before = machine_pages(tmp_path)
    assert before[0] == {"numa_hit": 100, "other_node": 5}
    write(tmp_path, 0, "numa_hit 130\nother_node 5\n")
    write(tmp_path, 2, "numa_hit 0\nother_node 3\n")
    write(tmp_path, 3, "of another form\n")
    write(tmp_path, 4, "numa_hit 9\n")
    assert machine_pages(tmp_path, before) == {
        0: {"numa_hit": 30, "other_node": 0},
        # Counting was switched off and on again.
        2: {"numa_hit": 0, "other_node": 2},
    }


def test_a_machine_without_counters(tmp_path: Path) -> None:
    """Without the folder, or without its file, the counters are unknown and nothing fails."""
    (tmp_path / "node0").mkdir()
    assert machine_pages(tmp_path) == {}
    assert machine_pages(tmp_path / "none") == {}


@pytest.mark.skipif(
    not (NODES / "node0/numastat").exists(), reason="this kernel counts no memory by node"
)
def test_the_kernel_counts_what_we_touch() -> None:
    """64 MiB touched here are pages handed out by some node, all of a machine's together."""
    before = machine_pages()
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # A huge page would count as one.
        memory.madvise(getattr(mmap, "MADV_NOHUGEPAGE", 15))
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        grown = machine_pages(before=before)
    assert set(grown) == set(before)
    if not any(counters["numa_hit"] for counters in grown.values()):
        pytest.skip("counting is switched off: sysctl vm.numa_stat is 0")
    # The kernel may hand out several pages at a time, where they are larger than 4 KiB.
    assert sum(counters["local_node"] for counters in grown.values()) > 1000
