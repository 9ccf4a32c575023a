"""The native encoder under AddressSanitizer and UBSan, by these tests and by a short fuzz run.

The library is built once more for both, into a directory of the tests' own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import EXAMPLES

from writers.native import library

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "writers" / "native" / "src"
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-fPIC", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
COVERAGE = "-fsanitize-coverage=trace-pc"
UNCOUNTED = 'extern "C" void __sanitizer_cov_trace_pc() {}'
"""What the library's code calls at each step for the fuzzer, where no fuzzer counts it."""
FUZZ_SECONDS = "8"
TESTS = ("equality", "filling", "encoder")
FEW_EXAMPLES = 15

if library.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)
COMPILER = shutil.which("g++")
pytestmark = [
    pytest.mark.long("sanitizers and fuzzing"),
    pytest.mark.skipif(
        COMPILER is None or sys.platform != "linux", reason="no g++ to build with sanitizers"
    ),
]


def run(*arguments: object, **environment: str) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-10000:]
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library, and its objects, built under both without a warning."""
    directory = tmp_path_factory.mktemp("sanitized")
    names = "\n".join(sorted(path.name for path in SOURCES.glob("*.cpp")))
    flags = " ".join((*FLAGS, COVERAGE, "-Werror"))
    one = f"{COMPILER} {flags} -c {SOURCES}/{{}} -o {directory}/lib-{{}}.o"
    done = subprocess.run(
        ["xargs", "-P", "2", "-I{}", *one.split()], input=names, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    stub = directory / "uncounted.cpp"
    stub.write_text(UNCOUNTED)
    objects = sorted(directory.glob("lib-*.o"))
    run(COMPILER, *FLAGS, "-shared", stub, *objects, "-o", directory / "_encoder.so")
    return directory


def test_native_equality_under_sanitizers(build: Path) -> None:
    """The tests that compare the encoders pass, and neither sanitizer finds anything."""
    preloaded = [
        run(COMPILER, f"-print-file-name=lib{name}.so").strip() for name in ("asan", "ubsan")
    ]
    tests = [Path(__file__).with_name(f"test_{name}.py") for name in TESTS]
    printed = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests),
        **{library.OVERRIDE: str(build / "_encoder.so")},
        # All of it without sanitizers is enough.
        UNLOADER_TEST_ALL="0",
        UNLOADER_TEST_EXAMPLES=str(EXAMPLES or FEW_EXAMPLES),
        LD_PRELOAD=" ".join(preloaded),
        # Python keeps memory to its end.
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )
    assert "passed" in printed
    assert "skipped" not in printed


def test_a_short_fuzz_run_finds_nothing(build: Path, tmp_path: Path) -> None:
    """Inputs made to reach all code come back as the values they were, in buffers of any size."""
    printed = run(
        ROOT / "tests" / "fuzz" / "run.sh",
        FUZZ_SECONDS,
        PYTHON=sys.executable,
        CXX=str(COMPILER),
        UNLOADER_FUZZ_DIR=str(tmp_path),
        UNLOADER_FUZZ_OBJECTS=str(build),
    )
    assert "runs" in printed
