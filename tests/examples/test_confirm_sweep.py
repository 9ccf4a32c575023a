"""The example that confirms the recommendation of a sweep."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from example_scripts import report

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "confirm_sweep.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("confirm_sweep", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks for the module that it is in.
    sys.modules["confirm_sweep"] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_confirmed(example: ModuleType) -> None:
    """No point may be faster by more than the spread, by the median of paired runs."""
    speeds = {1: [100.0, 50.0, 100.0], 2: [200.0, 100.0, 200.0], 4: [206.0, 103.0, 190.0]}
    found = example.compared(speeds, 2, 0.05)
    assert found["confirmed"]
    assert found["best_other"] == 4
    assert found["ratios"]["recommended_vs_1"] == 2
    assert found["ratios"]["recommended_vs_best_other"] == round(200 / 206, 4)
    assert found["ratio_ranges"]["recommended_vs_4"] == [round(200 / 206, 4), round(200 / 190, 4)]
    assert not example.compared(speeds, 2, 0.02)["confirmed"]
    assert example.compared({1: [1.0]}, 1, 0.02)["confirmed"]


@pytest.mark.long("examples")
def test_a_table_is_swept_and_run_again() -> None:
    """All measured points are in the answer, with the seconds of the sweep."""
    small = ("--rows", "20k", "--levels", "1,2", "--repeats", "1", "--turns", "1")
    found = report("confirm_sweep.py", "--source", "duckdb", *small)
    assert set(found["rows_per_second"]) == {"1", "2"}
    assert found["recommended"] in (1, 2)
    assert found["seconds"] > 0
    assert "recommended_vs_best_other" in found["ratios"]
