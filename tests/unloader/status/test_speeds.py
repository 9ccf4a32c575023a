"""The speed of a run over time."""

from __future__ import annotations

from unloader.status.tally import MOST, Speeds


def test_means_between_looks() -> None:
    """Each figure is the mean since the look before; rows that are taken back do not count."""
    found = Speeds()
    assert found.values() == ()
    for now, rows in ((10.0, 0), (11.0, 100), (13.0, 500), (14.0, 450)):
        found.add(now, rows)
    assert found.values() == (100.0, 200.0, 0.0)


def test_a_long_run_has_no_more_of_them() -> None:
    """They cover all of a run of any length."""
    found = Speeds()
    for second in range(20_000):
        found.add(float(second), second * 50 if second < 10_000 else 500_000)
    values = found.values()
    assert MOST / 3 < len(values) <= MOST + 1
    full = [value for value in values if value == 50.0]
    assert list(values[: len(full)]) == full
    assert 0.4 < len(full) / len(values) < 0.6, "the run stood still in its second half"
    assert sum(0 < value < 50 for value in values) <= 1
    assert values[-1] == 0.0
