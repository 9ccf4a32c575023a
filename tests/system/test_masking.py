"""Masked columns: no clear value anywhere, however a run ends, and one token for one value."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from masking import CLEAR, KEY, MASKS, OTHER_KEY, ROWS, UNITS, Place, persons_of_duckdb, rows
from processes import command
from processes.breaking import kill_after, staged_units

if TYPE_CHECKING:
    from oracle.leg import OracleLeg


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of persons in DuckDB."""
    return persons_of_duckdb(tmp_path_factory.mktemp("duck") / "t.duckdb")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty directory."""
    tmp_path.chmod(0o700)
    return Place(tmp_path)


def written(dest: Path) -> dict[str, tuple[str, ...]]:
    """Return the records of CSV or Parquet files by their first column, names in lower case."""
    found: list[dict[str, Any]] = []
    for path in sorted(dest.glob("*.csv")):
        found += csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    for path in sorted(dest.glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    named = [{name.lower(): value for name, value in row.items()} for row in found]
    return {
        str(row["id"]): tuple(
            str(row[name] or "") for name in ("email", "name", "card", "born", "note")
        )
        for row in named
    }


@pytest.mark.long("masked runs")
def test_nothing_clear_is_left_of_a_run_that_ends_well(source: str, place: Place) -> None:
    """In no file, record, manifest, plan, log or message; and each value has its one token."""
    plan = place.path / "plan.json"
    options = (*MASKS, "--log-format", "json", "--progress", "log")
    table = ("plan", source, "--table", "persons", *UNITS, *MASKS)
    place.run(*table, "--output", str(plan))
    place.run(*table)
    place.run(*place.job(source, *options, "--verify", "full", "--json"))
    found = written(place.path / "out")
    assert len(found) == ROWS
    digest = hmac.new(base64.b64decode(KEY), f"{CLEAR}.7@mail.example".encode(), hashlib.sha256)
    assert found["7"][0] == digest.hexdigest()
    assert found["7"][:3] == found["1007"][:3]
    for column in range(3):
        assert len({row[column] for row in found.values()}) == 1_000
    place.run("run", str(plan), "--to", str(place.path / "parquet"), "--format", "parquet")
    assert written(place.path / "parquet") == found
    place.check()


def test_nothing_clear_is_left_of_runs_that_are_killed_and_resumed(
    source: str, place: Place
) -> None:
    """With another key they do not go on; with the same, wherever it is, they end as they would."""
    job = place.job(source, *MASKS, "--verify", "full", "--unit-bytes", "2kB", "--parallelism", "1")
    assert kill_after(1, place.path / "out", *job, env=place.env)
    place.check()
    out = str(place.path / "out")
    wrong = {"UNLOADER_MASKING_KEY_DEFAULT": OTHER_KEY}
    assert "masking key default" in place.run("resume", out, status=3, env=wrong)
    place.run("resume", out, "--mask-key", "env:ELSEWHERE", env={**wrong, "ELSEWHERE": KEY})
    found = written(place.path / "out")
    assert len(found) == ROWS
    assert command.manifest_of(place.path / "out")["totals"]["rows"] == ROWS
    place.check()


@pytest.mark.long("masked runs")
@pytest.mark.parametrize(
    "options",
    [
        ("--expression", "n=CAST(substr(email, 1, 5) AS INTEGER)"),
        ("--cast", "name=int64"),
        *also(
            OTHER_ROUTES,
            (("--expression", "n=error(email)"),),
            (("--cast", "card=int32"),),
            (("--mask", "name=ff1"),),
            (("--filter", "CAST(email AS DATE) > DATE '2000-01-01'"),),
        ),
    ],
)
def test_a_value_that_a_step_cannot_take_is_not_shown(
    source: str, place: Place, options: tuple[str, ...]
) -> None:
    """The error names the column and what to do, in every log and traceback, and no value."""
    masks = MASKS if options[0] != "--mask" else (*MASKS[:4], *MASKS[6:], *options)
    status = 2 if "error(" in options[1] else 6
    job = place.job(source, *masks, *options, "--log-format", "json", "--retries", "0")
    text = place.run(*job, status=status)
    assert "Next" in text or "hint" in text
    place.check()


@pytest.mark.parametrize("codec", ["none", *also(OTHER_ROUTES, "fastest")])
def test_what_a_database_says_of_a_row_is_not_shown(source: str, place: Place, codec: str) -> None:
    """Its message has the value that it cannot convert; the sample for a codec meets it, too."""
    query = "SELECT id, email, CAST(email AS INTEGER) AS number, name FROM persons"
    masks = ("--mask", "email=hmac", "--mask", "name=redact", "--compression", codec)
    text = place.run(
        *("run", source, "--query", query, "--to", str(place.path / "out"), *masks), status=4
    )
    assert "columns are masked" in text
    place.check()


def test_a_run_that_fails_half_way_is_masked_as_far_as_it_came(source: str, place: Place) -> None:
    """This covers staged files and messages."""
    failing = ("--expression", "n=CASE WHEN id = 1400 THEN CAST(name AS INT) END")
    place.run(*place.job(source, *MASKS, *failing, "--parallelism", "1"), status=6)
    assert staged_units(place.path / "out")
    place.check()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of orders and their customers, whose numbers have other types."""
    path = tmp_path_factory.mktemp("shop") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE customers AS SELECT i::INT AS id, '{CLEAR}' || i AS name "
            "FROM range(500) r(i); CREATE TABLE orders AS SELECT i AS no, "
            f"(i % 500)::DECIMAL(9, 0) AS customer, '{CLEAR}' || (i % 500) AS name "
            "FROM range(4000) r(i)"
        )
    return f"duckdb://{path}"


