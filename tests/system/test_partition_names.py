"""Partitions with names that no file may have: listed, chosen, and named safely in the output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

NAMES = {
    1: "a/b",
    2: "a",
    3: ".",
    4: "..",
    5: "../../etc/passwd",
    6: "two\nlines",
    7: "é" * 30,
    8: "A",
    9: "-rf",
    10: "a%2Fb",
    11: "{unit}",
    12: "\\",
    13: "\x7f",
}
"""By the key that each holds."""


@pytest.fixture(scope="module")
def odd(postgres: Any) -> str:
    """A table of such partitions, one row in each."""
    url: str = postgres.database("odd partitions")
    parts = "".join(
        f'CREATE TABLE "{name}" PARTITION OF odd FOR VALUES IN ({key});'
        for key, name in NAMES.items()
    )
    postgres.run(
        f"CREATE TABLE odd (k int) PARTITION BY LIST (k); {parts}"
        f"INSERT INTO odd SELECT generate_series(1, {len(NAMES)}); ANALYZE odd",
        url=url,
    )
    return url


def test_file_names_of_odd_partitions_are_safe_and_tell_them_apart(
    odd: str, tmp_path: Path
) -> None:
    """describe lists them all, plan shows the names that run then writes, verify reads them."""
    dest = tmp_path / "a" / "b" / "out"
    job = ("--table", "odd", "--to", str(dest), "--split", "partition")
    template = ("--file-name", "{partition}.{unit}.{ext}")
    described = json.loads(command.run("describe", odd, "--table", "odd", "--json"))
    assert [part["name"] for part in described["partitions"]] == list(NAMES.values())
    planned = json.loads(command.run("plan", odd, *job, *template, "--json"))
    command.run("run", odd, *job, *template, "--quiet")
    names = [name for name in command.final_names(dest) if name != "_manifest.json"]
    assert sorted(Path(place).name for place in planned["places"].values()) == names
    assert len(names) == len(NAMES)
    assert not any(set(name) & set("/\\\n\x7f") or name[0] in ".-" for name in names)
    units = command.manifest_of(dest)["units"]
    assert [unit["partitions"] for unit in units] == [[name] for name in NAMES.values()]
    for key, unit in enumerate(units, 1):
        assert (dest / unit["files"][0]["path"]).read_text() == f"k\n{key}\n"
    command.run("verify", str(dest), odd)
    assert [path.name for path in tmp_path.rglob("*.csv") if path.parent != dest] == []


def test_a_map_in_duckdb_may_hold_such_names_too(tmp_path: Path) -> None:
    """The source without a server of its own: the same names, the same files."""
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute(
            "CREATE TABLE odd AS SELECT range AS k FROM range(3);"
            "CREATE TABLE unloader_partitions AS SELECT * FROM (VALUES "
            "('main', 'odd', '../a/b', 1, 0, 0), ('main', 'odd', '.', 2, 1, 1),"
            "('main', 'odd', 'two\nlines', 3, 2, 2)) t(table_schema, table_name, partition_name,"
            "position, first_rowid, last_rowid)"
        )
    dest = tmp_path / "out"
    command.run(
        "run", f"duckdb://{tmp_path}/t.db", "--table", "odd", "--to", str(dest),
        "--split", "partition", "--file-name", "{partition}.{unit}.{ext}", "--quiet",
    )  # fmt: skip
    assert command.final_names(dest) == [
        "%2E.%2Fa%2Fb.0001.csv", "%2E.0002.csv", "_manifest.json", "two%0Alines.0003.csv",
    ]  # fmt: skip
    plan = ("plan", f"duckdb://{tmp_path}/t.db", "--table", "odd", "--split", "partition")
    assert re.search(r"^rows +3 \(estimate\)$", command.run(*plan), re.MULTILINE)
    one = command.run(*plan, "--partition", ".")
    assert re.search(r"^rows +1 \(estimate\)$", one, re.MULTILINE), one


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("wanted", "keys"),
    [("a", [2]), ("a/b", [1]), (".", [3]), ("two\nlines", [6]), ("a/*", [1]), ("{unit}", [11])],
)
def test_an_odd_partition_is_chosen_by_its_name(
    odd: str, tmp_path: Path, wanted: str, keys: list[int]
) -> None:
    """A name means that partition, though another's begins with it and a slash."""
    dest = tmp_path / "out"
    command.run(
        "run", odd, "--table", "odd", "--to", str(dest), "--partition", wanted, "--no-header",
        "--quiet",
    )  # fmt: skip
    rows = [int(line) for path in dest.glob("*.csv") for line in path.read_text().split()]
    assert sorted(rows) == keys
