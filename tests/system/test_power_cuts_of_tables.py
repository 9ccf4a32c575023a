"""Power cuts at every boundary of a run over several tables, whose files are synced together."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from amounts import EVERYTHING
from faults.crashes import SOURCE, Model, Recording, states
from processes import breaking, command
from several_tables import made

SEED = int(os.environ.get("UNLOADER_TEST_SEED", "1"))
SIZES = {"large": 1500, "small": 10, "empty": 0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file of a few tables; one of them has several units."""
    return f"duckdb://{made(tmp_path_factory.mktemp('source') / 's.db', SIZES).location}"


def job(url: str, home: Path, *more: str) -> tuple[str, ...]:
    """Return the command of a night."""
    return (
        *("run", url, "--table", "*", "--to", f"{home}/{{table}}", "--unit-bytes", "16kB"),
        *("--parallelism", "1", "--numa", "off", "--quiet", *more),
    )


def recorded(place: Path, root: Path, *arguments: str) -> Recording:
    library, log, recording = breaking.build(SOURCE, place), place / "record", Recording(root)
    variables = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(log),
    }
    done = subprocess.run(
        [*command.UNLOADER, *arguments], capture_output=True, text=True, check=False, env=variables
    )
    assert done.returncode == 0, done.stderr
    recording.read(log)
    return recording


def files_of(home: Path) -> dict[str, bytes]:
    """Return the data files of the tables."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.glob("[!._]*/*.csv")}


def wrong_in(home: Path, expected: dict[str, bytes]) -> str:
    for name, data in files_of(home).items():
        if expected.get(name) != data:
            return f"{name} is not whole"
    for path in home.glob("[!._]*/_manifest.json"):
        data = path.read_bytes()
        body = data[: data.rindex(b'  "digest": ')]
        if hashlib.sha256(body).hexdigest() not in data.decode():
            return f"{path} is not whole"
        for unit in json.loads(data)["units"]:
            for file in unit["files"]:
                if not (path.parent / file["path"]).exists():
                    return f"{file['path']} is missing beside its manifest"
    if (home / "_manifest.json").exists() and files_of(home).keys() != expected.keys():
        return "the run is complete and not all of its tables are"
    return ""


def wrong_after(url: str, home: Path, chance: random.Random) -> str:
    if (home / "_manifest.json").exists():
        return ""
    before = {path: path.stat().st_ino for path in home.glob("[!._]*/_manifest.json")}
    resumed = (home / "_run" / "run.json").exists() and chance.random() < 0.7
    way = ("resume", str(home)) if resumed else job(url, home, "--resume-or-start", "--overwrite")
    done = command.ended(*way)
    if done.returncode:
        return f"{way[0]} ended with {done.returncode}: {done.stderr}"
    if resumed and any(path.stat().st_ino != number for path, number in before.items()):
        return "a table that was published is replaced"
    return ""


@pytest.mark.long("power cuts of runs over several tables")
@pytest.mark.parametrize("publish", ["table", "run"])
def test_a_power_cut_leaves_each_table_whole_or_unpublished(
    url: str, tmp_path: Path, publish: str
) -> None:
    """Which steps reach the disk is chosen adversarially; from there the run can be continued."""
    root = tmp_path / "root"
    root.mkdir()
    home = root / "new" / "night"
    recording = recorded(tmp_path, root, *job(url, home, "--publish", publish))
    expected = files_of(home)
    assert len(expected) > len(SIZES)
    chance = random.Random(SEED)
    models: tuple[Model, ...] = ("journal", "posix")
    for model in models:
        found = list(states(recording, model, SEED))
        assert len(found) > 5
        for state in found:
            state.write(root)
            wrong = wrong_in(home, expected)
            assert not wrong, f"seed {SEED}, {state.label}: {wrong}"
        for state in chance.sample(found, 4 if EVERYTHING else 2):
            state.write(root)
            wrong = wrong_after(url, home, chance)
            assert not wrong, f"seed {SEED}, {state.label}: {wrong}"
            assert files_of(home) == expected
