"""Parts of the rows: samples by key, samples of work units, and the first rows, on each source."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import also
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from processes import command
from routes.selections import in_sample

from unloader.model import SecretReference, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.questions import sampled_keys
from unloader.sources.registry import source_of

SOURCES = ["duckdb", "sqlite", "postgresql", "oracle"]
CUSTOMERS, ORDERS = 300, 1500
KEYS = [37 * number - 500 for number in range(CUSTOMERS)]
CUSTOMER_OF = {
    number: None if number % 10 == 3 else KEYS[number * number % CUSTOMERS]
    for number in range(ORDERS)
}
"""Each order's customer; some have none."""

NUMBER = Type(name="NUMBER", precision=10, scale=0)
TEXT = Type(name="VARCHAR2", length=20)


def orders_of(share: float) -> list[int]:
    """Return the orders whose customer is in a sample."""
    return [
        order
        for order, key in CUSTOMER_OF.items()
        if key is not None and in_sample(str(key), share)
    ]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A source with the tables."""

    kind: str
    url: str
    rows: Callable[[str], list[tuple[Any, ...]]]
    """Runs a query through a connection of the test's own."""
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, to: Path, *options: str) -> dict[str, Any]:
        """Unload; return the manifest."""
        arguments = ("run", self.url, *options, "--to", str(to), "--quiet")
        command.run(*arguments, env=self.environment or None)
        return command.manifest_of(to)


KEY_TEXTS = ["5", "-7", "0", "1000", "123456789012", None]
"""Of the whole numbers and texts below."""

WORD = " Zoë Łoś 日本 % "
"""Blanks of a text without a fixed length are a part of the key."""

TABLES_OF_KEYS = {
    "duckdb": (
        "CREATE TABLE keys (n INTEGER, a BIGINT, b DECIMAL(18, 3), c VARCHAR, d HUGEINT, "
        "half DECIMAL(4, 2), tail DECIMAL(3, 3), u UUID, x BLOB, w VARCHAR)",
        "'\\xAB\\x01'::BLOB",
    ),
    "sqlite": (
        "CREATE TABLE keys (n INTEGER, a INTEGER, b NUMERIC, c TEXT, d, half NUMERIC, "
        "tail NUMERIC, u TEXT, x BLOB, w)",
        "x'AB01'",
    ),
    "postgresql": (
        "CREATE TABLE keys (n integer, a bigint, b numeric, c varchar(20), d char(20), "
        "half numeric(4, 2), tail numeric, u uuid, x bytea, w text)",
        "'\\xAB01'",
    ),
    "oracle": (
        "CREATE TABLE keys (n NUMBER(3), a NUMBER(20), b NUMBER, c VARCHAR2(20), d CHAR(20), "
        "half NUMBER(4, 2), tail NUMBER, u NVARCHAR2(36), x RAW(2), w VARCHAR2(40))",
        "HEXTORAW('AB01')",
    ),
}


def _fill(kind: str, write: Callable[[str], object]) -> None:
    """Make a table of keys, a row for each text; its column d is of text in two databases."""
    create, some_bytes = TABLES_OF_KEYS[kind]
    write(create)
    uuid = "'0a1b2c3d-0000-4000-8000-00000000000f'"
    for number, text in enumerate(KEY_TEXTS):
        value, kept = (text, f"'{text}'") if text is not None else ("NULL", "NULL")
        d = kept if kind in ("postgresql", "oracle") else value
        write(
            f"INSERT INTO keys VALUES ({number}, {value}, {value}, {kept}, {d}, "
            f"-2.50, 0.125, {uuid}, {some_bytes}, '{WORD}')"
        )


def _customers() -> str:
    return ", ".join(f"({key}, 'c{key}')" for key in KEYS)


def _orders() -> str:
    pairs = ((order, "NULL" if key is None else key) for order, key in CUSTOMER_OF.items())
    return ", ".join(f"({order}, {key})" for order, key in pairs)


