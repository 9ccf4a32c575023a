"""Encrypted Parquet: DuckDB reads it with the key, and no program without."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from writers.content.reading import file_sums
from writers.errors import FormatError, WriteError
from writers.files.merge import merge_files
from writers.files.read_back import read_back
from writers.model import (
    Compression,
    Encryption,
    OutputSpec,
    ParquetFormat,
    TextFormat,
    WrittenFile,
)
from writers.registry import open_writer
from writers.schema import schema_text

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
