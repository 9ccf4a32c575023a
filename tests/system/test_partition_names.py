"""Partitions with names that no file may have: listed, chosen, and named safely in the output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
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
    """The source without its own server: the same names, the same files."""
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


@pytest.fixture(scope="module")
def levels(postgres: Any) -> str:
    """Tables whose partitions have levels: declared ones, and children that inherit."""
    url: str = postgres.database("levels of partitions")
    postgres.run(
        """
        CREATE SCHEMA old; CREATE SCHEMA new;
        CREATE TABLE ev (k int, region text) PARTITION BY LIST (k);
        CREATE TABLE y1 PARTITION OF ev FOR VALUES IN (1) PARTITION BY LIST (region);
        CREATE TABLE y1_eu PARTITION OF y1 FOR VALUES IN ('eu');
        CREATE TABLE y1_us PARTITION OF y1 FOR VALUES IN ('us');
        CREATE TABLE y2 PARTITION OF ev FOR VALUES IN (2);
        CREATE TABLE old.p PARTITION OF ev FOR VALUES IN (3) PARTITION BY LIST (region);
        CREATE TABLE old.a PARTITION OF old.p FOR VALUES IN ('eu');
        CREATE TABLE new.p PARTITION OF ev FOR VALUES IN (4) PARTITION BY LIST (region);
        CREATE TABLE new.a PARTITION OF new.p FOR VALUES IN ('eu');
        CREATE TABLE b PARTITION OF old.p FOR VALUES IN ('us');
        INSERT INTO ev VALUES (1, 'eu'), (1, 'us'), (2, 'eu'), (3, 'eu'), (3, 'us'), (4, 'eu');
        CREATE TABLE parent (k int); CREATE TABLE y2_ () INHERITS (parent);
        CREATE TABLE child () INHERITS (parent); CREATE TABLE grandchild () INHERITS (child);
        INSERT INTO parent VALUES (0); INSERT INTO y2_ VALUES (1);
        INSERT INTO child VALUES (2); INSERT INTO grandchild VALUES (3);
        ANALYZE
        """,
        url=url,
    )
    return url


@pytest.mark.parametrize(
    ("table", "wanted", "rows"),
    [
        ("ev", "y1", ["1,eu", "1,us"]),
        ("ev", "Y*/y1_us,y2", ["1,us", "2,eu"]),
        ("ev", "old.p", ["3,eu", "3,us"]),
        ("ev", "old.p/a,new.p", ["3,eu", "4,eu"]),
        ("parent", "child", ["2", "3"]),
        ("parent", "child/child,parent", ["0", "2"]),
    ],
)
def test_a_level_stands_for_all_below_it(
    levels: str, tmp_path: Path, table: str, wanted: str, rows: list[str]
) -> None:
    """Also where two levels differ in their schema alone, and where a level has rows itself."""
    dest = tmp_path / "out"
    command.run(
        "run", levels, "--table", table, "--to", str(dest), "--partition", wanted, "--no-header",
        "--quiet",
    )  # fmt: skip
    found = [line for path in dest.glob("*.csv") for line in path.read_text().split()]
    assert sorted(found) == rows
    command.run("verify", str(dest), levels)


@pytest.mark.parametrize(
    ("tables", "wanted", "said"),
    [
        (["ev"], "y2,nix,y1_eu", "--partition nix, y1_eu matches no partition of public.ev"),
        (["ev"], "y1_eu", "use names such as y1/y1_eu, or see all 6"),
        (["ev", "parent"], "y2,y2_", "public.ev: --partition y2_ matches no partition"),
        (["y2"], "y2", "public.y2 has no partitions that can be read separately"),
    ],
)
def test_each_pattern_has_to_match_in_each_table(
    levels: str, tmp_path: Path, tables: list[str], wanted: str, said: str
) -> None:
    """A misspelt partition is an error, and so is one that only another table has."""
    asked = [part for table in tables for part in ("--table", table)]
    dest = tmp_path / "out"
    arguments = ("run", levels, *asked, "--to", f"{dest}/{{table}}", "--partition", wanted)
    assert said in command.error_of(*arguments, status=5)
    assert not dest.exists()
