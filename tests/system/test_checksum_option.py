"""--checksum from the run through the joined file to verify, which goes by the manifest."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest
from processes import command


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a small table."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, i * 2 AS d FROM range(5000) r(i)")
    return f"duckdb://{path}"


@pytest.mark.parametrize(
    ("name", "options"), [("crc32c", ()), ("sha256", ("--file-per", "table", "--direct-io"))]
)
def test_verify_computes_what_the_manifest_names(
    database: str, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    """Files are described with the checksum asked for, and verify finds a changed byte with it."""
    if name == "crc32c" and find_spec("crc32c") is None:
        pytest.skip("the extra `checksums` is not installed")
    dest = tmp_path / "out"
    command.run(
        "run", database, "--table", "t", "--to", str(dest), "--checksum", name, "--quiet",
        "--verify", "full", *options,
    )  # fmt: skip
    manifest = command.manifest_of(dest)
    (file,) = manifest["units"][0]["files"]
    assert manifest["options"]["checksum"] == name
    assert file["checksum"].startswith(f"{name}:")
    path = dest / file["path"]
    if name == "sha256":
        assert file["checksum"] == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert json.loads(command.run("verify", str(dest), "--json"))["result"] == "ok"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    assert f"checksum {name}:" in command.error_of("verify", str(dest), status=8)
