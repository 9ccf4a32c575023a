"""`verify` of runs into tables that other programs have rewritten, expired and vacuumed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from lakehouse.catalogs import Lake
from processes import command

ROWS = 1000
FILES = ("--file-size", "1kB", "--row-group-rows", "100", "--unit-bytes", "8kB")

pytestmark = pytest.mark.long("runs into tables of a lakehouse")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 1,000 rows in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("source") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range({ROWS}) r(i)")
    return f"duckdb://{path}"


def unload(source: str, to: str, *options: str) -> dict[str, Any]:
    """Run the source's table into a table of a lakehouse; return the answer."""
    asked = ("run", source, "--table", "t", "--format", "parquet", "--to", to, *options, "--json")
    found: dict[str, Any] = json.loads(command.run(*asked))
    return found


def verified(*arguments: str) -> tuple[dict[str, Any], str]:
    done = command.ended("verify", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["result"], answer["differences"]) == ("ok", [])
    return answer, done.stderr


def names_in(home: Path) -> list[str]:
    """Return the data files in the home of a run."""
    return sorted(each.name for each in home.glob("*.parquet"))


def remove(home: Path, names: Sequence[str]) -> None:
    """Remove files, as a program does that cleans a table."""
    for name in names:
        (home / name).unlink()


def expire(lake: Lake) -> None:
    """Let an Iceberg table forget all snapshots but the newest."""
    table = lake.table("t")
    newest = table.current_snapshot().snapshot_id
    others = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest]
    table.maintenance.expire_snapshots().by_ids(others).commit()


def used_of(lake: Lake, home: Path) -> list[str]:
    """Return the files of a run that an Iceberg table uses."""
    paths = [task.file.file_path for task in lake.table("t").scan().plan_files()]
    return sorted(Path(each).name for each in paths if Path(each).parent.name == home.name)


def test_iceberg_rows_deleted_and_snapshots_expired(source: str, the_lake: Lake) -> None:
    """Files that a later snapshot has replaced may be missing; the others may not."""
    place = "iceberg://lake/ns.t"
    run = unload(source, place, *FILES, "--verify", "full")
    home = the_lake.home("t")
    written = names_in(home)
    assert len(written) > 2
    assert verified(place)[0]["table_log"] == {"rows": ROWS, "changes": [], "missing_files": []}
    the_lake.table("t").delete("i = 3")
    snapshot = the_lake.table("t").current_snapshot()
    replaced = sorted(set(written) - set(used_of(the_lake, home)))
    assert 0 < len(replaced) < len(written)
    unload(source, place, "--save-mode", "append")
    answer, told = verified(str(home))
    (change,) = answer["table_log"]["changes"]
    assert change["snapshot"] == str(snapshot.snapshot_id)
    assert change["operation"] == snapshot.summary.operation.value
    assert change["files"] == replaced
    assert change["removed_rows"] - change["added_rows"] == 1
    assert not change["keeps_rows"]
    assert f"snapshot {snapshot.snapshot_id} ({change['operation']}, " in told

    expire(the_lake)
    remove(home, replaced)
    for level in ((), ("--level", "full"), (source, "--level", "source")):
        answer, told = verified(str(home), *level)
        assert answer["run_id"] == run["run_id"]
        assert (answer["rows"], answer["files"]) == (ROWS, len(written))
        assert answer["table_log"]["missing_files"] == replaced
        assert answer["table_log"]["rows"] == ROWS
        assert [each["snapshot"] for each in answer["table_log"]["changes"]] == [
            str(snapshot.snapshot_id)
        ]
        assert bool(answer["not_compared"]) == bool(level)
    assert replaced[0] in command.run("verify", str(home))

    used = used_of(the_lake, home)
    (home / used[0]).rename(home / "elsewhere")
    error = command.error_of("verify", str(home), status=8)
    assert used[0] in error
    assert "before you unload again, remove the rows" in error


def test_iceberg_overwritten_and_rolled_back(source: str, the_lake: Lake) -> None:
    """A run that another one replaced, and one that a rollback took out of the table."""
    place = "iceberg://lake/ns.t"
    unload(source, place)
    unload(source, place, "--save-mode", "overwrite")
    first, second = the_lake.homes("t")
    snapshots = [each.snapshot_id for each in the_lake.table("t").snapshots()]
    (change,) = verified(str(first))[0]["table_log"]["changes"]
    assert (change["snapshot"], change["operation"]) == (str(snapshots[1]), "overwrite")
    assert verified(str(second), source)[0]["table_log"]["changes"] == []
    with the_lake.table("t").manage_snapshots() as refs:
        refs.create_tag(snapshots[0], "kept")
    (first / "t.0001.parquet").rename(first / "elsewhere")
    error = command.error_of("verify", str(first), status=8)
    assert "t.0001.parquet" in error
    (first / "elsewhere").rename(first / "t.0001.parquet")
    with the_lake.table("t").manage_snapshots() as refs:
        refs.rollback_to_snapshot(snapshots[0])
    assert verified(str(first))[0]["table_log"]["changes"] == []
    remove(second, names_in(second))
    answer, _ = verified(str(second))
    (change,) = answer["table_log"]["changes"]
    assert (change["snapshot"], change["operation"]) == (str(snapshots[0]), "rollback")