def _duckdb(place: Path) -> Side:
    with duckdb.connect(str(place / "t.db")) as database:
        database.execute("CREATE TABLE customers (id BIGINT, name VARCHAR)")
        database.execute("CREATE TABLE orders (order_id INTEGER, customer_id DECIMAL(12, 2))")
        database.execute(f"INSERT INTO customers VALUES {_customers()}")
        database.execute(f"INSERT INTO orders VALUES {_orders()}")
        database.execute("CREATE VIEW recent AS SELECT * FROM orders WHERE order_id >= 500")
        database.execute("CREATE TABLE bare (id INTEGER)")
        _fill("duckdb", database.execute)

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(place / "t.db"), read_only=True) as database:
            return list(database.execute(sql).fetchall())

    return Side(kind="duckdb", url=f"duckdb://{place}/t.db", rows=rows)


def _sqlite(place: Path) -> Side:
    with closing(sqlite3.connect(place / "t.sqlite")) as lite, lite:
        lite.execute("CREATE TABLE customers (id TEXT, name TEXT)")
        lite.execute("CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER)")
        lite.executemany("INSERT INTO customers VALUES (?, ?)", [(str(k), f"c{k}") for k in KEYS])
        lite.executemany("INSERT INTO orders VALUES (?, ?)", CUSTOMER_OF.items())
        lite.execute("CREATE VIEW recent AS SELECT * FROM orders WHERE order_id >= 500")
        lite.execute("CREATE TABLE bare (id INTEGER)")
        _fill("sqlite", lite.execute)

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(place / "t.sqlite")) as lite:
            return lite.execute(sql).fetchall()

    return Side(kind="sqlite", url=f"sqlite://{place}/t.sqlite", rows=rows)


def _postgres(postgres: Any) -> Side:
    url: str = postgres.database("subsets")
    postgres.run(
        "CREATE TABLE customers (id integer, name text); "
        "CREATE TABLE orders (order_id integer, customer_id numeric(12, 2)) "
        "PARTITION BY RANGE (order_id); "
        "CREATE TABLE orders_a PARTITION OF orders FOR VALUES FROM (MINVALUE) TO (700); "
        "CREATE TABLE orders_b PARTITION OF orders FOR VALUES FROM (700) TO (MAXVALUE); "
        f"INSERT INTO customers VALUES {_customers()}; INSERT INTO orders VALUES {_orders()}; "
        "CREATE VIEW recent AS SELECT * FROM orders WHERE order_id >= 500; "
        "CREATE TABLE bare (id integer); ANALYZE",
        url=url,
    )
    statements: list[str] = []
    _fill("postgresql", statements.append)
    postgres.run("; ".join(statements), url=url)

    def rows(sql: str) -> list[tuple[Any, ...]]:
        text = postgres.run(f"SELECT json_agg(to_json(r)) FROM ({sql}) AS r", url=url)
        return [tuple(row.values()) for row in json.loads(text or "[]")]

    return Side(kind="postgresql", url=url, rows=rows)


def _oracle(leg: OracleLeg) -> Side:
    customers = (Column(name="ID", type=NUMBER), Column(name="NAME", type=TEXT))
    orders = (Column(name="ORDER_ID", type=NUMBER), Column(name="CUSTOMER_ID", type=TEXT))
    leg.create("CUSTOMERS", customers)
    leg.load("CUSTOMERS", customers, ((key, f"c{key}") for key in KEYS))
    leg.create(
        "ORDERS",
        orders,
        tail="PARTITION BY RANGE (ORDER_ID) (PARTITION P_A VALUES LESS THAN (700), "
        "PARTITION P_B VALUES LESS THAN (MAXVALUE))",
    )
    rows = ((order, None if key is None else str(key)) for order, key in CUSTOMER_OF.items())
    leg.load("ORDERS", orders, rows)
    leg.view("RECENT", 'SELECT * FROM "ORDERS" WHERE "ORDER_ID" >= 500')
    leg.create("BARE", (Column(name="ID", type=NUMBER),))
    _fill("oracle", leg.run)
    leg.settle()
    return Side(kind="oracle", url=leg.url, rows=leg.run, environment=leg.environment)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> Iterator[dict[str, Side]]:
    """Each source with customers and their orders, a view on some of these, and an empty table."""
    place = tmp_path_factory.mktemp("subsets")
    with oracle_leg.opened(oracle_leg.legs()[0]) as leg:
        found = (_duckdb(place), _sqlite(place), _postgres(postgres), _oracle(leg))
        yield {side.kind: side for side in found}


