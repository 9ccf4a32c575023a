"""Faults of the machine, its limits and its files: never a fault of the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Under = Callable[..., "subprocess.CompletedProcess[str]"]
ONE_LINE = re.compile(r"unloader: error: [^\n]+\. Next: [^\n]+\n")

NOBODY = (
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    # The interpreter may be in a folder of root's.
    *("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"),
)


@pytest.fixture
def under(tmp_path: Path, environment: dict[str, str], program: tuple[str, ...]) -> Under:
    """Run the command after other words of a shell, such as `ulimit`."""

    def run(
        before: str, *arguments: str, user: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*user, "sh", "-c", f'{before}; exec "$@"', "sh", *program, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


def test_too_few_files_are_named(under: Under, database: str, tmp_path: Path) -> None:
    """Too few descriptors for the workers: status 3, one line that names them, no output."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--quiet")
    result = under("ulimit -n 10", *arguments)
    assert result.returncode == 3, result.stderr
    assert "open files" in result.stderr
    assert ONE_LINE.fullmatch(result.stderr), result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can become a user without processes of its own, by setpriv",
)
@pytest.mark.parametrize("processes", [1, 3])
def test_too_few_processes_are_named(
    under: Under, database: str, tmp_path: Path, processes: int
) -> None:
    """Neither a thread nor a process that the system refuses looks like Ctrl-C or a fault of ours."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--quiet")
    result = under(
        f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes}", *arguments, user=NOBODY
    )
    assert result.returncode == 3, result.stderr
    last = result.stderr.splitlines(keepends=True)[-1]
    assert ONE_LINE.fullmatch(last), result.stderr
    assert "--parallelism" in last
    assert not (tmp_path / "out").exists()


@pytest.mark.long(OTHER_ROUTES)
def test_a_removed_working_directory_is_named(under: Under, database: str, tmp_path: Path) -> None:
    """A relative path has nowhere to lead; an absolute one has."""
    before = "mkdir gone && cd gone && rmdir ../gone"
    arguments = ("run", database, "--table", "orders", "--quiet", "--to")
    result = under(before, *arguments, "out")
    assert result.returncode == 3
    assert "the working directory has been removed" in result.stderr
    assert under(before, *arguments, str(tmp_path / "out")).returncode == 0


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_without_a_bottom_is_refused(unloader: Run, tmp_path: Path, opening: str) -> None:
    """A plan and a manifest of a hundred thousand brackets are reported by name as damaged."""
    for name in ("plan.json", "_manifest.json"):
        (tmp_path / name).write_text(opening * 100_000)
    plan = unloader("run", "plan.json", "--to", "out")
    assert plan.returncode == 5
    manifest = unloader("verify", ".")
    assert manifest.returncode == 8
    for result in (plan, manifest):
        assert re.search("maximum recursion depth exceeded|Expected `object`", result.stderr)
        assert ONE_LINE.fullmatch(result.stderr)


def test_a_plan_of_deep_values_is_refused(unloader: Run, database: str, tmp_path: Path) -> None:
    """What can still be decoded, but hardly written, is refused as well."""
    made = unloader("plan", database, "--table", "orders", "--output", "plan.json", "--quiet")
    assert made.returncode == 0, made.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    document["plan"]["units"] = deep
    (tmp_path / "plan.json").write_text(json.dumps(document))
    result = unloader("run", "plan.json", "--to", "out")
    assert result.returncode == 5, result.stderr
    assert ONE_LINE.fullmatch(result.stderr)


def test_buffers_beyond_all_memory_are_refused(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """The system says no: status 3, and which options to lower."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--quiet")
    result = unloader(*arguments, "--overlap-buffer", "100T")
    assert result.returncode == 3
    assert "memory" in result.stderr
    assert "--overlap-buffer" in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_endless_value_does_not_make_an_endless_line(unloader: Run, database: str) -> None:
    """The middle of a long value is left out; what to do next is not."""
    result = unloader("describe", database, "--table", "x" * 100_000)
    assert result.returncode == 4
    assert ONE_LINE.fullmatch(result.stderr)
    assert len(result.stderr) < 5000


def test_a_driver_that_cannot_be_loaded_is_not_called_missing() -> None:
    """Too little memory for a library is reported in the system's words, not as a missing driver."""
    from unloader.sources.registry import missing_driver

    broken = missing_driver(ImportError("failed to map segment", name="_duckdb"), "duckdb")
    assert "cannot load the driver module '_duckdb': failed to map segment" in str(broken)
    absent = missing_driver(ModuleNotFoundError(name="duckdb"), "duckdb")
    assert "'duckdb' is not installed" in str(absent)
