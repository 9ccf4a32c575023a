"""`--verify full` and `verify --level full`: the values in files equal the fetched values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace

from unloader import api
from unloader.errors import UsageError, VerifyMismatch
from unloader.manifest.read import with_digest
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from unloader.transforms.model import Step, TransformOptions
from writers.files import merge
from writers.files.checksums import open_digest
from writers.model import Compression, ParquetFormat, TextFormat, WrittenFile
from writers.text.dialects import dialect

COLUMNS = {
    "flag": "CASE WHEN range % 3 > 0 THEN range % 3 = 1 END",
    "small": "(range % 200 - 100)::TINYINT",
    "whole": "range * 987654321987 - 5",
    "natural": "(18446744073709551615 - range)::UBIGINT",
    "amount": "(range / 8 - 3)::DECIMAL(12,4)",
    "widest": "((range % 9 - 4) / 7)::DECIMAL(38,37)",
    "huge": "170141183460469231731687303715884105727::HUGEINT - range",
    "single": "CASE range WHEN 0 THEN 'nan' WHEN 1 THEN '-inf' ELSE range / 7 END::FLOAT",
    "double": "CASE range WHEN 0 THEN 'nan' WHEN 1 THEN 'inf' WHEN 2 THEN '-0' "
    "ELSE range / 7e-300 END::DOUBLE",
    "text": "CASE range WHEN 0 THEN '' WHEN 1 THEN NULL ELSE repeat('ä\"~,;\n\t\\', range::INT) END",
    "bytes": "CASE WHEN range > 1 THEN unhex(printf('%04x', range::INT)) END",
    "day": "DATE '2024-02-28' + range::INT",
    "stamp": "TIMESTAMP '2024-02-29 23:59:59.5' + to_microseconds(range * 100)",
    "finest": "TIMESTAMP_NS '2024-02-29 23:59:59.123456789'",
    "instant": "TIMESTAMPTZ '2024-02-29 23:59:59.123456+01:00'",
    "clock": "TIME '23:59:59.25'",
    "list": "[range, NULL]",
    "id": "uuid()",
}
TEXT_ONLY = {
    "far": "CASE range WHEN 0 THEN DATE 'infinity' WHEN 1 THEN DATE '0044-03-15 (BC)' "
    "ELSE DATE '12000-01-01' END",
    "farther": "CASE range WHEN 0 THEN TIMESTAMP '-infinity' ELSE TIMESTAMP '0044-03-15 (BC) 01:02:03' "
    "END",
}
ROWS = 40

FORMATS: dict[str, tuple[TextFormat | ParquetFormat, Compression]] = {
    "rfc4180": (TextFormat(), Compression(codec="zstd")),
    "parquet": (ParquetFormat(), Compression(codec="zstd")),
    "words": (
        TextFormat(
            delimiter=";",
            decimal_separator=",",
            boolean="t/f",
            binary="base64",
            null="\\N",
            header=False,
        ),
        Compression(codec="gzip"),
    ),
    "mysql": (dialect("mysql"), Compression()),
    "sqlldr-var": (replace(dialect("sqlldr-var"), fractions="mask"), Compression()),
    "utf-16": (TextFormat(encoding="utf-16-le", eol="\r\n", enclose="all"), Compression()),
    "guarded": (TextFormat(guard_formulas=True), Compression()),
    "lengths": (TextFormat(record_length_digits=6, null="NULL"), Compression()),
    "trailing": (TextFormat(trailing_delimiter=True, header=False), Compression()),
    "marks": (TextFormat(delimiter="||", enclosure="<q>", trailing_delimiter=True), Compression()),
}
PLAIN = ("rfc4180", "parquet", "sqlldr-var")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DuckDB file with a table of every type, values at their edges."""
    path = tmp_path_factory.mktemp("values") / "t.db"
    items = ", ".join(f'{sql} AS "{name}"' for name, sql in {**COLUMNS, **TEXT_ONLY}.items())
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t AS SELECT {items} FROM range({ROWS})")
    return path


def job_of(database: Path, to: Path, kind: str, **output: Any) -> Request:
    """Return a job over all columns that the format can show."""
    shape, compression = FORMATS[kind]
    exclude = tuple(TEXT_ONLY) if isinstance(shape, ParquetFormat) or kind == "sqlldr-var" else ()
    return Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{database}"),
        selection=Selection(table=parse_table("t"), exclude=exclude),
        output=OutputOptions(destination=str(to), format=shape, compression=compression, **output),
        parallelism=1,
        unit_bytes=1000,
        seats=SeatOptions(numa="off"),
        verify="full",
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in PLAIN else [pytest.mark.long(OTHER_ROUTES)])
        for kind in FORMATS
    ],
)
def test_values_of_every_type_are_found_as_they_were(
    database: Path, tmp_path: Path, kind: str
) -> None:
    """In every dialect, and again later; what a format does not show in full is named."""
    manifest = api.unload(job_of(database, tmp_path / "out", kind))
    hidden = {"sqlldr-var": ["stamp", "finest", "instant"], "guarded": ["huge", "text", "id"]}.get(
        kind, []
    )
    named = [text.partition(":")[0] for text in manifest["verified"]["not_compared"]]
    assert named == hidden
    found = api.verify(tmp_path / "out", level="full")
    assert (found["result"], found["level"]) == ("ok", "full")
    assert [text.partition(":")[0] for text in found["not_compared"]] == hidden


