"""The encoder of pages under AddressSanitizer and UBSan, by its tests and by a short fuzz run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sanitized

from writers.parquet.native import library

SOURCES = sanitized.ROOT / "writers" / "parquet" / "native" / "src"
TESTS = ("native_file",)

if library.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)
pytestmark = sanitized.MARKS


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library and its objects."""
    directory = tmp_path_factory.mktemp("sanitized")
    sanitized.build(SOURCES, directory / "_pages.so")
    return directory


def test_pages_under_sanitizers(build: Path) -> None:
    """The tests of native files pass, and neither sanitizer finds anything."""
    tests = [Path(__file__).with_name(f"test_{name}.py") for name in TESTS]
    sanitized.run_tests(tests, library.OVERRIDE, build / "_pages.so")


def test_a_short_fuzz_run_finds_nothing(build: Path, tmp_path: Path) -> None:
    """Pages read back as the values they were made of, wherever batches are cut."""
    sanitized.fuzz("pages", build, tmp_path)
