"""The loop over COPY under AddressSanitizer and UBSan, with a real server's rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sanitized

from unloader.sources.postgres.libpq import copying

SOURCES = sanitized.ROOT / "unloader" / "sources" / "postgres" / "libpq" / "src"

if copying.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)
pytestmark = sanitized.MARKS


def test_copying_under_sanitizers(tmp_path: Path) -> None:
    """The loop's tests pass, and neither sanitizer finds anything."""
    sanitized.build(SOURCES, tmp_path / "_copy.so")
    tests = [Path(__file__).with_name("test_copying.py")]
    sanitized.run_tests(tests, copying.OVERRIDE, tmp_path / "_copy.so")
