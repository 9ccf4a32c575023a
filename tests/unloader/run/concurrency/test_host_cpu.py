"""How busy a host is, by the counters of its kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.run.loads import HostCpu


def counters(proc: Path, line: str, **processes: int) -> None:
    """Write the kernel's counters."""
    (proc / "stat").write_text(f"cpu  {line}\ncpu0 1 2 3\n")
    for pid, ticks in processes.items():
        place = proc / pid.removeprefix("p")
        place.mkdir(exist_ok=True)
        before = "S " + "0 " * 10
        (place / "stat").write_text(f"7 (a ) name) {before}{ticks} 5 0 0")


def test_shares_are_of_the_time_since_the_last_look(tmp_path: Path) -> None:
    """Idle time and waits for a disk are not busy, time of a hypervisor's others is."""
    host = HostCpu(tmp_path)
    counters(tmp_path, "100 0 100 700 100 0 0 0 50 0", p7=10)
    assert host.readable()
    assert host.look([7], 10.0) is None
    counters(tmp_path, "140 0 110 720 110 0 0 20 60 0", p7=35)
    assert host.look([7], 10.5) is None
    found = host.look([7, 8], 11.0)
    assert found is not None
    assert found == pytest.approx((0.7, 0.25))


def test_a_system_without_them_is_not_readable(tmp_path: Path) -> None:
    """Then a limit on CPUs is an error at the start."""
    assert not HostCpu(tmp_path).readable()
    (tmp_path / "stat").write_text("intr 1\n")
    assert not HostCpu(tmp_path).readable()


def test_this_host_is_readable() -> None:
    """The real counters give shares between 0 and 1."""
    host = HostCpu()
    host.look([], 0.0)
    for _ in range(200_000):
        pass
    found = host.look([], 1.0)
    assert found is None or 0 <= found[1] <= 1
