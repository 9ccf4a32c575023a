"""The native libraries under AddressSanitizer and UBSan, by their own tests and by short fuzz runs.

Each is built once more for both, into a directory of the tests' own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import sanitized

from unloader.sources.oracle.native import decoder as fetch
from unloader.sources.postgres.libpq import connection as copying
from writers.native import encoder as encoder
from writers.parquet.native import pages

TESTS = Path(__file__).parent
pytestmark = sanitized.MARKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One of them."""

    sources: str
    """The folder that has its `src`."""
    file: str
    override: str
    """The environment variable that names another build."""
    tests: tuple[str, ...]
    """Below `tests`."""


LIBRARIES = {
    "encoder": Library(
        sources="writers/native",
        file="_encoder.so",
        override=encoder.OVERRIDE,
        tests=tuple(f"writers/native/test_{name}.py" for name in ("equality", "native_texts")),
    ),
    "pages": Library(
        sources="writers/parquet/native",
        file="_pages.so",
        override=pages.OVERRIDE,
        tests=("writers/parquet/test_native_file.py",),
    ),
    "fetch": Library(
        sources="unloader/sources/oracle/native",
        file="_fetch.so",
        override=fetch.OVERRIDE,
        tests=("unloader/sources/oracle/native/test_decoder.py",),
    ),
    "copy": Library(
        sources="unloader/sources/postgres/libpq",
        file="_copy.so",
        override=copying.OVERRIDE,
        tests=tuple(
            f"unloader/sources/postgres/libpq/test_{name}.py"
            for name in ("copying", "decoding", "text_form")
        ),
    ),
}
FUZZED = ("encoder", "pages", "fetch", "copy")
"""The ones that are also targets of the fuzzer."""


@pytest.fixture(scope="module")
def name(request: pytest.FixtureRequest) -> str:
    """One library after the other."""
    if LIBRARIES[request.param].override in os.environ:
        pytest.skip("another build of the library is under test")
    return str(request.param)


@pytest.fixture(scope="module")
def build(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library and its objects."""
    directory = tmp_path_factory.mktemp("sanitized")
    library = LIBRARIES[name]
    sanitized.build(sanitized.ROOT / library.sources / "src", directory / library.file)
    return directory


@pytest.mark.parametrize("name", LIBRARIES, indirect=True)
def test_its_tests_under_sanitizers(name: str, build: Path) -> None:
    """They pass, and neither sanitizer finds anything."""
    library = LIBRARIES[name]
    tests = [TESTS / each for each in library.tests]
    sanitized.run_tests(tests, library.override, build / library.file)


@pytest.mark.parametrize("name", FUZZED, indirect=True)
def test_a_short_fuzz_run_finds_nothing(name: str, build: Path, tmp_path: Path) -> None:
    """Inputs made to reach all code come out right, or are refused."""
    sanitized.fuzz(name, build, tmp_path)
