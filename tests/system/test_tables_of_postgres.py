"""Several tables of PostgreSQL in one run: which, at what moment, and what keeps one from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import command

HOSTILE = ("Order", "order", 'a "quoted" one', "a/b", "a%2Fb", "dots.in.name", "ünïcode ❄", " _x")
"""Names of tables in one schema; the directory of each has to be another one."""

SETUP = """
CREATE SCHEMA sales; CREATE SCHEMA "Odd *"; CREATE SCHEMA shut;
CREATE TABLE sales.orders (id int PRIMARY KEY, note text, secret text);
INSERT INTO sales.orders SELECT g, 'note ' || g, 'hidden' FROM generate_series(1, 5000) g;
CREATE TABLE sales.lines (order_id int REFERENCES sales.orders, n int);
INSERT INTO sales.lines SELECT g % 5000 + 1, g FROM generate_series(1, 12000) g;
CREATE TABLE sales.empty (id int);
CREATE VIEW sales.large AS SELECT id FROM sales.orders WHERE id > 4990;
CREATE TABLE sales.unread (id int, place point, span int4range);
CREATE TABLE sales.no_right (id int);
CREATE TABLE sales.half (id int, pay int);
CREATE TABLE shut.inside (id int);
DROP ROLE IF EXISTS tables_guest; CREATE ROLE tables_guest LOGIN;
GRANT USAGE ON SCHEMA sales, "Odd *" TO tables_guest;
GRANT SELECT ON sales.orders, sales.lines, sales.empty, sales.large, sales.unread TO tables_guest;
GRANT SELECT (id) ON sales.half TO tables_guest;
"""


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with a schema of some tables, and one of hostile names, as its owner sees it."""
    found: str = postgres.database("several")
    postgres.run(SETUP, url=found)
    for number, name in enumerate(HOSTILE):
        quoted = name.replace('"', '""')
        postgres.run(
            f'CREATE TABLE "Odd *"."{quoted}" AS SELECT {number} AS n;'
            f'GRANT SELECT ON "Odd *"."{quoted}" TO tables_guest',
            url=found,
        )
    postgres.run("ANALYZE", url=found)
    return found


@pytest.fixture(scope="module")
def guest(url: str) -> str:
    """The same as a user sees it who lacks some rights."""
    return url.replace("postgres@", "tables_guest@", 1)


def run_manifest(to: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((to / "_manifest.json").read_text("utf-8"))
    return found


def test_x(guest: str, url: str, tmp_path: Path) -> None:
    for u in (guest, url):
        for extra in ([], ["--on-table-failure", "continue"]):
            d = command.ended(
                "run",
                u,
                "--table",
                "sales.*",
                "--table",
                '"Odd *".*',
                "--table",
                "shut.inside",
                "--table",
                "nix",
                "--to",
                str(tmp_path / "o{table}"),
                *extra,
                "--overwrite",
            )
            print(d.returncode, d.stdout, d.stderr)
    d = command.ended(
        "run",
        guest,
        "--table",
        "sales.*",
        "--table",
        '"Odd *".*',
        "--table",
        "shut.inside",
        "--table",
        "nix",
        "--to",
        str(tmp_path / "o{table}"),
        "--json",
    )
    print(d.stdout)
    d = command.ended(
        "plan",
        url,
        "--table",
        "sales.*",
        "--table",
        '"Odd *".*',
        "--table",
        "shut.inside",
        "--to",
        str(tmp_path / "o/{table}"),
    )
    print(d.stdout, d.stderr)
    d = command.ended(
        "run",
        url,
        "--table",
        "sales.*",
        "--table",
        '"Odd *".*',
        "--table",
        "shut.inside",
        "--to",
        str(tmp_path / "o/{table}"),
    )
    print(d.stdout, d.stderr)
