"""Encrypted text and Parquet: other implementations read them with the key alone."""

from __future__ import annotations

import base64
import gzip
import os
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from encrypted_files.age import NotDecrypted, decrypted, new_keys

from writers.content.reading import file_sums
from writers.encryption.age import Decrypted, public_keys
from writers.errors import FormatError, WriteError
from writers.files.merge import merge_files
from writers.files.read_back import read_back
from writers.files.sink import Sink
from writers.model import (
    Compression,
    Encryption,
    OutputSpec,
    ParquetFormat,
    TextFormat,
    WrittenFile,
)
from writers.registry import open_encoded_writer, open_writer
from writers.schema import schema_text

KEYS = new_keys()
CHUNK = 64 * 1024
"""What age encrypts at a time."""


def sink(path: Path, *recipients: str, codec: Any = "none", **options: Any) -> Sink:
    """Return a sink with small buffers."""
    return Sink(
        path,
        compression=Compression(codec=codec),
        buffer_bytes=100_000,
        buffers=2,
        recipients=recipients or (KEYS.public,),
        **options,
    )


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 1_000_000])
def test_another_implementation_reads_files_of_any_size(tmp_path: Path, size: int) -> None:
    """Chunks end at any place, and the checksum is computed from the encrypted bytes."""
    data = os.urandom(size)
    output = sink(tmp_path / "t.age")
    for start in range(0, size, 30_000):
        output.write(data[start : start + 30_000])
    written, _ = output.close()
    file = (tmp_path / "t.age").read_bytes()
    assert (decrypted(file, KEYS.private), len(file)) == (data, written)
    with open(tmp_path / "t.age", "rb") as encrypted:
        assert Decrypted(encrypted, (KEYS.private,)).readall() == data


@pytest.mark.parametrize("direct", [False, True])
def test_frames_are_encrypted_and_each_recipient_reads_them(tmp_path: Path, direct: bool) -> None:
    """The codec comes first, so decryption gives a compressed file."""
    other, data = new_keys(), b"planted value\n" * 40_000
    output = sink(tmp_path / "t", KEYS.public, other.public, codec="gzip", direct_io=direct)
    output.write(data)
    output.settle()
    output.write(data)
    output.close()
    file = (tmp_path / "t").read_bytes()
    for keys in (KEYS, other):
        assert gzip.decompress(decrypted(file, keys.private)) == data * 2
    with pytest.raises(NotDecrypted, match="no recipient"):
        decrypted(file, new_keys().private)


def test_what_is_given_up_has_no_valid_end(tmp_path: Path) -> None:
    """A reader of a pipe cannot take an interrupted output for a whole one."""
    pipe, found = tmp_path / "pipe", bytearray()
    os.mkfifo(pipe)
    reads = threading.Event()

    def read() -> None:
        with open(pipe, "rb") as file:
            reads.set()
            found.extend(file.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    keeping = os.open(pipe, os.O_RDWR)
    assert reads.wait(180)
    output = sink(pipe)
    os.close(keeping)
    output.write(bytes(500_000))
    output.settle()
    output.abort()
    reader.join(180)
    assert len(found) > CHUNK
    with pytest.raises(NotDecrypted, match="not the last one"):
        decrypted(bytes(found), KEYS.private)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: -len(data) // 2],
        lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
        lambda data: data + b"x",
        lambda data: b"id,name\n1,x\n",
    ],
    ids=["a byte less", "half of it", "a bit", "a byte more", "plain text"],
)
def test_what_is_damaged_is_not_read(tmp_path: Path, change: Any) -> None:
    """Neither is a file that ends early, which causes no error in a pipe."""
    output = sink(tmp_path / "t")
    output.write(bytes(300_000))
    output.close()
    (tmp_path / "t").write_bytes(change((tmp_path / "t").read_bytes()))
    with (
        open(tmp_path / "t", "rb") as file,
        Decrypted(file, (KEYS.private,)) as opened,
        pytest.raises(ValueError, match="cannot be decrypted"),
    ):
        opened.readall()


def test_keys_that_are_none_are_refused_and_not_shown(tmp_path: Path) -> None:
    """A recipient before there is a file, for it may be a private key."""
    for text in (KEYS.private, KEYS.public[:-1], "age1x", ""):
        with pytest.raises(FormatError, match="recipient 2 is not a public key") as caught:
            sink(tmp_path / "t", KEYS.public, text)
        assert not text or text not in str(caught.value)
    assert not (tmp_path / "t").exists()
    assert public_keys((KEYS.private,)) == (KEYS.public,)
    with pytest.raises(FormatError, match="private key of age") as caught:
        public_keys((KEYS.private[:-1],))
    assert KEYS.private[:-1] not in str(caught.value)


def test_text_that_arrives_ready_is_encrypted_too(tmp_path: Path) -> None:
    """The route of databases that make the text themselves."""
    spec = OutputSpec(
        directory=str(tmp_path),
        format=TextFormat(),
        compression=Compression(),
        encryption=Encryption(recipients=(KEYS.public,)),
    )
    writer = open_encoded_writer(spec, "t", b"id\n")
    writer.write(b"1\n2\n")
    (file,) = writer.close(2)
    assert file.path == "t.csv.age.part"
    assert decrypted((tmp_path / file.path).read_bytes(), KEYS.private) == b"id\n1\n2\n"


