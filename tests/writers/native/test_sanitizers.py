"""The native encoder under AddressSanitizer and UBSan, by these tests and by a short fuzz run.

The library is built once more for both, into a directory of the tests' own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sanitized

from writers.native import library

SOURCES = sanitized.ROOT / "writers" / "native" / "src"
TESTS = ("equality", "filling", "encoder")

if library.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)
pytestmark = sanitized.MARKS


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library and its objects."""
    directory = tmp_path_factory.mktemp("sanitized")
    sanitized.build(SOURCES, directory / "_encoder.so")
    return directory


def test_native_equality_under_sanitizers(build: Path) -> None:
    """The tests that compare the encoders pass, and neither sanitizer finds anything."""
    tests = [Path(__file__).with_name(f"test_{name}.py") for name in TESTS]
    sanitized.run_tests(tests, library.OVERRIDE, build / "_encoder.so")


def test_a_short_fuzz_run_finds_nothing(build: Path, tmp_path: Path) -> None:
    """Inputs made to reach all code come back as the values they were, in buffers of any size."""
    sanitized.fuzz("encoder", build, tmp_path)
