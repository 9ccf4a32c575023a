"""`verify`: every kind of damage to a finished run is found, and nothing else is reported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace

from unloader import api
from unloader.errors import OutputFailed, VerifyMismatch
from unloader.events import Event, Notice, Verified
from unloader.manifest.read import with_digest
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from writers.model import Compression, ParquetFormat, TextFormat
from writers.text.dialects import dialect

ROOT = Path(__file__).parents[3]
ROWS = 3000

OUTPUTS: dict[str, tuple[TextFormat | ParquetFormat, Compression]] = {
    "csv": (TextFormat(), Compression()),
    "csv.gz": (TextFormat(), Compression(codec="gzip")),
    "csv.zst": (TextFormat(), Compression(codec="zstd")),
    "csv.lz4": (TextFormat(), Compression(codec="lz4")),
    "tsv": (dialect("tsv"), Compression()),
    "excel": (dialect("excel"), Compression()),
    "sqlldr-var": (dialect("sqlldr-var"), Compression(codec="zstd")),
    "utf-16": (TextFormat(encoding="utf-16-le"), Compression()),
    "parquet": (ParquetFormat(row_group_rows=500), Compression(codec="zstd")),
}


_FEW = ("csv", "sqlldr-var", "parquet")
KINDS = [*_FEW, *also(OTHER_ROUTES, *(each for each in OUTPUTS if each not in _FEW))]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DuckDB file with a table of three mapped partitions."""
    path = tmp_path_factory.mktemp("checking") / "t.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT range AS id, hash(range)::VARCHAR || chr(10) || '\"' AS s, "
            f"DATE '2024-01-01' + (range % 99)::INTEGER AS d FROM range({ROWS})"
        )
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            " 'p' || range AS partition_name, range AS position, range * 1000 AS first_rowid,"
            " range * 1000 + 999 AS last_rowid FROM range(3)"
        )
    return path


def source_of(database: Path) -> SourceSpec:
    """Return the spec of a DuckDB file."""
    return SourceSpec(kind="duckdb", location=f"duckdb://{database}")


def job_of(database: Path, to: Path, kind: str, **selection: Any) -> Request:
    """Return a job of one worker and a file a partition."""
    shape, compression = OUTPUTS[kind]
    selection = {"table": parse_table("t"), **selection}
    return Request(
        source=source_of(database),
        selection=Selection(**selection),
        output=OutputOptions(destination=str(to), format=shape, compression=compression),
        parallelism=1,
        split="auto" if selection.get("query") else "partition",
        seats=SeatOptions(numa="off"),
    )


