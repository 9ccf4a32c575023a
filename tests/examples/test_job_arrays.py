"""The scripts for job arrays, run as processes with the variables that a scheduler sets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from processes import command
from processes.program import Program

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "job_arrays"
ROWS, PARTS = 20_000, 3


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan over a DuckDB file, with its output beside it."""
    source = tmp_path / "t.duckdb"
    with duckdb.connect(str(source)) as session:
        session.execute(f"CREATE TABLE t AS SELECT i, 'text ' || i AS v FROM range({ROWS}) t(i)")
    file = tmp_path / "plan.json"
    command.run(
        "plan", f"duckdb://{source}", "--table", "t", "--to", str(tmp_path / "orders"),
        "--unit-bytes", "32KiB", "--output", str(file), "--quiet",
    )  # fmt: skip
    return file


def container_command(plan: Path) -> list[str]:
    """Return the command of the container in the manifest for Kubernetes, for this plan."""
    text = (FOLDER / "kubernetes.yaml").read_text("utf-8")
    found = re.search(r"command:\n((?: +- .+\n)+)", text)
    assert found is not None
    words = [line.strip().removeprefix("- ") for line in found[1].splitlines()]
    changed = {"/shared/plan.json": str(plan), "auto/16": f"auto/{PARTS}"}
    assert changed.keys() <= set(words)
    return [changed.get(word, word) for word in words]


@pytest.mark.long("runs in parts")
@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes", "aws"])
def test_all_tasks_of_an_array_and_the_merge(plan: Path, scheduler: str) -> None:
    """Side by side, as a scheduler starts them; a second start of one changes nothing."""
    variable, first, words = {
        "slurm": ("SLURM_ARRAY_TASK_ID", 1, [str(FOLDER / "slurm.sh"), str(plan), str(PARTS)]),
        "kubernetes": ("JOB_COMPLETION_INDEX", 0, container_command(plan)),
        "aws": (
            "AWS_BATCH_JOB_ARRAY_INDEX",
            0,
            [str(FOLDER / "aws_batch.sh"), str(plan), str(PARTS)],
        ),
    }[scheduler]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for indexes in (range(first, first + PARTS), [first]):
        tasks = [
            Program(
                words,
                env={**os.environ, "PATH": path, variable: str(index)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in indexes
        ]
        for task in tasks:
            _, shown = task.communicate(timeout=command.PATIENCE_SECONDS)
            assert task.returncode == 0, shown
    to = plan.parent / "orders"
    command.run("merge", str(to), "--quiet")
    assert command.manifest_of(to)["totals"]["rows"] == ROWS
    files = str(to / "*" / "*.csv")
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT i) FROM '{files}'").fetchall() == [
        (ROWS, ROWS)
    ]
