"""Formats by name: ours, those of other packages, and what cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from writers import registry
from writers.errors import FormatError
from writers.model import Compression, ParquetFormat, TextFormat
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
    """The refusal says what is possible."""
    with pytest.raises(FormatError, match=rf"{said}.*\.") as caught:
        registry.check(output_format, Compression(codec=codec, level=level))
    assert "Next: " in str(caught.value)


def test_format_of_another_package(tmp_path: Path) -> None:
    """An installed package's entry point adds a format, with its own extension and codecs."""
    info = tmp_path / "outside-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[unloader.formats]\nlines = outside:Lines\n")
    (tmp_path / "outside.py").write_text(
        "class Format:\n    format_name = 'lines'\n\n"
        "class Lines:\n    extension = 'txt'\n    codecs = ('none', 'zstd')\n"
        "    def __init__(self, spec, schema, stem):\n        self.stem = stem\n"
    )
    script = (
        "from outside import Format\n"
        "from writers import registry\n"
        "from writers.errors import FormatError\n"
        "from writers.model import Compression, OutputSpec\n"
        "spec = OutputSpec(directory='.', format=Format(), compression=Compression())\n"
        "print(registry.formats(), registry.open_writer(spec, None, 'u1').stem)\n"
        "print(registry.extension('lines', Compression(codec='zstd')))\n"
        "try:\n    registry.check('lines', Compression(codec='gzip'))\n"
        "except FormatError as exc:\n    print(exc)\n"
    )
    root = Path(registry.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{tmp_path}:{root}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    formats, extension, refusal = run.stdout.splitlines()
    assert formats == "('csv', 'parquet', 'lines') u1"
    assert extension == "txt"
    assert refusal.startswith("lines files cannot be compressed with gzip. Next: ")


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
