"""The decisions that are the same for every run."""

from __future__ import annotations

from unloader.resolve.resolution import new_run_id


def test_the_ids_of_runs_sort_by_time() -> None:
    """Also within a second: --keep and --resume-or-start go by it."""
    ids = [new_run_id() for _ in range(2000)]
    assert len({*ids}) == len(ids)
    times = [each[:-6] for each in ids]  # The last six digits are random.
    assert times == sorted(times)
