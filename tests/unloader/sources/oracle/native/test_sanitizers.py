"""The native fetch under AddressSanitizer and UBSan, by these tests and by a short fuzz run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sanitized

from unloader.sources.oracle.native import library

SOURCES = sanitized.ROOT / "unloader" / "sources" / "oracle" / "native" / "src"

if library.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)
pytestmark = sanitized.MARKS


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library and its objects."""
    directory = tmp_path_factory.mktemp("sanitized")
    sanitized.build(SOURCES, directory / "_fetch.so")
    return directory


def test_decoding_under_sanitizers(build: Path) -> None:
    """The decoder's tests pass, and neither sanitizer finds anything."""
    tests = [Path(__file__).with_name("test_decoder.py")]
    sanitized.run_tests(tests, library.OVERRIDE, build / "_fetch.so")


def test_a_short_fuzz_run_finds_nothing(build: Path, tmp_path: Path) -> None:
    """Broken responses are refused, or read the same whatever pieces they come in."""
    sanitized.fuzz("fetch", build, tmp_path)