def test_iceberg_whose_catalog_does_not_answer(
    source: str, the_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole files pass without the table; a missing one does not, and the advice is the log."""
    unload(source, "iceberg://lake/ns.t")
    home = the_lake.home("t")
    the_lake.open().drop_table("ns.t")
    answer, told = verified(str(home))
    assert answer["table_log"] is None
    assert "the table iceberg://lake/ns.t does not exist any more" in told
    remove(home, names_in(home))
    error = command.error_of("verify", str(home), status=8)
    assert "before you unload again, compare the log: unloader verify" in error


def test_a_run_that_is_not_committed(source: str, the_lake: Lake) -> None:
    """A log that does not know the run says nothing of its files."""
    place = "iceberg://lake/ns.t"
    unload(source, place)
    with the_lake.held("IMMEDIATE"):
        running = command.Forked(
            "run",
            source,
            "--table",
            "t",
            "--format",
            "parquet",
            *("--to", place, "--save-mode", "append"),
        )
        command.wait_for(
            lambda: (
                len(the_lake.homes("t")) == 2 and (the_lake.home("t") / "_committing.json").exists()
            ),
            "the commit",
        )
        running.process.kill()
        running.process.communicate()
    home = the_lake.home("t")
    answer, told = verified(str(home))
    assert answer["table_log"] is None
    assert f"does not show that run {answer['run_id']} was committed" in told
    remove(home, names_in(home))
    error = command.error_of("verify", str(home), status=8)
    assert "look at the run with: unloader status" in error


def test_delta_optimized_and_vacuumed(source: str, tmp_path: Path) -> None:
    """OPTIMIZE moves the rows of two runs, VACUUM removes their files; a later run stays."""
    root = tmp_path / "a lake%"
    place = f"delta:{root}"
    for mode in ("create", "append"):
        unload(source, place, "--save-mode", mode, "--verify", "full", *FILES)
    homes = sorted(root.glob("*Z-*"))
    files = [names_in(home) for home in homes]
    table = DeltaTable(str(root))
    metrics = [each["operationMetrics"] for each in table.history()]
    assert [each["numOutputRows"] for each in metrics] == [str(ROWS)] * 2
    assert [each["numFiles"] for each in metrics] == [str(len(files[0]))] * 2
    sizes = sum(path.stat().st_size for path in homes[0].glob("*.parquet"))
    assert metrics[1]["numOutputBytes"] == str(sizes)
    assert verified(str(homes[0]))[0]["table_log"]["changes"] == []

    table.optimize.compact()
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    unload(source, place, "--save-mode", "append")
    last = max(root.glob("*Z-*"))
    assert verified(str(last))[0]["table_log"]["changes"] == []
    for home, names in zip(homes, files, strict=True):
        assert names_in(home) == []
        for level in ((), (source, "--level", "full")):
            answer, told = verified(str(home), *level)
            (change,) = answer["table_log"]["changes"]
            assert (change["snapshot"], change["operation"]) == ("2", "OPTIMIZE")
            assert (change["removed_rows"], change["added_rows"]) == (2 * ROWS, 2 * ROWS)
            assert change["keeps_rows"]
            assert answer["table_log"]["missing_files"] == change["files"] == names
            assert answer["table_log"]["rows"] == ROWS
    assert "without a change of the table's rows" in told


def test_delta_whose_log_was_shortened_or_differs(source: str, tmp_path: Path) -> None:
    """A forgotten operation has no name; a count in the log that differs is an error."""
    place = f"delta:{tmp_path / 'lake'}"
    unload(source, place)
    (home,) = (tmp_path / "lake").glob("*Z-*")
    shutil.copytree(tmp_path / "lake", tmp_path / "kept")
    table = DeltaTable(str(tmp_path / "lake"))
    table.delete("i < 100")
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    answer, told = verified(str(home))
    (change,) = answer["table_log"]["changes"]
    assert (change["operation"], change["keeps_rows"]) == ("DELETE", False)
    assert (change["removed_rows"], change["added_rows"]) == (ROWS, ROWS - 100)
    table.update_incremental()
    table.create_checkpoint()
    for path in (tmp_path / "lake" / "_delta_log").glob("*.json"):
        path.unlink()
    answer, told = verified(str(home))
    (change,) = answer["table_log"]["changes"]
    assert (change["snapshot"], change["operation"], change["time"]) == (None, None, None)
    assert answer["table_log"]["rows"] is None
    assert "no longer shows which operation" in told

    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "kept").rename(tmp_path / "lake")
    log = tmp_path / "lake" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(r"\"numRecords\": 1000", r"\"numRecords\": 990"))
    error = command.error_of("verify", str(home), status=8)
    assert "the manifest has 1,000 rows, but the log of" in error
    assert "has 990 rows for the run" in error
