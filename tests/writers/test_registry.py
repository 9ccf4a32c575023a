"""Formats by name, and native libraries of the right version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unloader.sources.oracle.native import decoder as fetch
from unloader.sources.postgres.libpq import connection as copying
from writers import built_library, registry
from writers.built_library import Unusable
from writers.content import sums
from writers.errors import FormatError
from writers.model import Compression, ParquetFormat, TextFormat
from writers.native import encoder as encoder
from writers.parquet.native import pages
from writers.text.dialects import dialect


@pytest.mark.parametrize(
    ("output_format", "codec", "expected"),
    [
        ("csv", "none", "csv"),
        ("csv", "gzip", "csv.gz"),
        (TextFormat(), "zstd", "csv.zst"),
        ("csv", "lz4", "csv.lz4"),
        (dialect("tsv"), "none", "tsv"),
        (TextFormat(delimiter="\t"), "zstd", "tsv.zst"),
        ("parquet", "none", "parquet"),
        (ParquetFormat(), "snappy", "parquet"),
    ],
)
def test_extension(output_format: Any, codec: Any, expected: str) -> None:
    """The extension says format and codec; Parquet has its codec inside."""
    assert registry.extension(output_format, Compression(codec=codec)) == expected


@pytest.mark.parametrize(
    ("output_format", "codec", "level", "said"),
    [
        ("csv", "snappy", None, "none, gzip, zstd, lz4"),
        ("csv", "brotli", None, "compression 'brotli' does not exist"),
        ("parquet", "gzip", 0, "1 to 9"),
        ("parquet", "snappy", 3, "has no levels"),
        ("csv", "none", 3, "has no levels"),
        ("orc", "none", None, "format 'orc' does not exist.*csv, parquet"),
    ],
)
def test_impossible_combination_is_refused(
    output_format: str, codec: Any, level: int | None, said: str
) -> None:
    """The refusal lists the possible choices."""
    with pytest.raises(FormatError, match=rf"{said}.*\.") as caught:
        registry.check(output_format, Compression(codec=codec, level=level))
    assert "Next: " in str(caught.value)


def test_listing_needs_no_driver() -> None:
    """Listing and checking formats imports neither Arrow nor a codec, so help stays instant."""
    script = (
        "import sys; from writers import registry; from writers.model import Compression\n"
        "registry.codecs(); registry.check('parquet', Compression(codec='zstd'))\n"
        "print('pyarrow' in sys.modules, 'zstandard' in sys.modules)"
    )
    root = Path(registry.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "False False\n"


def test_a_loaded_format_imports_nothing_for_its_first_file(tmp_path: Path) -> None:
    """A fork server loads a format once, and not each of its workers."""
    script = (
        "import sys, datetime, pyarrow as pa\n"
        "from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat\n"
        "from writers.registry import load, open_writer\n"
        "from writers.schema import INFINITE\n"
        "field = pa.field('t', pa.timestamp('us'), metadata=INFINITE)\n"
        "rows = pa.record_batch([[datetime.datetime(2024, 1, 2)]], schema=pa.schema([field]))\n"
        "for name, form in ('csv', TextFormat()), ('parquet', ParquetFormat()):\n"
        "    load(name)\n"
        "    before = set(sys.modules)\n"
        f"    spec = OutputSpec(directory={str(tmp_path)!r}, format=form, "
        "compression=Compression())\n"
        "    writer = open_writer(spec, rows.schema, 'u')\n"
        "    writer.write(rows)\n"
        "    writer.close()\n"
        "    print(sorted(set(sys.modules) - before))\n"
    )
    root = Path(registry.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[]\n[]\n"


ROOT = Path(__file__).parents[2]
LIBRARIES = {
    "writers/native/src/encoder.cpp": encoder,
    "writers/parquet/native/src/pages.cpp": pages,
    "writers/content/src/column_sum.cpp": sums,
    "unloader/sources/oracle/native/src/decoder.cpp": fetch,
    "unloader/sources/postgres/libpq/src/copy.cpp": copying,
}
"""Source file with the interface to the module that loads the built library."""


ANOTHER_BUILD = pytest.mark.skipif(
    any(module.OVERRIDE in os.environ for module in LIBRARIES.values()),
    reason="another build of a library is under test",
)


def load(monkeypatch: pytest.MonkeyPatch, file: str) -> object:
    """Load the file that a variable names as a library of the interface version 3."""
    monkeypatch.setenv("UNLOADER_SOME_LIBRARY", file)
    return built_library.load("writers._some", "UNLOADER_SOME_LIBRARY", "some_", 3, {})


@ANOTHER_BUILD
def test_a_file_that_is_not_a_library_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader's own words are in the reason."""
    file = tmp_path / "broken.so"
    file.write_bytes(b"no library")
    with pytest.raises(Unusable, match=r"cannot be loaded \(.*broken\.so"):
        load(monkeypatch, str(file))


@ANOTHER_BUILD
def test_a_missing_library_is_reported_with_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout before another build of the same package has no libraries; a variable can be empty."""
    assert built_library.find("writers._some", "UNLOADER_SOME_LIBRARY") is None
    with pytest.raises(Unusable, match=rf"{re.escape(str(ROOT))}/writers has no _some\.so"):
        built_library.load("writers._some", "UNLOADER_SOME_LIBRARY", "some_", 3, {})
    with pytest.raises(Unusable, match="UNLOADER_SOME_LIBRARY is empty"):
        load(monkeypatch, "")
    monkeypatch.setenv(encoder.OVERRIDE, "")
    assert built_library.find(encoder.NAME, encoder.OVERRIDE) is None


@ANOTHER_BUILD
@pytest.mark.parametrize("version", [None, 2, 4])
def test_a_library_of_another_version_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    """One left from an older build, or of a newer package, or something else altogether."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make a library of another version with")
    source, stale = tmp_path / "stale.c", tmp_path / "stale.so"
    name = "unrelated" if version is None else "some_abi_version"
    source.write_text(f"unsigned {name}(void) {{ return {version or 0}; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", stale, source], check=True)
    with pytest.raises(Unusable, match=rf"stale\.so .* version {version}, .* needs 3"):
        load(monkeypatch, str(stale))


@ANOTHER_BUILD
@pytest.mark.parametrize("source", list(LIBRARIES))
def test_a_fresh_build_is_usable(source: str) -> None:
    """It is beside its package, and the number in its source is the one that is asked for."""
    module = LIBRARIES[source]
    found = re.search(r"ABI_VERSION = (\d+);", (ROOT / source).read_text("utf-8"))
    assert found is not None
    assert int(found[1]) == module.ABI_VERSION
    path = built_library.find(module.NAME, module.OVERRIDE)
    assert path is not None, "build it: pip install -e ."
    assert path.name.startswith(module.NAME.rpartition(".")[2])