def several(place: Place, shop: str) -> str:
    """Return a job of both tables, with masks above them and of each alone."""
    job = place.path / "job.toml"
    job.write_text(
        f"""
source = "{shop}"
to = "{place.path}/out/{{table}}"
parallelism = 1
unit-bytes = "4kB"
mask = ["name=hmac"]
[[table]]
table = "customers"
mask = {{ id = "tokenize", name = "hmac" }}
[[table]]
table = "orders"
format = "parquet"
mask = {{ customer = "tokenize", name = "hmac" }}
""",
        encoding="utf-8",
    )
    return str(job)


def check_joins(place: Place) -> None:
    """Fail unless each order finds its one customer, and nothing clear is left."""
    with duckdb.connect() as connection:
        joined = connection.execute(
            "SELECT count(*), count(DISTINCT c.id) FROM "
            f"read_csv('{place.path}/out/customers/*.csv', header = true) c JOIN "
            f"read_parquet('{place.path}/out/orders/*.parquet') o "
            "ON o.customer = c.id AND o.name = c.name"
        ).fetchall()
    assert joined == [(4_000, 500)]
    place.check()


def test_tables_of_one_run_join_by_their_tokens(shop: str, place: Place) -> None:
    """This holds for all types and formats."""
    place.run("run", several(place, shop))
    check_joins(place)


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_over_tables_goes_on_with_its_key_alone(shop: str, place: Place) -> None:
    """Killed while it unloads, it is resumed by the directory of all its tables."""
    job = several(place, shop)
    kill_after(1, place.path / "out" / "orders", "run", job, env=place.env)
    place.check()
    wrong = {"UNLOADER_MASKING_KEY_DEFAULT": OTHER_KEY}
    out = str(place.path / "out")
    assert "masking key default" in place.run("resume", out, status=3, env=wrong)
    place.run("resume", out, "--mask-key", "env:ELSEWHERE", env={**wrong, "ELSEWHERE": KEY})
    check_joins(place)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_one_key_gives_one_token_in_every_database(
    source: str, place: Place, oracle: OracleLeg, postgres: Any, form: str
) -> None:
    """DuckDB, PostgreSQL and Oracle, with other types and sizes of units; nothing clear is left."""
    from oracle_server.model import Column, Type

    number = Type(name="NUMBER", precision=18, scale=0)
    text = Type(name="VARCHAR2", length=100)
    kinds = {"ID": number, "EMAIL": text, "NAME": text, "CARD": number, "BORN": text, "NOTE": text}
    columns = tuple(Column(name=name, type=kind) for name, kind in kinds.items())
    oracle.create("PERSONS", columns)
    oracle.load("PERSONS", columns, list(rows()))
    url = postgres.database("masked_persons")
    postgres.run(
        "CREATE TABLE persons (id int, email text, name varchar(90), card numeric(16), born date, "
        "note text);" + "".join(f"INSERT INTO persons VALUES {row};\n" for row in rows()),
        url=url,
    )
    found = {}
    born = ("--expression", "born=CAST(born AS DATE)", "--format", form)
    for name, where in {"duckdb": source, "postgres": url, "oracle": oracle.url}.items():
        dest = place.path / name
        table = "PERSONS" if name == "oracle" else "persons"
        place.run(
            *("run", where, "--table", table, "--to", str(dest), *UNITS, *MASKS, *born),
            env=oracle.environment if name == "oracle" else {},
        )
        found[name] = written(dest)
    assert len(found["duckdb"]) == ROWS
    assert found["duckdb"] == found["postgres"] == found["oracle"]
    place.check()