def numbers(destination: Path) -> list[int]:
    """Return the first column of all files, sorted."""
    found = []
    for path in destination.glob("*.csv"):
        with path.open(newline="") as file:
            found += [int(row[0]) for row in list(csv.reader(file))[1:]]
    return sorted(found)


@pytest.mark.parametrize("kind", ["sqlite", *also("subsets", "duckdb", "postgresql", "oracle")])
def test_a_sample_by_key_has_the_keys_that_are_defined(
    sides: dict[str, Side], kind: str, tmp_path: Path
) -> None:
    """By a numeric or textual column that is not unloaded, in several units, rows without a key
    left out; the database counts as many."""
    side, out = sides[kind], tmp_path / "out"
    manifest = side.run(
        out, "--table", "orders", "--sample", "10%", "--sample-by", "customer_id",
        "--columns", "order_id", "--parallelism", "2", "--unit-bytes", "8KiB",
    )  # fmt: skip
    expected = orders_of(0.1)
    assert numbers(out) == expected
    assert manifest["verified"]["source_rows"] == len(expected) == 220
    assert manifest["subset"]["share"] == 0.1
    assert manifest["subset"]["key"].lower() == "customer_id"
    command.run("verify", str(out), side.url, "--quiet", env=side.environment or None)


@pytest.mark.long("subsets")
@pytest.mark.parametrize("kind", SOURCES)
def test_samples_of_parent_and_child_join(
    sides: dict[str, Side], kind: str, tmp_path: Path
) -> None:
    """The parents in a sample match the children in it, for any name of the column; a
    larger sample has all of a smaller one; a query is sampled as well."""
    side = sides[kind]
    wanted = {str(key) for key in KEYS if in_sample(str(key), 0.1)}
    side.run(tmp_path / "c", "--table", "customers", "--sample", "10%", "--sample-by", "id")
    assert set(map(str, numbers(tmp_path / "c"))) == wanted
    side.run(
        tmp_path / "w", "--query", "SELECT order_id, customer_id FROM recent",
        "--sample", "25%", "--sample-by", "customer_id",
    )  # fmt: skip
    assert numbers(tmp_path / "w") == [each for each in orders_of(0.25) if each >= 500]
    assert set(orders_of(0.1)) < set(orders_of(0.25))


def test_a_limit_gives_that_many_rows_of_the_table(sides: dict[str, Side], tmp_path: Path) -> None:
    """However many workers there are; the count stops there, too."""
    side = sides["duckdb"]
    manifest = side.run(
        tmp_path / "o", "--table", "orders", "--limit-rows", "900", "--parallelism", "3",
        "--unit-bytes", "8KiB",
    )  # fmt: skip
    found = numbers(tmp_path / "o")
    assert len(set(found)) == len(found) == 900
    assert set(found) <= set(CUSTOMER_OF)
    assert manifest["subset"] == {"limit_rows": 900}
    assert manifest["verified"]["source_rows"] == 900
    command.run("verify", str(tmp_path / "o"), side.url, "--quiet", env=side.environment or None)


@pytest.mark.long("subsets")
@pytest.mark.parametrize("kind", SOURCES)
def test_limits_of_everything_that_can_be_read(
    sides: dict[str, Side], kind: str, tmp_path: Path
) -> None:
    """Views, queries with fewer rows, empty tables, samples by key, and chosen partitions."""
    side = sides[kind]

    def rows(name: str, *options: str) -> int:
        manifest = side.run(tmp_path / name, *options)
        found: int = manifest["totals"]["rows"]
        assert manifest["verified"]["source_rows"] == found
        return found

    assert rows("view", "--table", "recent", "--limit-rows", "10") == 10
    assert all(each >= 500 for each in numbers(tmp_path / "view"))
    if kind == "duckdb":
        query = "SELECT order_id FROM orders WHERE order_id < 20"
        assert rows("query", "--query", query, "--limit-rows", "1k", "--format", "parquet") == 20
        assert rows("empty", "--table", "bare", "--limit-rows", "5") == 0
    if kind in ("duckdb", "sqlite"):
        keyed = ("--table", "orders", "--sample", "10%", "--sample-by", "customer_id")
        assert rows("keyed", *keyed, "--columns", "order_id", "--limit-rows", "50") == 50
        assert set(numbers(tmp_path / "keyed")) < set(orders_of(0.1))
    if kind in ("postgresql", "oracle"):
        parts = ("--partition", "*_a,*_b", "--columns", "order_id")
        assert rows("parts", "--table", "orders", *parts, "--limit-rows", "800") == 800
        assert len(set(numbers(tmp_path / "parts"))) == 800


