"""Publishing and joining of files: whole under their final names, or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard

from writers.errors import WriteError
from writers.files.merge import merge_files
from writers.files.publish import remove_staged, write_atomically, write_new
from writers.files.read_back import RemoteFile
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat, WrittenFile
from writers.parquet.writer import ParquetWriter
from writers.text.text_writer import EncodedTextWriter


def test_failed_replacement_leaves_the_old_file(full_disk: Path) -> None:
    """On a full disk the old bytes stay, the temporary file goes, and the error says why."""
    path = full_disk / "_manifest.json"
    write_atomically(path, b"old")
    with pytest.raises(WriteError, match=r"_manifest\.json: .*\((ENOSPC|EFBIG)\)\. Next: "):
        write_atomically(path, bytes(2 << 20))
    assert path.read_bytes() == b"old"
    assert [found.name for found in full_disk.iterdir()] == ["_manifest.json"]


def test_staged_files_of_one_attempt_are_removed(tmp_path: Path) -> None:
    """Only staged files with such a stem go; a missing directory is accepted."""
    for name in ("u1.csv.part", "u1.001.csv.part", "u2.csv.part", "u1.csv", "u12.part"):
        (tmp_path / name).write_bytes(b"")
    remove_staged(tmp_path, ["u1", "u3"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u1.csv", "u12.part", "u2.csv.part"]
    remove_staged(tmp_path, ["u2", "u12"])
    assert [path.name for path in tmp_path.iterdir()] == ["u1.csv"]
    remove_staged(tmp_path / "gone", ["u1"])


@pytest.mark.parametrize("renames", [True, False])
def test_a_new_file_is_never_written_over_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """The existing file stays, and nothing else is left; also where only links work.

    That is so on NFS, whose refusal cannot be had on this disk.
    """

    def refused(source: Path, target: Path) -> None:
        raise OSError(errno.EINVAL, "refused", str(source))

    if not renames:
        monkeypatch.setattr("writers.files.publish.rename_if_free", refused)
    path = tmp_path / "m.json"
    write_new(path, b"first")
    with pytest.raises(FileExistsError):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["m.json"]


HEADER = b"number,name\n"


def text_spec(directory: Path, codec: Any) -> OutputSpec:
    """Return a spec for text with that codec."""
    return OutputSpec(
        directory=str(directory), format=TextFormat(), compression=Compression(codec=codec)
    )


def parquet_spec(directory: Path, **parquet: Any) -> OutputSpec:
    """Return a spec for Parquet with that layout."""
    return OutputSpec(
        directory=str(directory),
        format=ParquetFormat(**parquet),
        compression=Compression(codec="zstd"),
    )


def merge_spec(directory: Path, kind: str) -> OutputSpec:
    """Return a spec for `csv` or `parquet`."""
    output_format: Any = TextFormat() if kind == "csv" else ParquetFormat()
    return OutputSpec(directory=str(directory), format=output_format, compression=Compression())


def write_some(directory: Path, kind: str, stem: str, rows: int) -> WrittenFile:
    """Write numbered rows to one staged file, `csv` or `parquet`."""
    if kind == "csv":
        return write_text(directory, stem, range(rows), "none")
    return write_parquet(directory, stem, range(rows))


def write_text(directory: Path, stem: str, lines: range, codec: Any) -> WrittenFile:
    """Write numbered records to one staged file without a header."""
    writer = EncodedTextWriter(text_spec(directory, codec), stem)
    writer.write(b"".join(b"%d,row %d\n" % (n, n) for n in lines))
    (file,) = writer.close(len(lines))
    return file


def write_parquet(directory: Path, stem: str, numbers: range, **parquet: Any) -> WrittenFile:
    """Write numbered rows to one staged Parquet file."""
    names = pa.array([f"row {n}" for n in numbers], pa.string())
    table = pa.table({"number": pa.array(numbers, pa.int64()), "name": names})
    writer = ParquetWriter(parquet_spec(directory, **parquet), table.schema, stem)
    for batch in table.to_batches():
        writer.write(batch)
    (file,) = writer.close()
    return file


def decompress(path: Path, codec: str) -> bytes:
    if codec == "gzip":
        assert gzip.decompress(path.read_bytes()) == decompress_by_program(path)
        return decompress_by_program(path)
    if codec == "zstd":
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            return reader.read()
    if codec == "lz4":
        with pa.CompressedInputStream(pa.OSFile(str(path)), "lz4") as stream:
            return bytes(stream.read())
    return path.read_bytes()


def decompress_by_program(path: Path) -> bytes:
    """Decompress with the gzip program."""
    return subprocess.run(["gzip", "-dc", str(path)], check=True, capture_output=True).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4"])
def test_text_is_joined_in_order(tmp_path: Path, codec: Any) -> None:
    """The header comes once, the records follow in order, and the inputs stay."""
    parts = [range(0, 2000), range(0), range(2000, 5000)]
    files = [write_text(tmp_path, f"u{i}", part, codec) for i, part in enumerate(parts)]
    merged = merge_files(files, text_spec(tmp_path, codec), "all", header=HEADER)
    path = tmp_path / merged.path
    assert decompress(path, codec) == HEADER + b"".join(
        b"%d,row %d\n" % (n, n) for n in range(5000)
    )
    assert merged.rows == 5000
    assert merged.bytes == path.stat().st_size
    assert merged.checksum == f"xxh3:{xxhash.xxh3_64_hexdigest(path.read_bytes())}"
    assert {found.name for found in tmp_path.iterdir()} == {each.path for each in (*files, merged)}
    assert merged.path.startswith("all.csv")
    assert merged.path.endswith(".part")


def test_parquet_is_joined_in_full_row_groups(tmp_path: Path) -> None:
    """Rows keep their order and the short row groups at the ends of the inputs are filled."""
    files = [
        write_parquet(tmp_path, f"u{i}", part, row_group_rows=100)
        for i, part in enumerate([range(0, 250), range(0), range(250, 330)])
    ]
    merged = merge_files(files, parquet_spec(tmp_path, row_group_rows=100), "all")
    path = tmp_path / merged.path
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sizes == [100, 100, 100, 30]
    assert pq.read_table(path)["number"].to_pylist() == list(range(330))
    assert (merged.rows, merged.path) == (330, "all.parquet.part")
    assert merged.checksum == f"xxh3:{xxhash.xxh3_64_hexdigest(path.read_bytes())}"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_inputs_from_elsewhere_are_joined(tmp_path: Path, kind: str) -> None:
    """Inputs that have no path here give the same file as the ones that have."""
    files = [write_some(tmp_path, kind, f"u{n}", 100) for n in range(2)]
    expected = merge_files(files, merge_spec(tmp_path, kind), "local")
    stored = {file.path: (tmp_path / file.path).read_bytes() for file in files}
    for name in stored:
        (tmp_path / name).unlink()

    def read(name: str) -> RemoteFile:
        return RemoteFile(name=name, open=lambda: io.BytesIO(stored[name]))

    merged = merge_files(files, merge_spec(tmp_path, kind), "remote", read=read)
    assert (merged.checksum, merged.rows) == (expected.checksum, 200)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_failure_keeps_the_inputs(tmp_path: Path, kind: str) -> None:
    """With an input missing nothing is removed, and no joined file is left."""
    files = [write_some(tmp_path, kind, f"u{n}", 10) for n in range(3)]
    (tmp_path / files[1].path).unlink()
    with pytest.raises(WriteError, match=r"cannot read .*u1\..*Next: "):
        merge_files(files, merge_spec(tmp_path, kind), "all")
    assert sorted(path.name for path in tmp_path.iterdir()) == [files[0].path, files[2].path]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_input_that_was_cut_is_found(tmp_path: Path, kind: str) -> None:
    """An input that is shorter than it was reported is an error that names it."""
    files = [write_some(tmp_path, kind, f"u{n}", 100) for n in range(2)]
    path = tmp_path / files[1].path
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(WriteError, match=r"u1\..*Next: "):
        merge_files(files, merge_spec(tmp_path, kind), "all")
    assert sorted(found.name for found in tmp_path.iterdir()) == [file.path for file in files]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_result_never_overwrites_an_input(tmp_path: Path, kind: str) -> None:
    """An input that has the name of the result is refused and stays whole."""
    file = write_some(tmp_path, kind, "all", 10)
    with pytest.raises(WriteError, match=r"into itself.*Next: "):
        merge_files([file], merge_spec(tmp_path, kind), "all")
    assert (tmp_path / file.path).stat().st_size == file.bytes


def test_other_columns_are_refused(tmp_path: Path) -> None:
    """Parquet files of different schemas are not joined."""
    first = write_parquet(tmp_path, "u0", range(3))
    pq.write_table(pa.table({"other": [1]}), tmp_path / "u1.parquet.part")
    second = WrittenFile(path="u1.parquet.part", rows=1, bytes=1, checksum="")
    with pytest.raises(WriteError, match=r"u1\.parquet\.part has other columns.*Next: "):
        merge_files([first, second], parquet_spec(tmp_path), "all")


def test_full_disk_is_told(full_disk: Path) -> None:
    """When the joined file does not fit beside the inputs, they stay and it goes."""
    files = [write_text(full_disk, f"u{n}", range(25_000), "none") for n in range(2)]
    with pytest.raises(WriteError, match=r"all\.csv\.part: .*\((ENOSPC|EFBIG)\)\. Next: "):
        merge_files(files, text_spec(full_disk, "none"), "all", header=bytes(400_000))
    assert len(list(full_disk.iterdir())) == 2


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("calls", [1, 3])
def test_joining_can_be_broken_off(tmp_path: Path, kind: str, calls: int) -> None:
    """An error of the check between two pieces is raised; the inputs stay and no joined file."""
    files = [write_some(tmp_path, kind, f"u{n}", 10) for n in range(3)]
    left = iter(range(calls))

    def check() -> None:
        if next(left) == calls - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_files(files, merge_spec(tmp_path, kind), "all", check=check)
    assert sorted(found.name for found in tmp_path.iterdir()) == [file.path for file in files]
