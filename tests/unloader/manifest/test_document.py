"""The manifest: the record of a run, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
from stages import stages

from numa.model import Topology
from partition_planner.model import ColumnInfo, PlanLimits, TableInfo
from partition_planner.planner import plan
from unloader import __version__
from unloader.errors import OutputFailed
from unloader.manifest.build import build_manifest
from unloader.manifest.model import Manifest
from unloader.manifest.read import (
    digest_at_end,
    manifest_bytes,
    parse_run,
    read_manifest,
    with_digest,
)
from unloader.model import (
    BoundSeat,
    Extract,
    FinishedUnit,
    OutputOptions,
    Projection,
    ReadColumn,
    Request,
    SecretReference,
    Selection,
    Snapshot,
    SourceSpec,
)
from unloader.placement.seating import Seating
from unloader.resolve.resolved import ResolvedOutput, ResolvedTable
from writers.model import Compression, ParquetFormat, TextFormat, WrittenFile

TABLE = TableInfo(
    schema="s",
    name="t",
    columns=(ColumnInfo(name="k", native_type="bigint"),),
    named_partitions=False,
    row_ranges=False,
)
COLUMN = ReadColumn(
    name="k",
    source_type="bigint",
    expression='"k"',
    output_type="int64",
    nullable=False,
    lossless=True,
    note="",
)
SOURCE = SourceSpec(
    kind="postgresql",
    location="postgresql://me@host/db",
    secret=SecretReference(kind="file", name="/etc/secret-file"),
)
JOB = Request(
    source=SOURCE,
    selection=Selection(where="k > 0", partitions=("p*",)),
    output=OutputOptions(
        destination="/out",
        format=TextFormat(delimiter=";"),
        compression=Compression(codec="gzip"),
    ),
    parallelism=2,
)
RUN = ResolvedTable(
    run_id="r1",
    request=JOB,
    outputs=(
        ResolvedOutput(
            options=JOB.output,
            format=JOB.output.format,
            compression=Compression(codec="gzip"),
            choice=None,
        ),
    ),
    topology=Topology(nodes=(), cpu_quota=None, note=None),
    seating=Seating(seats=(), memory_policy="preferred"),
    extract=Extract(
        source=SOURCE,
        snapshot=Snapshot(
            kind="exported-snapshot", value="7", taken_at="2024-01-31T00:00:00+00:00"
        ),
        table=TABLE,
        query=None,
        where="k > 0",
        projection=Projection(columns=(COLUMN,), route="arrow", schema=""),
    ),
    plan=plan(TABLE, PlanLimits(parallelism=1)),
    server_version="PostgreSQL 18",
)


def finished(unit: str, *names: str, rows: int = 10) -> FinishedUnit:
    """Return a unit whose files have `rows` rows and ten bytes a row."""
    files = tuple(
        WrittenFile(path=name, rows=rows, bytes=rows * 10, checksum=f"xxh3:{name}")
        for name in names
    )
    return FinishedUnit(
        unit=unit,
        attempt=2,
        rows=rows * len(names),
        files=files,
        stages=stages(fetch_s=1.0, encode_s=0.5, write_s=0.25),
        seconds=1.5,
        cpu_seconds=1.0,
        peak_rss_bytes=int(unit) * 1000,
        partition=f"p{unit}",
        partitions=(f"p{unit}",),
        seat=BoundSeat(node=1, cpus=(2, 3), memory_node=1, memory_policy="preferred"),
        worker=0,
        started_s=0.5,
    )


UNITS = (finished("2", "b.csv"), finished("1", "a.001.csv", "a.002.csv"))


def built_manifest(
    units: tuple[FinishedUnit, ...] = UNITS, run: ResolvedTable = RUN, **changes: Any
) -> Manifest:
    """Return the manifest of a complete run of two seconds, unless changed."""
    facts = {"seconds": 2.0, "cpu_seconds": 3.0, "source_rows": 30, "verify_result": "ok"}
    return build_manifest(run, units, **{"complete": True, **facts, **changes})


def document(
    units: tuple[FinishedUnit, ...] = UNITS, run: ResolvedTable = RUN, **changes: Any
) -> dict[str, Any]:
    """Return a manifest as it is written, without its digest."""
    found: dict[str, Any] = json.loads(manifest_bytes(built_manifest(units, run, **changes)))
    del found["digest"]
    return found


def written(path: Path, content: object) -> Path:
    """Write a document with its digest into a directory; return the directory."""
    text = json.dumps(content, indent=2) + "\n"
    (path / "_manifest.json").write_bytes(with_digest(text.encode()))
    return path


def test_a_manifest_reads_back_as_it_was_built(tmp_path: Path) -> None:
    """From the bytes that are written, and from the same document in another layout."""
    manifest = built_manifest()
    data = manifest_bytes(manifest)
    found = parse_run(data, tmp_path / "_manifest.json")
    assert found.digest == digest_at_end(data)
    assert replace(found, digest=None) == manifest
    assert manifest_bytes(found) == data
    found = read_manifest(written(tmp_path, document()))
    assert replace(found, digest=None) == manifest


def test_units_are_in_table_order_whatever_the_order_of_finish() -> None:
    """Units and files are listed by id, each with its seat and attempts."""
    built = document()
    assert [unit["id"] for unit in built["units"]] == ["1", "2"]
    manifest = built_manifest()
    assert list(manifest.files) == ["a.001.csv", "a.002.csv", "b.csv"]
    unit = built["units"][0]
    assert (unit["attempts"], unit["partitions"], unit["rows"]) == (2, ["p1"], 20)
    assert unit["seat"] == {
        "node": 1,
        "cpus": [2, 3],
        "memory_node": 1,
        "memory_policy": "preferred",
    }


def test_totals_are_sums_of_the_units() -> None:
    """Rows, bytes, files and speed are of all units; memory is of the largest worker."""
    totals = document()["totals"]
    assert (totals["rows"], totals["bytes"], totals["files"]) == (30, 300, 3)
    assert (totals["rows_per_second"], totals["bytes_per_second"]) == (15, 150)
    assert totals["peak_worker_rss_bytes"] == 2000
    totals = document((), seconds=0.0, complete=False)["totals"]
    assert (totals["rows"], totals["rows_per_second"], totals["peak_worker_rss_bytes"]) == (
        0,
        None,
        0,
    )


def test_status_and_facts_are_told() -> None:
    """Which program read what, at which state, checked how."""
    built = document()
    assert built["status"] == "complete"
    assert document((), complete=False)["status"] == "partial"
    assert built["unloader_version"] == __version__
    assert built["table"] == {"schema": "s", "name": "t"}
    assert built["snapshot"]["value"] == "7"
    assert built["plan"] == {"digest": RUN.plan.digest, "units": 1}
    assert built["verified"] == {"level": "count", "source_rows": 30, "result": "ok"}
    assert built["columns"][0]["source_type"] == "bigint"


def test_a_query_has_no_table() -> None:
    """The text of the query takes the place of the table's name."""
    extract = replace(RUN.extract, query="SELECT 1", snapshot=None)
    built = document((), replace(RUN, extract=extract))
    assert (built["table"], built["query"], built["snapshot"]) == (None, "SELECT 1", None)