@pytest.mark.long("subsets")
@pytest.mark.parametrize("kind", ["duckdb", *also("subsets", "sqlite", "postgresql", "oracle")])
def test_a_sample_of_units_is_the_same_each_time(
    sides: dict[str, Side], kind: str, tmp_path: Path
) -> None:
    """Some of the units of the whole, with all of their rows.

    The rows are counted when the run ends, and later by the manifest's record of them.
    """
    side = sides[kind]
    cut = ("--table", "orders", "--split", "range", "--unit-bytes", "8KiB")
    out = tmp_path / "out"
    manifest = side.run(out, *cut, "--sample", "30%", "--parallelism", "2")
    found, subset = numbers(out), manifest["subset"]
    plan = json.loads(
        command.run(
            "plan", side.url, *cut, "--sample", "30%", "--json", env=side.environment or None
        )
    )
    assert plan["plan"]["sampled"]["of_units"] == subset["of_units"] > subset["units"] > 0
    assert [each["id"] for each in sorted(plan["plan"]["units"], key=lambda unit: unit["id"])] == [
        each["id"] for each in manifest["units"]
    ]
    assert len(set(found)) == len(found) == manifest["verified"]["source_rows"]
    assert set(found) < set(CUSTOMER_OF)
    assert 0 < len(found) < 0.7 * ORDERS
    command.run("verify", str(out), side.url, "--quiet", env=side.environment or None)


@pytest.mark.long("subsets")
def test_a_plan_file_keeps_the_subset(sides: dict[str, Side], tmp_path: Path) -> None:
    """A run of the plan reads the planned rows; options that would change it are refused."""
    side, plan = sides["duckdb"], tmp_path / "plan.json"
    options = ("--table", "orders", "--sample", "10%", "--sample-by", "customer_id")
    shown = command.run("plan", side.url, *options, "--output", str(plan))
    assert 'sample-by "customer_id"' in shown
    assert "subset       10% by customer_id" in shown
    command.run("run", str(plan), "--to", str(tmp_path / "o"), "--quiet")
    assert numbers(tmp_path / "o") == orders_of(0.1)
    refused = ("run", str(plan), "--to", str(tmp_path / "p"), "--limit-rows", "5")
    assert "--limit-rows cannot change the finished plan" in command.error_of(*refused, status=2)


REFUSED = {
    "--sample-by does not apply without --sample": ("--table", "orders", "--sample-by", "order_id"),
    "is not above 0 %": ("--table", "orders", "--sample", "0%"),
    "is more than 100 %": ("--table", "orders", "--sample", "101%"),
    "is below 1": ("--table", "orders", "--limit-rows", "0"),
    "may be a share": ("--table", "orders", "--sample", "0.01"),
    "a query is one": ("--query", "SELECT 1 AS a", "--sample", "1%"),
    "whole work units, and --limit-rows": (
        "--table", "orders", "--sample", "1%", "--limit-rows", "5",
    ),
    "--split does not apply to --limit-rows": (
        "--table", "orders", "--limit-rows", "5", "--split", "range",
    ),
    "may find other rows": ("--table", "orders", "--limit-rows", "5", "--verify", "source"),
    "unknown column 'customer' in main.orders. Next: use one of: order_id, customer_id": (
        "--table", "orders", "--sample", "1%", "--sample-by", "customer", "--columns", "order_id",
    ),
    "has the type DOUBLE, whose values cannot be keys": (
        "--query", "SELECT 1.5::DOUBLE AS x", "--sample", "1%", "--sample-by", "x",
    ),
    "read as one work unit": ("--table", "recent", "--sample", "1%"),
}  # fmt: skip


