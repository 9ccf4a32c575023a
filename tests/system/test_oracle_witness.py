"""The driver as the witness of the native fetch, in whole runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import oracledb
import pytest
from oracle import runs
from oracle.leg import database
from oracle_server import OracleServer

from unloader.sources.oracle.native import decoder
from unloader.sources.oracle.statement import NATIVE
from writers import built_library

pytestmark = pytest.mark.skipif(
    built_library.reason(decoder.library) is not None,
    reason=f"the native fetch cannot be used: {built_library.reason(decoder.library)}",
)

ROWS = len(runs.PARTITIONS) * runs.PARTITION_ROWS

WRONG = """
import pyarrow as pa
from unloader.sources.oracle.native import batches, decoder
from unloader.sources.oracle import reader
reader.WITNESSED_ROWS = 1000
take, seen = decoder.RowDecoder.take, 0
def wrong(self, kinds):
    global seen
    arrays = take(self, kinds)
    seen += len(arrays[0])
    if seen > 5000:
        changed = arrays[1].to_pylist()
        arrays[1] = pa.array([text and text[::-1] + "x" for text in changed], arrays[1].type)
    return arrays
decoder.RowDecoder.take = wrong
"""
"""Of `sitecustomize.py`: in each process the second column is wrong after 5,000 rows. It stands in
for a fault of the decoder, which no response is known to cause."""


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server with PADDED."""
    made = database()
    runs.padded_table(made)
    with OracleServer(made) as running:
        yield running


def unload(server: OracleServer, to: Path, *options: str, code: str = "") -> runs.Outcome:
    """Unload a partition at a time, with small fetches."""
    path = os.environ.get("PYTHONPATH", "")
    if code:
        (to.parent / "sitecustomize.py").write_text(code)
        path = os.pathsep.join((str(to.parent), path))
    small = ("--split", "partition", "--fetch-memory", runs.SMALL_FETCH, "--parallelism", "1")
    return runs.unload(server, "PADDED", to, *small, *options, env={"PYTHONPATH": path})


def test_a_wrong_value_gives_the_rows_to_the_driver(server: OracleServer, tmp_path: Path) -> None:
    """Also late in the run; the files are right, the log and the manifest name the column."""
    right = unload(server, tmp_path / "right", "--fetch", "tuples")
    assert right.status == 0, right.log
    found = unload(server, tmp_path / "found", "--fetch-witness", "1", code=WRONG)
    assert found.status == 0, found.log
    assert found.files == right.files
    assert "the native fetch was given up: the driver decodes some rows to other values" in (
        found.log
    )
    units = found.manifest["units"]
    assert ["refused" in unit for unit in units] == [False, True, False, False]
    assert "column PAD" in units[1]["refused"]
    # The first unit was natively read; after the difference there is nothing to compare.
    assert [unit.get("witnessed_rows", 0) for unit in units] == [runs.PARTITION_ROWS, 0, 0, 0]


def test_rows_with_a_witness_are_counted(server: OracleServer, tmp_path: Path) -> None:
    """All rows of a table of less than 20,000 rows; with --fetch native the first of each unit."""
    for number, (options, least, most) in enumerate(
        (((), ROWS, ROWS), (("--fetch", "native"), 1, 200), (("--fetch", "arrow"), 0, 0))
    ):
        done = unload(server, tmp_path / str(number), *options)
        assert done.status == 0, done.log
        rows = sum(unit.get("witnessed_rows", 0) for unit in done.manifest["units"])
        assert least <= rows <= most


@pytest.mark.long("other versions of a driver")
def test_the_release_before_is_fetched_natively_too(tmp_path: Path) -> None:
    """The tests of the native fetch pass with each supported release of python-oracledb."""
    other, root = "26.0.1", Path(__file__).parents[2]
    assert {other, oracledb.__version__} == NATIVE
    package = tmp_path / "package"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input")
    got = subprocess.run(
        [*pip, "--target", str(package), f"oracledb=={other}"], capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"python-oracledb {other} cannot be installed here: {got.stderr[-300:]}")
    path = os.pathsep.join((str(package), os.environ.get("PYTHONPATH", "")))
    files = (
        "tests/unloader/sources/oracle/native/test_fetch.py",
        "tests/system/test_oracle_types.py",
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-k",
            "(23ai or native) and not 19c",
            *files,
        ],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
