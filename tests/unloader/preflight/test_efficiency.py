"""A run held against ceilings: of its own machine, file systems and rows, and of no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with two tables."""
    path = tmp_path_factory.mktemp("efficiency") / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id FROM range(30000) r(i)")
        connection.execute("CREATE TABLE other AS SELECT i AS id FROM range(10) r(i)")
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def ceilings(tmp_path_factory: pytest.TempPathFactory, database: str) -> Path:
    """What preflight has found for a run of `t`, made once."""
    folder = tmp_path_factory.mktemp("ceilings")
    path = folder / "c.json"
    command.run(
        *("preflight", database, "--table", "t", "--to", str(folder), "--save", str(path)),
        *(
            "--disk-bytes",
            "256kB",
            "--rounds",
            "1",
            "--overlap-buffer",
            "64KiB",
            "--levels",
            "1,2",
            "--source-seconds",
            "0.1",
        ),
        *("--sample", "64kB", "--parallelism", "1", "--quiet"),
    )
    return path


def unloaded(database: str, to: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Return the manifest of a run, and what it said on stderr."""
    call = ("run", database, "--to", str(to), "--parallelism", "1", *arguments)
    table = () if "--table" in arguments else ("--table", "t")
    done = command.ended(*call, *table)
    assert done.returncode == 0, done.stderr
    return command.manifest_of(to), done.stdout + done.stderr


def changed(ceilings: Path, tmp_path: Path, edit: Any) -> str:
    """Return the path of the ceilings as a function has changed them."""
    document = json.loads(ceilings.read_text())
    edit(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_run_says_what_share_it_reached(database: str, ceilings: Path, tmp_path: Path) -> None:
    """Disk, source and encoder are in the manifest with rate, ceiling and share, and on the page."""
    manifest, page = unloaded(database, tmp_path / "out", "--ceilings", str(ceilings))
    found, totals = manifest["efficiency"], manifest["totals"]
    known = json.loads(ceilings.read_text())
    parts = {each["what"]: each for each in found["parts"]}
    assert set(parts) == {"disk", "source", "encoder"}
    assert parts["disk"]["ceiling"] == max(each["bytes_per_second"] for each in known["disks"])
    assert parts["disk"]["rate"] == pytest.approx(totals["bytes"] / totals["seconds"], rel=0.01)
    assert parts["source"]["ceiling"] == known["source"]["levels"][0]["rows_per_second"]
    assert parts["encoder"]["ceiling"] == known["encoder"]["bytes_per_cpu_second"]
    for each in parts.values():
        assert each["share"] == pytest.approx(each["rate"] / each["ceiling"], abs=1e-4)
    assert (found["ceilings"], found["taken_at"]) == ("c.json", known["taken_at"])
    assert found["not_compared"] == []
    assert "% of this disk" in page


def test_without_ceilings_nothing_is_said(database: str, tmp_path: Path) -> None:
    """A run that is compared with nothing has no such key and no such line."""
    manifest, page = unloaded(database, tmp_path / "out")
    assert "efficiency" not in manifest
    assert "efficiency" not in page


def test_another_machine_is_not_compared(database: str, ceilings: Path, tmp_path: Path) -> None:
    """Ceilings of elsewhere are no ceilings here; the run says so and is otherwise the same."""
    path = changed(ceilings, tmp_path, lambda each: each["machine"].update(name="db99"))
    manifest, page = unloaded(database, tmp_path / "out", "--ceilings", path)
    assert "efficiency" not in manifest
    assert "the ceilings are of db99" in page


def test_other_rows_and_another_disk_are_not_compared(
    database: str, ceilings: Path, tmp_path: Path
) -> None:
    """Another table leaves the disk, another file system the source; each with the reason."""
    asked = ("--ceilings", str(ceilings), "--table", "other")
    manifest, _ = unloaded(database, tmp_path / "other", *asked)
    found = manifest["efficiency"]
    assert [each["what"] for each in found["parts"]] == ["disk"]
    assert len(found["not_compared"]) == 2

    asked = ("--ceilings", str(ceilings), "--where", "id < 20000")
    manifest, _ = unloaded(database, tmp_path / "some", *asked)
    assert [each["what"] for each in manifest["efficiency"]["parts"]] == ["disk"]

    def elsewhere(document: dict[str, Any]) -> None:
        for disk in document["disks"]:
            disk["mounts"][0]["source"] = "/dev/other"

    path = changed(ceilings, tmp_path, elsewhere)
    manifest, _ = unloaded(database, tmp_path / "disk", "--ceilings", path)
    found = manifest["efficiency"]
    assert [each["what"] for each in found["parts"]] == ["source", "encoder"]
    assert "disk: another one" in found["not_compared"][0]


HOSTILE = {
    "nothing": "",
    "no JSON": "ceilings",
    "another version": '{"format_version": 99}',
    "a list": "[]",
    "cut off": '{"format_version": 1, "machine": {"name"',
    "parts missing": '{"format_version": 1}',
    "deep": "[" * 5000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_holds_no_ceilings_is_refused_before_the_run(
    database: str, tmp_path: Path, name: str
) -> None:
    """A file of something else is a wrong configuration, and nothing is unloaded."""
    path = tmp_path / "c.json"
    path.write_text(HOSTILE[name])
    to = tmp_path / "out"
    text = command.error_of(
        *("run", database, "--table", "t", "--to", str(to), "--ceilings", str(path)), status=3
    )
    assert "--save" in text
    assert not to.exists()


@pytest.mark.parametrize("value", [0, -5, float("nan"), "fast", None])
def test_a_rate_that_nobody_measures_is_refused(
    database: str, ceilings: Path, tmp_path: Path, value: object
) -> None:
    """An edited rate that cannot be divided by is named."""
    path = changed(ceilings, tmp_path, lambda each: each["disks"][0].update(bytes_per_second=value))
    text = command.error_of(
        *("run", database, "--table", "t", "--to", str(tmp_path / "out"), "--ceilings", path),
        status=3,
    )
    assert "bytes_per_second" in text