def test_what_makes_no_sense_is_refused(sides: dict[str, Side], tmp_path: Path) -> None:
    """Before anything is read, with the way out."""
    for message, options in REFUSED.items():
        status = 5 if "one work unit" in message else 2
        arguments = ("run", sides["duckdb"].url, *options, "--to", str(tmp_path / "o"))
        error = command.error_of(*arguments, "--quiet", status=status)
        assert message in error
        assert "Next: " in error
        assert not (tmp_path / "o").exists()


@pytest.mark.long("subsets")
@pytest.mark.parametrize("kind", SOURCES)
def test_a_key_has_one_text_whatever_its_type_and_source(
    sides: dict[str, Side], kind: str, tmp_path: Path
) -> None:
    """Numbers, texts, UUIDs and bytes; the database's condition holds for the keys defined."""
    side = sides[kind]
    password = tmp_path / "password"
    password.write_text(side.environment.get("UNLOADER_PASSWORD", ""), encoding="utf-8")
    secret = SecretReference(kind="file", name=str(password)) if side.environment else None
    spec = SourceSpec(kind=kind, location=side.url, secret=secret or SecretReference())
    with closing(source_of(kind).open_catalog(spec)) as catalog:
        table = catalog.describe(parse_table("keys"))
        samples = [sampled_keys(catalog, "keys", each, 0.5) for each in table.columns[1:]]
    for keys in samples:
        expected = {
            "half": ["-2.5"] * 6,
            "tail": ["0.125"] * 6,
            "u": ["0a1b2c3d-0000-4000-8000-00000000000f"] * 6,
            "x": ["ab01"] * 6,
            "w": [WORD] * 6,
        }.get(keys.column.lower(), KEY_TEXTS)
        found = side.rows(f"SELECT n, {keys.text} AS t FROM keys ORDER BY n")
        assert [text for _, text in found] == expected, keys
        if keys.condition:
            held = side.rows(f"SELECT n, {keys.text} AS t FROM keys WHERE {keys.condition}")
            assert sorted(int(number) for number, _ in held) == [
                at for at, text in enumerate(expected) if text and in_sample(text, 0.5)
            ], keys


def test_tables_of_one_run_have_their_own_samples(sides: dict[str, Side], tmp_path: Path) -> None:
    """The parent by another column, one table whole, one limited; all are counted. A table that
    lacks the column is an error that names the way out, before anything is written."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'source = "{sides["duckdb"].url}"\nsample = "10%"\nsample-by = "customer_id"\n'
        f'to = "{tmp_path}/out/{{table}}"\n'
        '[[table]]\ntable = "customers"\nsample-by = "id"\n'
        '[[table]]\ntable = "orders"\n'
        '[[table]]\ntable = "recent"\nsample = "100%"\nlimit-rows = 9\n'
        '[[table]]\ntable = "keys"\nsample = "100%"\n'
    )
    planned = json.loads(command.run("plan", str(job), "--json"))["tables"]
    assert {each["name"]: each["subset"] for each in planned} == {
        "customers": "10% by id", "orders": "10% by customer_id", "recent": "first 9 rows",
        "keys": None,
    }  # fmt: skip
    command.run("run", str(job), "--quiet", "--parallelism", "1")
    out = tmp_path / "out"
    assert numbers(out / "orders") == orders_of(0.1)
    assert numbers(out / "customers") == sorted(key for key in KEYS if in_sample(str(key), 0.1))
    assert len(numbers(out / "recent")) == 9
    assert len(numbers(out / "keys")) == len(KEY_TEXTS)
    verified = [command.manifest_of(place)["verified"] for place in sorted(out.glob("[!_]*"))]
    assert [each["source_rows"] for each in verified] == [
        len(numbers(out / "customers")), len(KEY_TEXTS), len(orders_of(0.1)), 9,
    ]  # fmt: skip
    job.write_text(job.read_text().replace('sample-by = "id"', ""))
    error = command.error_of("run", str(job), "--quiet", "--overwrite", status=2)
    assert "main.customers: --sample-by customer_id: unknown column" in error
    assert 'sample = "100%"' in error
