"""The demonstration as a function: its files, reports, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
from long_tests import OTHER_ROUTES

from unloader.cli.commands.installation import run_demo
from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.events import Event, Notice, RunStarted, silent

pytest.importorskip("duckdb", reason="needs the extra duckdb")

ROWS = 3_000


def never() -> bool:
    return False


def demo(directory: Path, rows: int = ROWS) -> dict[str, Any]:
    """Run a demonstration with two workers."""
    return run_demo(directory, rows, parallelism=2, observe=silent, stop=never)


def test_both_outputs_hold_the_table_and_are_verified(tmp_path: Path) -> None:
    """CSV and Parquet each have all rows, the figures match the files, and both are verified."""
    result = demo(tmp_path / "demo")
    assert result["database"].is_file()
    assert [line["name"] for line in result["results"]] == ["csv", "parquet"]
    for line in result["results"]:
        files = sorted(line["directory"].glob(f"*.{line['name']}"))
        read = pyarrow.csv.read_csv if line["name"] == "csv" else pyarrow.parquet.read_table
        assert sum(len(read(file)) for file in files) == line["rows"] == ROWS
        assert sum(file.stat().st_size for file in files) == line["bytes"]
        assert line["verified"]
        assert line["mb_per_second"] == pytest.approx(line["bytes"] / 1e6 / line["seconds"])
        assert (
            json.loads((line["directory"] / "_manifest.json").read_text())["status"] == "complete"
        )


@pytest.mark.long(OTHER_ROUTES)
def test_a_second_demo_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """The same directory serves again: the table is kept, or built again for other rows."""
    first = demo(tmp_path)
    built = first["database"].stat().st_mtime_ns
    assert demo(tmp_path)["database"].stat().st_mtime_ns == built
    assert [line["rows"] for line in demo(tmp_path, rows=500)["results"]] == [500, 500]


def test_a_directory_without_room_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    """The error names the bytes needed and free, and --rows; the directory stays empty."""
    with pytest.raises(OutputFailed, match=r"need about [\d,]+ bytes .* [\d,]+ are free.*--rows"):
        demo(tmp_path, rows=10**15)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputFailed, match="only 0 are free") as full:
        demo(Path("/proc/full"))
    assert full.value.hint == "give another --dir"


def test_size_and_time_are_reported_before_anything_is_built(tmp_path: Path) -> None:
    """The first notice has the rows, the bytes and the seconds; the directory is still empty."""
    seen: list[tuple[str, bool]] = []

    def observe(event: Event) -> None:
        if isinstance(event, Notice):
            seen.append((event.text, (tmp_path / "reference.duckdb").exists()))

    run_demo(tmp_path, ROWS, parallelism=1, observe=observe, stop=never)
    text, is_built = seen[0]
    assert re.match(rf"{ROWS:,} rows need [\d.,]+ [kMG]B in .* and about [\d,]+ s$", text)
    assert not is_built


def test_rows_must_be_positive(tmp_path: Path) -> None:
    """No rows at all is a usage error."""
    with pytest.raises(UsageError, match="--rows"):
        demo(tmp_path, rows=0)


def test_stopping_raises_interrupted(tmp_path: Path) -> None:
    """A demonstration that is asked to stop ends as interrupted and leaves no finished database."""
    with pytest.raises(Interrupted):
        run_demo(tmp_path, ROWS, parallelism=1, observe=silent, stop=lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_stopping_before_the_verification_raises_interrupted(tmp_path: Path) -> None:
    """A stop that comes as the last unit ends does not pass for a finished demonstration."""
    seen: list[Event] = []

    def stop() -> bool:
        return any(isinstance(event, RunStarted) for event in seen)

    with pytest.raises(Interrupted):
        run_demo(tmp_path, ROWS, parallelism=1, observe=seen.append, stop=stop)
    assert not (tmp_path / "parquet").exists()


@pytest.mark.long(OTHER_ROUTES)
def test_the_build_is_told_in_notices(tmp_path: Path) -> None:
    """Anyone who watches hears how many rows of the table are there, up to all of them."""
    seen: list[Event] = []
    run_demo(tmp_path, ROWS, parallelism=1, observe=seen.append, stop=never)
    built = [event.text for event in seen if isinstance(event, Notice) and "built" in event.text]
    assert built[-1] == "reference table: 3,000 of 3,000 rows built"
