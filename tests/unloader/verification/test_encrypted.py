"""With their keys, encrypted files are compared with the fetched values like other files."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from encrypted_files.age import decrypted, new_keys

from unloader import api
from unloader.errors import ConfigError, VerifyMismatch
from unloader.manifest.read import with_digest
from unloader.model import (
    EncryptionOptions,
    OutputOptions,
    Request,
    SeatOptions,
    SecretReference,
    Selection,
    SourceSpec,
)
from unloader.request.names import parse_table
from writers.files.checksums import open_digest
from writers.files.sink import Sink
from writers.model import Compression, ParquetFormat, TextFormat

KEYS = new_keys()
KEY = os.urandom(32)
ROWS = 200_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys in files, and a table of two columns."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    (home / "identity").write_text(KEYS.private)
    (home / "key").write_text(base64.b64encode(KEY).decode())
    with closing(duckdb.connect(str(home / "t.db"))) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i, 'name ' || i AS v FROM range({ROWS}) r(i)")
    return home


def encrypted(home: Path, shape: TextFormat | ParquetFormat) -> EncryptionOptions:
    """Return how a format is encrypted."""
    if isinstance(shape, ParquetFormat):
        return EncryptionOptions(key=SecretReference(kind="file", name=str(home / "key")))
    identity = SecretReference(kind="file", name=str(home / "identity"))
    return EncryptionOptions(recipients=(KEYS.public,), identity=identity)


def replace_in_text(path: Path, old: bytes, new: bytes) -> None:
    """Replace the first place of a text, and encrypt all again as the program does."""
    data = decrypted(path.read_bytes(), KEYS.private)
    sink = Sink(
        path, compression=Compression(), buffer_bytes=1 << 20, buffers=2, recipients=(KEYS.public,)
    )
    sink.write(data.replace(old, new, 1))
    sink.close()


def text_with_another_value(path: Path) -> None:
    """Change one value."""
    replace_in_text(path, b"name 77\n", b"name 78\n")


def text_that_ends_early(path: Path) -> None:
    """Cut a record in two, so that the reader gives up in the middle."""
    replace_in_text(path, b"5,name 5\n", b"5\n")


def parquet_with_another_value(path: Path) -> None:
    """Change a value of a Parquet file, with pyarrow alone."""
    table = pq.read_table(path, decryption_properties=pe.create_decryption_properties(KEY))
    values = table.column("v").to_pylist()
    values[77] = "name 78"
    properties = pe.create_encryption_properties(KEY)
    changed = table.set_column(1, table.schema.field(1), [values])
    pq.write_table(changed, path, encryption_properties=properties)


def whose_manifest_agrees(out: Path, change: Callable[[Path], None]) -> None:
    """Change the first file of a run, and its manifest as if it had always been so."""
    path = out / "_manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text())
    entry = manifest["units"][0]["files"][0]
    file = out / entry["path"]
    change(file)
    digest = open_digest("xxh3")
    digest.update(file.read_bytes())
    entry.update(bytes=file.stat().st_size, checksum=f"xxh3:{digest.hexdigest()}")
    del manifest["digest"]
    path.write_bytes(with_digest((json.dumps(manifest, indent=2) + "\n").encode()))


@pytest.mark.parametrize(
    ("shape", "change", "message"),
    [
        (TextFormat(), text_with_another_value, "column v has the checksum"),
        (TextFormat(), text_that_ends_early, "differs from the data that was written"),
        (ParquetFormat(), parquet_with_another_value, "column v has the checksum"),
    ],
    ids=["text", "half a record", "parquet"],
)
def test_another_value_is_found_with_the_key(
    home: Path,
    tmp_path: Path,
    shape: TextFormat | ParquetFormat,
    change: Callable[[Path], None],
    message: str,
) -> None:
    """Without it the files are compared as they are, and values cannot be."""
    keys, out = encrypted(home, shape), tmp_path / "out"
    request = Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{home / 't.db'}"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(
            destination=str(out), format=shape, compression=Compression(), encryption=keys
        ),
        parallelism=1,
        split="none",
        seats=SeatOptions(numa="off"),
        verify="full",
    )
    assert api.unload(request)["verified"]["result"] == "ok"
    assert api.verify(out, level="full", keys=keys)["result"] == "ok"
    whose_manifest_agrees(out, change)
    assert api.verify(out)["result"] == "ok"
    with pytest.raises(ConfigError, match="reads the values"):
        api.verify(out, level="full")
    with pytest.raises(VerifyMismatch, match=message):
        api.verify(out, level="full", keys=keys)
