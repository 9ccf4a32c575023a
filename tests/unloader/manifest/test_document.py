"""The manifest of a run: its content, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import convert
from msgspec.structs import replace
from processes import command

from unloader import __version__
from unloader.errors import OutputFailed
from unloader.manifest.read import (
    digest_at_end,
    manifest_bytes,
    parse_run,
    read_manifest,
    with_digest,
)
from writers.model import Compression, ParquetFormat, TextFormat


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 30 rows with a small partition, then a larger one; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(30)")
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT * FROM (VALUES "
            "('main', 't', 'p1', 0, 0, 9), ('main', 't', 'p2', 1, 10, 29)) "
            "v(table_schema, table_name, partition_name, position, first_rowid, last_rowid)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def finished(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run by one worker, which reads the larger partition first."""
    out = tmp_path_factory.mktemp("run") / "out"
    command.run(
        *("run", source, "--table", "t", "--to", str(out), "--split", "partition"),
        *("--parallelism", "1", "--where", "k > 0", "--partition", "p*"),
        *("--delimiter", ";", "--compression", "gzip"),
    )
    return out


@pytest.fixture
def document(finished: Path) -> dict[str, Any]:
    """The manifest of that run without its digest."""
    found: dict[str, Any] = json.loads((finished / "_manifest.json").read_bytes())
    del found["digest"]
    return found


def written(path: Path, content: object) -> Path:
    """Write a document with its digest into a directory; return the directory."""
    text = json.dumps(content, indent=2) + "\n"
    (path / "_manifest.json").write_bytes(with_digest(text.encode()))
    return path


def test_a_manifest_reads_back_as_it_was_written(
    finished: Path, document: dict[str, Any], tmp_path: Path
) -> None:
    """From the bytes of the run, and from the same document in another layout."""
    data = (finished / "_manifest.json").read_bytes()
    manifest = parse_run(data, finished / "_manifest.json")
    assert manifest.digest == digest_at_end(data)
    assert manifest_bytes(manifest) == data
    found = read_manifest(written(tmp_path, document))
    assert replace(found, digest=None) == replace(manifest, digest=None)


def test_units_are_in_table_order_whatever_the_order_of_work(document: dict[str, Any]) -> None:
    """The totals are the sums of the units; memory is of the largest worker."""
    first, second = document["units"]
    assert first["started_s"] > second["started_s"]
    assert [(unit["partitions"], unit["rows"]) for unit in (first, second)] == [
        (["p1"], 9),
        (["p2"], 20),
    ]
    totals = document["totals"]
    files = [*first["files"], *second["files"]]
    assert (totals["rows"], totals["files"]) == (29, len(files))
    assert totals["bytes"] == sum(file["bytes"] for file in files)
    assert totals["rows_per_second"] == pytest.approx(29 / totals["seconds"], abs=1)
    assert totals["peak_worker_rss_bytes"] == max(
        unit["peak_rss_bytes"] for unit in (first, second)
    )


def test_status_and_facts_are_recorded(document: dict[str, Any]) -> None:
    """Which program read which table, and how the rows were checked."""
    assert (document["status"], document["unloader_version"]) == ("complete", __version__)
    assert document["table"] == {"schema": "main", "name": "t"}
    assert document["plan"]["units"] == 2
    verified = document["verified"]
    assert (verified["level"], verified["source_rows"], verified["result"]) == ("count", 29, "ok")
    assert document["columns"][0]["source_type"] == "BIGINT"


def test_options_suffice_to_read_the_files_again(
    source: str, document: dict[str, Any], tmp_path: Path
) -> None:
    """The whole dialect and the codec are there, defaults included; a query has no table."""
    options = document["options"]
    assert options["format"] == "csv"
    assert convert(options["dialect"], TextFormat) == TextFormat(delimiter=";")
    assert Compression(**options["compression"]).codec == "gzip"
    assert (options["where"], options["partition"]) == ("k > 0", ["p*"])
    to = ("--to", str(tmp_path / "out"), "--format", "parquet", "--row-group-rows", "7")
    command.run("run", source, "--query", "SELECT 1 AS a", *to)
    found = command.manifest_of(tmp_path / "out")
    assert (found["table"], found["query"]) == (None, "SELECT 1 AS a")
    assert found["options"]["format"] == "parquet"
    assert convert(found["options"]["dialect"], ParquetFormat).row_group_rows == 7


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "damaged"),
        (b"{]", "damaged"),
        (b"\xdcff", "damaged"),
        (b"[1]", "damaged"),
        (b"{}", "format version None"),
        (b'{"format_version": "1"}', "format version '1'"),
        (b'{"format_version": 1}', "format version 1, but this program reads 2"),
        (b'{"format_version": 2}', "does not end with its digest"),
        (b'{"format_version": 2, "units": ' + b"[" * 100_000, "nested|recursion"),
        (b'{"format_version": ' + b"[" * 100_000, "nested|recursion"),
        (b'{"format_version": ' + b"1" * 5_000 + b"}", "damaged.*out of range"),
        (b'{"format_version": NaN}', "damaged"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: bytes, what: str) -> None:
    """The error names the file, its fault and the remedy."""
    (tmp_path / "_manifest.json").write_bytes(text)
    with pytest.raises(OutputFailed, match=what) as caught:
        read_manifest(tmp_path)
    assert "_manifest.json" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("key", ["run_id", "table", "query", "snapshot", "options", "totals"])
def test_a_manifest_must_be_whole(tmp_path: Path, document: dict[str, Any], key: str) -> None:
    """A manifest without one of its parts is damaged, and the part is named."""
    del document[key]
    with pytest.raises(OutputFailed, match=f"damaged.*{key}"):
        read_manifest(written(tmp_path, document))


def _set(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *above, last = path
        for key in above:
            document = document[key]
        document[last] = to

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set("units", 1, "files", 0, "bytes", to="7"), r"\$\.units\[1\]\.files\[0\]\.bytes"),
        (_set("units", 0, "files", 0, "bytes", to=True), r"\$\.units\[0\]\.files\[0\]\.bytes"),
        (_set("units", 0, "files", 0, "directory", to=1), r"\$\.units\[0\]\.files\[0\]\.directory"),
        (_set("units", 0, "files", 0, "directory", to=-1), r"\$\.units\[0\]\.files\[0\]\.direct"),
        (_set("totals", "rows", to=1.5), r"\$\.totals\.rows"),
        (_set("status", to="done"), r"done.*\$\.status"),
        (_set("options", "dialect", "kind", to="xml"), r"xml.*\$\.options\.dialect\.kind"),
        (_set("options", "new", to=1), r"new.*\$\.options"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(
    tmp_path: Path, document: dict[str, Any], change: Callable[[Any], None], place: str
) -> None:
    """Where the document is whole and only one of its values is wrong."""
    change(document)
    with pytest.raises(OutputFailed, match=f"_manifest.json is damaged: .*{place}") as caught:
        read_manifest(written(tmp_path, document))
    assert caught.value.hint


def test_a_directory_without_one_holds_no_run(tmp_path: Path) -> None:
    """The hint names the option that had the directory."""
    with pytest.raises(OutputFailed, match=r"has no finished run.*--to"):
        read_manifest(tmp_path)