KEY = os.urandom(32)
TABLE = pa.table(
    {
        "id": pa.array(range(5000)),
        "planted_name": [None if at % 7 == 0 else f"planted {at}" for at in range(5000)],
    }
)


def spec(directory: Path, key: bytes | None = KEY, **layout: Any) -> OutputSpec:
    """Return how files of several row groups are written."""
    return OutputSpec(
        directory=str(directory),
        format=ParquetFormat(row_group_rows=2000, **layout),
        compression=Compression(codec="none"),
        encryption=Encryption(keyed=True, key=key),
    )


def written(output: OutputSpec, stem: str = "t") -> WrittenFile:
    """Write the table."""
    writer = open_writer(output, TABLE.schema, stem)
    for batch in TABLE.to_batches(max_chunksize=1500):
        writer.write(batch)
    (file,) = writer.close()
    return file


def read_with_duckdb(path: Path, key: bytes) -> list[tuple[Any, ...]]:
    """Return the rows as DuckDB reads them."""
    with duckdb.connect() as connection:
        coded = base64.b64encode(key).decode()
        connection.execute(f"PRAGMA add_parquet_key('k', '{coded}')")
        return connection.execute(
            f"SELECT * FROM read_parquet('{path}', encryption_config = {{footer_key: 'k'}})"
        ).fetchall()


@pytest.mark.parametrize("layout", [{}, {"statistics": False}, {"version": "1.0"}])
def test_duckdb_reads_it_with_the_key_alone(tmp_path: Path, layout: dict[str, Any]) -> None:
    """The file contains no value and no name of a column."""
    path = tmp_path / written(spec(tmp_path, **layout)).path
    data = path.read_bytes()
    assert (data[:4], b"planted" in data) == (b"PARE", False)
    rows = read_with_duckdb(path, KEY)
    assert rows == list(zip(*TABLE.to_pydict().values(), strict=True))
    with pytest.raises(duckdb.Error, match="right key"):
        read_with_duckdb(path, os.urandom(32))
    with duckdb.connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(f"SELECT * FROM read_parquet('{path}')")


@pytest.mark.parametrize("size", [16, 24, 32])
def test_it_is_read_back_with_the_same_key(tmp_path: Path, size: int) -> None:
    """Records are counted and values hashed; without the key the file is read as a whole."""
    output = spec(tmp_path, os.urandom(size))
    file = written(output)
    path, shape, codec = tmp_path / file.path, output.format, output.compression
    found = read_back(path, shape, codec, rows=True, encryption=output.encryption)
    assert (found.rows, found.bytes, found.checksum) == (5000, file.bytes, file.checksum)
    message = schema_text(TABLE.schema)
    assert file_sums(path, output, message, header=True, check=lambda: None).rows == 5000
    unread = read_back(path, shape, codec, rows=True, encryption=Encryption(keyed=True))
    assert (unread.rows, unread.checksum) == (None, file.checksum)
    other = Encryption(keyed=True, key=os.urandom(size))
    with pytest.raises(WriteError, match="decrypt"):
        read_back(path, shape, codec, rows=True, encryption=other)


def test_files_are_joined_under_the_same_key(tmp_path: Path) -> None:
    """The joined file is as encrypted as its parts."""
    output = spec(tmp_path)
    merged = merge_files([written(output, "a"), written(output, "b")], output, "table")
    assert len(read_with_duckdb(tmp_path / merged.path, KEY)) == merged.rows == 10_000
    assert b"planted" not in (tmp_path / merged.path).read_bytes()


def test_nothing_is_written_in_the_open_by_mistake(tmp_path: Path) -> None:
    """No key, one that cannot be used, and what belongs to the other format are errors."""
    with pytest.raises(FormatError, match="have no key"):
        written(spec(tmp_path, None))
    with pytest.raises(FormatError, match="5 bytes"):
        written(spec(tmp_path, b"short"))
    with pytest.raises(FormatError, match="Bloom"):
        written(spec(tmp_path, bloom_filters=("id",)))
    text = OutputSpec(
        directory=str(tmp_path),
        format=TextFormat(),
        compression=Compression(),
        encryption=Encryption(keyed=True, key=KEY),
    )
    with pytest.raises(FormatError, match="text"):
        open_writer(text, TABLE.schema, "t")
    recipients = OutputSpec(
        directory=str(tmp_path),
        format=ParquetFormat(),
        compression=Compression(),
        encryption=Encryption(recipients=("age1x",)),
    )
    with pytest.raises(FormatError, match="age"):
        open_writer(recipients, TABLE.schema, "t")
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_in_no_representation() -> None:
    """A traceback or a log that shows the options does not show it."""
    shown = repr(Encryption(keyed=True, key=KEY, identities=("AGE-SECRET-KEY-1X",)))
    assert repr(KEY) not in shown
    assert "SECRET" not in shown