@pytest.fixture(scope="module")
def finished(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Finished runs by kind of output, each made once; tests must not change them."""
    place = tmp_path_factory.mktemp("finished")

    def run(kind: str) -> Path:
        if not (place / kind).exists():
            api.unload(job_of(database, place / kind, kind))
        return place / kind

    return run


@pytest.fixture
def copy(finished: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A finished run of a kind, to be damaged."""

    def make(kind: str) -> Path:
        return Path(shutil.copytree(finished(kind), tmp_path / kind))

    return make


def files_in(destination: Path) -> list[Path]:
    """Return the data files, in order."""
    return sorted(path for path in destination.iterdir() if path.name != "_manifest.json")


def difference(destination: Path, source: SourceSpec | None = None) -> str:
    """Return what verify finds wrong; fail if it finds nothing."""
    with pytest.raises(VerifyMismatch) as caught:
        api.verify(destination, source)
    assert caught.value.exit_code == 8
    return caught.value.message


def flip(path: Path, at: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_is_found_whole(
    finished: Callable[[str], Path], database: Path, kind: str
) -> None:
    """In every format and codec the files and the source's count agree with the manifest."""
    found = api.verify(finished(kind), source_of(database))
    assert (found["result"], found["differences"]) == ("ok", [])
    assert (found["rows"], found["source_rows"], found["files"]) == (ROWS, ROWS, 3)
    assert found["snapshot"] == "at the run's snapshot"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["start", "middle", "end"])
def test_a_flipped_bit_is_found(copy: Callable[[str], Path], kind: str, part: str) -> None:
    """One bit anywhere is a difference of the file it is in, not a failure of the program."""
    destination = copy(kind)
    path = files_in(destination)[1]
    flip(path, {"start": 0, "middle": path.stat().st_size // 2, "end": -1}[part])
    found = difference(destination)
    assert path.name in found
    assert files_in(destination)[0].name not in found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_file_is_found(copy: Callable[[str], Path], kind: str, keep: int) -> None:
    """A file that was truncated, to nothing or by one byte, is named."""
    destination = copy(kind)
    path = files_in(destination)[0]
    path.write_bytes(path.read_bytes()[:keep])
    assert path.name in difference(destination)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_files_are_found(copy: Callable[[str], Path], kind: str) -> None:
    """Every file that is gone is named, up to three of them."""
    destination = copy(kind)
    gone = files_in(destination)
    for path in gone:
        path.unlink()
    found = difference(destination)
    assert all(path.name in found for path in gone)


def test_files_of_nobody_are_told_and_fail_a_strict_check(database: Path, tmp_path: Path) -> None:
    """Files that a loader's glob would take are named, from every directory of the run."""
    first, second = tmp_path / "first", tmp_path / "second"
    job = job_of(database, first, "csv")
    api.unload(replace(job, output=replace(job.output, others=(str(second),))))
    assert api.verify(first, strict=True)["extra_files"] == []
    (first / "notes.csv").write_text("mine")
    (second / "older.csv").write_text("mine")
    for passed_over in ("_SUCCESS", ".hidden", "_run.csv"):
        (first / passed_over).write_text("")
    (first / "more").mkdir()
    heard: list[Event] = []
    found = api.verify(first, observe=heard.append)
    assert (found["result"], found["extra_files"]) == (
        "ok",
        ["notes.csv", str(second / "older.csv")],
    )
    (notice,) = (event.text for event in heard if isinstance(event, Notice))
    assert notice.endswith(f"notes.csv, {second / 'older.csv'}")
    with pytest.raises(VerifyMismatch, match=r"notes\.csv") as caught:
        api.verify(first, strict=True)
    assert caught.value.exit_code == 8
    assert "move them away" in caught.value.hint


def test_of_many_extra_files_a_few_are_named(copy: Callable[[str], Path]) -> None:
    """Five names and a number are enough; a damaged file is reported beside them."""
    destination = copy("csv")
    for number in range(7):
        (destination / f"x{number}.csv").write_text("")
    files_in(destination)[0].write_bytes(b"")
    with pytest.raises(VerifyMismatch) as caught:
        api.verify(destination, strict=True)
    assert "x4.csv and 2 more" in caught.value.message
    assert "unload the table again" in caught.value.hint


def change(
    destination: Path, edit: Callable[[dict[str, Any]], object], *, hidden: bool = True
) -> None:
    """Edit the manifest of a run, and renew its digest, so that the rest is checked."""
    path = destination / "_manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    if hidden:
        manifest.pop("digest")
    text = (json.dumps(manifest, indent=2) + "\n").encode()
    path.write_bytes(with_digest(text) if hidden else text)


def first_file(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest's entry of the first file."""
    entry: dict[str, Any] = manifest["units"][0]["files"][0]
    return entry


@pytest.mark.parametrize(
    "kind", ["csv", "sqlldr-var", "parquet", *also(OTHER_ROUTES, "csv.gz", "tsv")]
)
def test_a_changed_row_count_of_a_file_is_found(copy: Callable[[str], Path], kind: str) -> None:
    """The records are counted again, or at least compared with the totals."""
    destination = copy(kind)
    change(destination, lambda manifest: first_file(manifest).update(rows=999))
    assert "rows" in difference(destination)


@pytest.mark.parametrize(("key", "value"), [("bytes", 1), ("checksum", "xxh3:0000000000000000")])
def test_a_changed_entry_of_a_file_is_found(
    copy: Callable[[str], Path], key: str, value: object
) -> None:
    """Size and checksum are computed again."""
    destination = copy("csv")
    change(destination, lambda manifest: first_file(manifest).update({key: value}))
    assert "instead of" in difference(destination)


def test_changed_totals_are_found(copy: Callable[[str], Path]) -> None:
    """The totals must equal the sums of the files."""
    destination = copy("parquet")
    change(destination, lambda manifest: manifest["totals"].update(rows=ROWS + 1))
    assert f"{ROWS:,} rows, but the totals have {ROWS + 1}" in difference(destination)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest["options"]["compression"].update(codec="brotli"),
        lambda manifest: first_file(manifest).pop("checksum"),
        lambda manifest: manifest.update(format_version=3),
    ],
)
def test_a_damaged_manifest_is_told(
    copy: Callable[[str], Path], edit: Callable[[dict[str, Any]], object]
) -> None:
    """A manifest that was edited by hand is named as the fault, not the program."""
    destination = copy("csv")
    change(destination, edit)
    with pytest.raises(OutputFailed, match=r"_manifest\.json"):
        api.verify(destination)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest["totals"].update(seconds=1.5),
        lambda manifest: manifest.update(query="SELECT 1"),
        lambda manifest: manifest.update(added=1),
        lambda manifest: manifest.pop("digest"),
        lambda manifest: manifest.update(digest=None),
        lambda manifest: manifest.update(digest="sha256:" + 64 * "0"),
    ],
)
def test_an_edited_manifest_is_found(
    copy: Callable[[str], Path], edit: Callable[[dict[str, Any]], object]
) -> None:
    """Any change is found, also of the digest itself."""
    destination = copy("csv")
    change(destination, edit, hidden=False)
    assert "_manifest.json was changed after it was written" in difference(destination)


def test_another_spelling_of_the_same_manifest_is_found(copy: Callable[[str], Path]) -> None:
    """The digest is of the bytes, so no blank and no repeated key comes in unseen."""
    destination = copy("csv")
    path = destination / "_manifest.json"
    path.write_text(path.read_text().replace('"rows": ', '"rows":  ', 1))
    assert "_manifest.json was changed after it was written" in difference(destination)