def test_one_file_for_the_table_is_compared_with_all_units(database: Path, tmp_path: Path) -> None:
    """The checksums of the units add up to the checksum of the file."""
    job = job_of(database, tmp_path / "out", "rfc4180", file_per="table", file_name="t.csv")
    assert api.unload(job)["verified"]["result"] == "ok"
    assert api.verify(tmp_path / "out", level="full")["result"] == "ok"


def test_a_joined_file_with_other_values_is_found(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run reads the joined file, too: what went wrong in the joining is not published."""
    right = merge.merge_files

    def wrong(files: Sequence[WrittenFile], *rest: Any, **more: Any) -> WrittenFile:
        """Join a file twice, and another of as many rows not at all."""
        last = files[-1]
        twice = next(file for file in files[:-1] if file.rows == last.rows)
        return right((*files[:-1], twice), *rest, **more)

    monkeypatch.setattr(merge, "merge_files", wrong)
    out = tmp_path / "out"
    job = job_of(database, out, "rfc4180", file_per="table", file_name="t.csv")
    with pytest.raises(
        VerifyMismatch, match=r"column whole has the checksum .* fetched for the table"
    ):
        api.unload(job)
    assert not (out / "_manifest.json").exists()


@pytest.fixture
def falsified(database: Path, tmp_path: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a run whose first file is changed, and whose manifest matches the change."""

    def make(kind: str, change: Callable[[Path], object]) -> Path:
        out = tmp_path / "out"
        api.unload(job_of(database, out, kind))
        path = out / "_manifest.json"
        manifest = json.loads(path.read_text())
        entry = manifest["units"][0]["files"][0]
        file = out / entry["path"]
        change(file)
        digest = open_digest("xxh3")
        digest.update(file.read_bytes())
        entry.update(bytes=file.stat().st_size, checksum=f"xxh3:{digest.hexdigest()}")
        del manifest["digest"]
        path.write_bytes(with_digest((json.dumps(manifest, indent=2) + "\n").encode()))
        assert api.verify(out)["result"] == "ok"
        return out

    return make


def parquet_with(column: str, value: Callable[[Any], Any]) -> Callable[[Path], object]:
    """Return what changes the first value of a column in a Parquet file."""

    def change(path: Path) -> None:
        table = pq.read_table(path)
        at = table.schema.get_field_index(column)
        values = table[column].to_pylist()
        values[0] = value(values[0])
        field = table.schema.field(at)
        changed = pa.array(values, field.type)
        pq.write_table(table.set_column(at, field, changed), path, compression="zstd")

    return change


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("amount", lambda value: value.copy_negate(), "checksum"),
        ("text", lambda value: None, "NULLs"),
        *also(
            OTHER_ROUTES,
            ("whole", lambda value: value + 1, "checksum"),
            ("clock", lambda value: value.replace(microsecond=1), "checksum"),
        ),
    ],
)
def test_another_value_is_found_and_its_column_named(
    falsified: Callable[[str, Callable[[Path], object]], Path],
    column: str,
    value: Callable[[Any], Any],
    what: str,
) -> None:
    """One value of one column is enough, though size, checksum and records of the file are right."""
    out = falsified("parquet", parquet_with(column, value))
    with pytest.raises(VerifyMismatch, match=f"column {column} has .*{what}") as caught:
        api.verify(out, level="full")
    first = sorted(out.glob("*.parquet"))[0]
    assert first.name in caught.value.message
    assert caught.value.exit_code == 8


def test_another_order_of_rows_is_no_difference(
    falsified: Callable[[str, Callable[[Path], object]], Path],
) -> None:
    """A file that holds the same rows in another order holds the same values."""

    def turn(path: Path) -> None:
        table = pq.read_table(path)
        pq.write_table(table.take(list(range(len(table)))[::-1]), path, compression="zstd")

    assert api.verify(falsified("parquet", turn), level="full")["result"] == "ok"


def test_a_run_that_recorded_nothing_says_so(database: Path, tmp_path: Path) -> None:
    """The error names the level that it was verified by, and what to do."""
    api.unload(replace(job_of(database, tmp_path / "out", "parquet"), verify="count"))
    with pytest.raises(UsageError, match=r"recorded no checksums.*--verify count") as caught:
        api.verify(tmp_path / "out", level="full")
    assert "--verify full" in caught.value.hint


def test_a_masked_run_without_sums_needs_a_new_run(database: Path, tmp_path: Path) -> None:
    """Neither level that reads values is advised: each would refuse the run and name the other."""
    masks = TransformOptions(steps=(Step(step="redact", column="small"),))
    job = replace(job_of(database, tmp_path / "out", "parquet"), verify="count")
    output = replace(job.output, transform=masks)
    api.unload(replace(job, output=output))
    source = job.source
    for level, asked in (("full", None), ("source", source)):
        with pytest.raises(UsageError) as caught:
            api.verify(tmp_path / "out", asked, level=level)
        assert caught.value.hint.startswith("unload again with --verify full")
        assert "--level source" not in caught.value.hint


def test_a_value_behind_the_last_delimiter_is_found(
    falsified: Callable[[str, Callable[[Path], object]], Path],
) -> None:
    """A record that ends with a delimiter has nothing between that and its end."""

    def append(path: Path) -> None:
        text = path.read_bytes()
        assert text.endswith(b",\n")
        path.write_bytes(text[:-1] + b"x\n")

    with pytest.raises(VerifyMismatch, match="has text after its last delimiter"):
        api.verify(falsified("trailing", append), level="full")