def test_options_suffice_to_read_the_files_again() -> None:
    """The whole dialect and the codec are there, defaults included, as the types take them."""
    options = document()["options"]
    assert options["format"] == "csv"
    assert convert(options["dialect"], TextFormat) == JOB.output.format
    assert Compression(**options["compression"]) == JOB.output.compression
    assert (options["where"], options["partition"]) == ("k > 0", ["p*"])
    output = replace(RUN.output, format=ParquetFormat(row_group_rows=7))
    options = document((), replace(RUN, outputs=(output,)))["options"]
    assert options["format"] == "parquet"
    assert convert(options["dialect"], ParquetFormat).row_group_rows == 7


def test_no_secret_and_no_reference_to_one() -> None:
    """Neither a password nor the place of one is in the manifest."""
    text = json.dumps(document())
    assert "secret" not in text


def test_a_shared_file_comes_once() -> None:
    """A file that two units name is one file to check."""
    shared = (finished("1", "t.csv"), finished("2", "t.csv"))
    assert list(built_manifest(shared).files) == ["t.csv"]


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
def test_a_manifest_must_be_whole(tmp_path: Path, key: str) -> None:
    """A manifest without one of its parts is damaged, and the part is named."""
    built = document()
    del built[key]
    with pytest.raises(OutputFailed, match=f"damaged.*{key}"):
        read_manifest(written(tmp_path, built))


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
        (_set("units", 0, "files", 1, "bytes", to=True), r"\$\.units\[0\]\.files\[1\]\.bytes"),
        (_set("units", 0, "files", 1, "directory", to=1), r"\$\.units\[0\]\.files\[1\]\.directory"),
        (_set("units", 0, "files", 1, "directory", to=-1), r"\$\.units\[0\]\.files\[1\]\.direct"),
        (_set("totals", "rows", to=1.5), r"\$\.totals\.rows"),
        (_set("status", to="done"), r"done.*\$\.status"),
        (_set("options", "dialect", "kind", to="xml"), r"xml.*\$\.options\.dialect\.kind"),
        (_set("options", "new", to=1), r"new.*\$\.options"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(
    tmp_path: Path, change: Callable[[Any], None], place: str
) -> None:
    """Where the document is whole and only one of its values is wrong."""
    built = document()
    change(built)
    with pytest.raises(OutputFailed, match=f"_manifest.json is damaged: .*{place}") as caught:
        read_manifest(written(tmp_path, built))
    assert caught.value.hint


def test_a_directory_without_one_holds_no_run(tmp_path: Path) -> None:
    """The hint names the option that had the directory."""
    with pytest.raises(OutputFailed, match=r"has no finished run.*--to"):
        read_manifest(tmp_path)