def test_the_digest_is_what_the_page_says(finished: Callable[[str], Path]) -> None:
    """The command of the documentation computes it."""
    (page,) = re.findall(
        r"^    (head -n -2 .*)$", (ROOT / "docs/verification.md").read_text(), re.M
    )
    place = finished("csv")
    found = subprocess.run(["sh", "-c", page], cwd=place, capture_output=True, text=True)
    manifest = json.loads((place / "_manifest.json").read_text())
    assert manifest["digest"] == "sha256:" + found.stdout.split()[0]


def test_a_run_is_not_replaced_on_the_word_of_an_edited_manifest(
    copy: Callable[[str], Path], database: Path
) -> None:
    """The listed files may belong to another run by now."""
    destination = copy("csv")
    change(destination, lambda manifest: first_file(manifest).update(path="x"), hidden=False)
    job = job_of(database, destination, "csv")
    with pytest.raises(OutputFailed, match=r"_manifest\.json was changed"):
        api.unload(replace(job, output=replace(job.output, overwrite=True)))


@pytest.mark.parametrize("kind", ["csv", "parquet", *also(OTHER_ROUTES, "csv.zst")])
def test_exchanged_files_are_found(database: Path, tmp_path: Path, kind: str) -> None:
    """Each of two files of one size and as many rows is named when they have the other's name."""
    job = job_of(
        database, tmp_path / "out", kind, columns=("id",), where="id BETWEEN 1100 AND 2900"
    )
    api.unload(job)
    one, other = files_in(tmp_path / "out")[-2:]
    shutil.move(one, tmp_path / "kept")
    shutil.move(other, one)
    shutil.move(tmp_path / "kept", other)
    found = difference(tmp_path / "out")
    assert one.name in found
    assert other.name in found


@pytest.mark.parametrize("parallelism", [1, 3, 50])
def test_files_are_read_side_by_side_and_told(
    copy: Callable[[str], Path], parallelism: int
) -> None:
    """However many at a time: differences in table order, and the progress up to the last byte."""
    destination, heard = copy("csv.gz"), list[Event]()
    api.verify(destination, parallelism=parallelism, observe=heard.append)
    *_, last = (each for each in heard if isinstance(each, Verified))
    size = sum(path.stat().st_size for path in files_in(destination))
    assert (last.done, last.of, last.bytes, last.of_bytes) == (3, 3, size, size)
    for path in files_in(destination):
        flip(path, 30)
    with pytest.raises(VerifyMismatch) as caught:
        api.verify(destination, parallelism=parallelism)
    places = [caught.value.message.index(path.name) for path in files_in(destination)]
    assert places == sorted(places)


def test_no_run_at_all(tmp_path: Path) -> None:
    """A directory without a manifest, or none at all, holds no finished run."""
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OutputFailed, match="has no finished run"):
            api.verify(path)


def test_a_source_that_changed_is_compared_as_it_is(
    copy: Callable[[str], Path], database: Path, tmp_path: Path
) -> None:
    """More rows now are a difference, and a notice says why they are compared."""
    later = tmp_path / "later.db"
    shutil.copy(database, later)
    with closing(duckdb.connect(str(later))) as connection:
        connection.execute("INSERT INTO t SELECT * FROM t LIMIT 5")
    destination, heard = copy("csv"), list[Event]()
    with pytest.raises(
        VerifyMismatch, match=f"{ROWS:,} rows, but the source counts {ROWS + 5:,} .as the"
    ):
        api.verify(destination, source_of(later), observe=heard.append)
    assert any(
        isinstance(event, Notice) and "the source has changed since the run" in event.text
        for event in heard
    )


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ({"where": "id < 10 -- few"}, 10),
        ({"partitions": ("p[02]",)}, 2000),
        ({"columns": ("s",), "where": "d > DATE '2024-03-01'"}, None),
        ({"table": None, "query": "SELECT id % 7 AS k FROM t GROUP BY 1;"}, 7),
    ],
)
def test_the_source_is_counted_as_it_was_asked(
    database: Path, tmp_path: Path, selection: dict[str, Any], rows: int | None
) -> None:
    """The count uses the condition, chosen partitions and query of the run."""
    manifest = api.unload(job_of(database, tmp_path / "out", "csv", **selection))
    found = api.verify(tmp_path / "out", source_of(database))
    assert found["source_rows"] == manifest["totals"]["rows"] > 0
    assert rows is None or found["rows"] == rows


def test_values_of_any_size_are_counted(tmp_path: Path) -> None:
    """A first record of a megabyte and one of twenty are records like others."""
    path = tmp_path / "big.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT repeat('x,', n::BIGINT) AS s "
            "FROM (VALUES (500000), (1), (9000000)) v(n)"
        )
    job = job_of(path, tmp_path / "out", "csv")
    output = replace(job.output, format=TextFormat(header=False))
    job = replace(job, output=output, split="auto", parallelism=1, fetch_bytes=1 << 29)
    api.unload(replace(job, verify="full"))
    assert api.verify(tmp_path / "out")["rows"] == 3
