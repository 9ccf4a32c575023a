"""The examples run: the benchmark end to end at a tiny size, the shell scripts as far as syntax."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "examples" / "bench_end_to_end.py"
SCRIPTS = ("examples/quickstart.sh", "tests/run.sh", "tests/faults.sh", ".ci/run")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_shell_scripts_parse_and_are_executable(script: str, shell: str) -> None:
    """Each script can be started and has no syntax error in either shell."""
    path = ROOT / script
    assert path.stat().st_mode & 0o100
    subprocess.run([shell, "-n", str(path)], check=True)


def test_quickstart_without_a_usable_python_says_so_in_one_line(tmp_path: Path) -> None:
    """On a machine without Python 3.11 the script ends with one line and changes nothing."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dirname", "find", "tail", "sed"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "examples" / "quickstart.sh")],
        env={"PATH": str(tools), "UNLOADER_VENV": str(tmp_path / "venv")},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("quickstart: no Python 3.11 or newer")
    assert "Next: " in done.stderr
    assert not (tmp_path / "venv").exists()


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark script."""
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments], capture_output=True, text=True, check=False
    )


def test_bench_ends_if_an_output_differs_from_the_table(tmp_path: Path) -> None:
    """A contender that writes a row twice, or changes one value, fails the benchmark."""
    program = f"""
import sys
sys.path.insert(0, {str(BENCH.parent)!r})
from pathlib import Path
from bench_end_to_end import build_reference_table, check, fingerprint, TABLE, Contender, query
work = Path(sys.argv[1])
database = work / "t.duckdb"
build_reference_table(database, 100, stop=lambda: False)
query(database, f"COPY ({{sys.argv[2]}}) TO '{{work}}/x.csv' (HEADER)")
contender = Contender(contest="c", name="n", command=(), directory=work, format="csv")
check(contender, database, fingerprint(database, TABLE))
"""
    for sql, message in (
        ("FROM HASH_PART_0160 ORDER BY REMARK", ""),
        ("FROM HASH_PART_0160 UNION ALL (FROM HASH_PART_0160 LIMIT 1)", "other rows"),
        ("SELECT * REPLACE (AMOUNT + 0.01 AS AMOUNT) FROM HASH_PART_0160", "other rows"),
        ("SELECT * REPLACE (rtrim(CODE) AS CODE) FROM HASH_PART_0160", "other rows"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), sql], capture_output=True, text=True
        )
        assert (done.returncode != 0) == bool(message), done.stderr
        assert message in done.stderr


def test_bench_refuses_impossible_options() -> None:
    """No rows or no runs is a usage error."""
    for arguments in (("--rows", "0"), ("--runs", "0")):
        done = bench(*arguments)
        assert done.returncode == 2
        assert "must be 1 or more" in done.stderr
