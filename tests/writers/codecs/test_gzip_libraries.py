"""Whichever library makes them, gzip members are read by everybody, and it is said which did."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from writers.codecs.compression import open_compressor
from writers.codecs.gzip_libraries import gzip_library
from writers.codecs.libraries import codec_library
from writers.model import Compression

PIECES = [b"".join(b"%d,n%d\n" % (at, at % 89) for at in range(9000)), b"", b"x", bytes(300_000)]
LEVELS = (None, *range(1, 10))


def served_by(level: int | None) -> str:
    """Return the name of the library that is to serve a level here."""
    isal = importlib.util.find_spec("isal") is not None
    zlib_ng = importlib.util.find_spec("zlib_ng") is not None
    if isal and (level is None or level <= 3):
        return "isal"
    return "zlib-ng" if zlib_ng and (level is None or level >= 4) else "zlib"


@pytest.mark.parametrize("level", LEVELS)
def test_members_of_every_level_are_read_by_others(tmp_path: Path, level: int | None) -> None:
    """zlib, which checks sum and length, and the gzip program read several members in a row."""
    compressor = open_compressor(Compression(codec="gzip", level=level))
    members = [bytes(compressor.frame(piece)) for piece in PIECES]
    assert [gzip.decompress(member) for member in members] == PIECES
    # No time stamp and no name: the same bytes tomorrow.
    assert {member[:8] for member in members} == {b"\x1f\x8b\x08" + bytes(5)}
    assert members == [bytes(compressor.frame(memoryview(piece))) for piece in PIECES]
    path = tmp_path / "members.gz"
    path.write_bytes(b"".join(members))
    if shutil.which("gzip") is None:
        pytest.skip("the program gzip is not installed")
    done = subprocess.run(["gzip", "-dc", str(path)], capture_output=True, check=True)
    assert done.stdout == b"".join(PIECES)


@pytest.mark.parametrize("level", LEVELS)
def test_the_library_of_a_level_follows_from_what_is_installed(level: int | None) -> None:
    """isal serves 1 to 3 and the default, zlib-ng 4 to 9, zlib whatever they do not."""
    library = gzip_library(level)
    assert library.name == served_by(level)
    assert library.level == (level or {"isal": 3, "zlib-ng": 6, "zlib": 6}[library.name])
    said = codec_library("csv", Compression(codec="gzip", level=level))
    assert said == f"{library.name} {library.version}, level {library.level}"
