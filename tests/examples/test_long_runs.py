"""Long runs and sweeps are measured, judged and confirmed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from example_scripts import HERE, report

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "endurance.py"
JUDGING = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
from endurance import ALLOWED, Sample, judged
for growing in sys.argv[2:]:
    samples = []
    for number in range(1, 101):
        values = dict.fromkeys(ALLOWED, 0)
        values["resident_bytes"] = 200 << 20
        if growing == "noise":
            values["resident_bytes"] += (number * 7919 % 31) << 20
            values["descriptors"] = 9 if number == 60 else 6
        elif growing in values:
            values[growing] += number * (500_000 if growing == "resident_bytes" else 1)
        samples.append(Sample(round=number, seconds=number * 36.0, what="whole", **values))
    print(json.dumps(judged(samples, argparse.Namespace(seed=1, rows=1))["grown"]))
"""


def test_growth_is_told_from_noise() -> None:
    """A steady slope is named; memory that goes up and down, or one odd round, is not."""
    growing = ("nothing", "noise", "resident_bytes", "descriptors", "temporary_files")
    done = subprocess.run(
        [sys.executable, "-c", JUDGING, str(SCRIPT.parent), *growing],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [[], [], ["resident_bytes"], ["descriptors"], ["temporary_files"]]


@pytest.mark.long("endurance")
def test_a_dozen_rounds_leave_nothing_behind() -> None:
    """Whole, stopped and failed runs leave no process, descriptor, thread or temporary file."""
    found = report(
        "endurance.py", "--rounds", "12", "--rows", "5000", "--no-postgres", "--dir", HERE
    )
    assert found["grown"] == []
    assert found["rounds"] == 12
    assert found["figures"]["descriptors"]["judged"]
    assert any(kind.startswith("stopped") for kind in found["kinds"])


ORACLE_SCRIPT = ROOT / "examples" / "long_oracle_run.py"
ORACLE_JUDGING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from long_oracle_run import Look, figures, judged, ratios
for what in sys.argv[2:]:
    looks, rows = [], 0
    for number in range(100):
        rows += 400_000 if what == "slower" and number >= 75 else 500_000
        # What a run takes at its start is no growth.
        memory = (100 if number < 20 else 180) << 20
        memory += number * 200_000 if what == "growing" else (number * 7919 % 31) << 10
        looks.append(Look(seconds=float(number), rows=rows, memory=memory))
    report = {**figures(looks), "ratios": ratios(looks), "rows": rows}
    print(json.dumps(judged(report, rows + 1 if what == "lost" else rows)))
"""


def test_what_is_wrong_is_named() -> None:
    """A rate that falls, memory that grows, a row that is missing; everything else passes."""
    done = subprocess.run(
        [sys.executable, "-c", ORACLE_JUDGING, str(ORACLE_SCRIPT.parent), "fine", "slower", "growing", "lost"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    fine, slower, growing, lost = map(json.loads, done.stdout.splitlines())
    assert fine == []
    assert [text.partition(" to ")[0] for text in slower] == ["the rate fell"]
    assert [text.partition(" by ")[0] for text in growing] == ["memory grew"]
    assert lost == ["50,000,000 rows were written instead of 50,000,001"]


@pytest.mark.long("long run")
def test_the_rows_of_a_long_run_are_counted_and_its_time_is_cut_in_parts() -> None:
    """What its rates are is left to anyone who measures on a quiet machine."""
    done = subprocess.run(
        [sys.executable, str(ORACLE_SCRIPT), "--rows", "1M", "--distinct", "40k", "--interval", "0.02",
         "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 1_000_000
    assert len(report["rows_per_second"]) == 10
    assert report["most_memory_bytes"] > 10_000_000
    assert report["stages"]["longest"] in report["stages"]
    assert not [text for text in report["problems"] if "rows were written instead of" in text]


SWEEP_SCRIPT = ROOT / "examples" / "confirm_sweep.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SWEEP_SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("confirm_sweep", SWEEP_SCRIPT)
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


SMALL = (
    *("--rows", "40k", "--wide-rows", "2k", "--levels", "1,2,3", "--repeats", "1"),
    *("--warm-up", "0", "--disk-rate", "1MiB", "--source-rate", "1MiB", "--cpus", "0.2"),
)
"""Little work for the CPUs: the throttled part takes longer on a busy machine, too. A measurement
has at least ten periods of the quota, and the share of a CPU is one that a busy machine can give."""


@pytest.mark.long("throttled machines")
@pytest.mark.parametrize("case", ["disk", "source", "cpu"])
def test_what_is_throttled_is_named(case: str) -> None:
    """In the JSON and in words, below the knee and beyond it, and none of the other two is."""
    answer = report("throttled_sweeps.py", "--case", case, *SMALL)[case]
    if "left_out" in answer:
        pytest.skip(f"this machine cannot throttle: {answer['left_out']}")
    words = {"disk": "the disk", "source": "the source", "cpu": "the CPUs"}
    sides = [side for side in answer["limits"].values() if side is not None]
    for side in sides:
        assert case in side["resources"], answer
        assert words[case] in side["text"]
        # Other programs may use the CPUs of the machine.
        assert set(side["resources"]) <= {case, "cpu"}, answer


def test_processes_and_hosts_are_lost() -> None:
    """Their units are done by others, and the time shows that workers did not wait for them."""
    found = report(
        "simulate_scale.py",
        "--hosts", "20", "--rows", "2e10", "--lost-hosts", "5", "--failing", "0.02",
        "--dying", "0.01", "--progress-seconds", "5",
    )  # fmt: skip
    assert found["run"]["units"] >= 4000
    assert found["run"]["attempts_lost"] >= 50
    assert 1.0 <= found["ratios"]["wall_vs_ideal"] < 1.5


@pytest.mark.parametrize("sessions", [7, 100])
def test_the_database_takes_fewer_sessions(sessions: int) -> None:
    """As many workers go on as have one, and they are kept busy."""
    found = report(
        "simulate_scale.py", "--hosts", "20", "--rows", "1e10", "--sessions", str(sessions)
    )
    assert found["run"]["sessions_refused"] >= 320 - sessions
    assert 0.95 <= found["ratios"]["wall_vs_ideal"] < 1.5
