"""Native libraries built under AddressSanitizer and UBSan, and tests that are run with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from amounts import EXAMPLES

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("g++")
MARKS = [
    pytest.mark.long("sanitizers and fuzzing"),
    pytest.mark.skipif(
        COMPILER is None or sys.platform != "linux", reason="no g++ to build with sanitizers"
    ),
]
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-fPIC", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
_COVERAGE = "-fsanitize-coverage=trace-pc"
_UNCOUNTED = 'extern "C" void __sanitizer_cov_trace_pc() {}'
"""Functions that instrumented code calls at each step, without a fuzzer."""
_FUZZ_SECONDS = "5"
_FEW_EXAMPLES = 10


def run(*arguments: object, **environment: str) -> str:
    """Run a program to its end and return the output."""
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


def build(sources: Path, library: Path) -> None:
    """Build a library from all sources of a folder without a warning; its objects lie beside it."""
    names = "\n".join(sorted(path.name for path in sources.glob("*.cpp")))
    flags = " ".join((*FLAGS, _COVERAGE, "-Werror"))
    one = f"{COMPILER} {flags} -c {sources}/{{}} -o {library.parent}/lib-{{}}.o"
    done = subprocess.run(
        ["xargs", "-P", "2", "-I{}", *one.split()],
        input=names,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stub = library.parent / "uncounted.cpp"
    stub.write_text(_UNCOUNTED)
    objects = sorted(library.parent.glob("lib-*.o"))
    run(COMPILER, *FLAGS, "-shared", stub, *objects, "-o", library)


def run_tests(tests: Iterable[Path], variable: str, library: Path) -> None:
    """Run tests with a library in place of the usual one; they pass.

    Only tests of the usual build itself may be skipped.

    Args:
        tests: Files of tests.
        variable: The environment variable that names the library.
        library: A sanitized build.
    """
    preloaded = [
        run(COMPILER, f"-print-file-name=lib{name}.so").strip() for name in ("asan", "ubsan")
    ]
    printed = run(
        *(sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests),
        **{variable: str(library)},
        # All of it without sanitizers is enough.
        UNLOADER_TEST_ALL="0",
        UNLOADER_TEST_EXAMPLES=str(EXAMPLES or _FEW_EXAMPLES),
        LD_PRELOAD=" ".join(preloaded),
        # Python keeps memory to its end.
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )
    assert "passed" in printed
    skipped = [line for line in printed.splitlines() if line.startswith("SKIPPED")]
    assert all("another build of the library" in line for line in skipped), skipped


def fuzz(what: str, objects: Path, directory: Path) -> None:
    """Run the fuzzer for a while; it finds nothing.

    Args:
        what: The target, as `tests/fuzz/run.sh` names it.
        objects: Where `build` has left the library's objects.
        directory: For the fuzzer's own files.
    """
    printed = run(
        *(ROOT / "tests" / "fuzz" / "run.sh", _FUZZ_SECONDS, "1", what),
        PYTHON=sys.executable,
        CXX=str(COMPILER),
        UNLOADER_FUZZ_DIR=str(directory),
        UNLOADER_FUZZ_OBJECTS=str(objects),
    )
    assert "runs" in printed
