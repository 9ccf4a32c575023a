"""Samples of tables that refer to each other, masked: the rows still join, by tokens alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from masking import CLEAR, KEY
from processes import command

REGIONS, SHOPS, SALES = 60, 600, 4_000
TYPES = {
    "duckdb": ("INTEGER", "BIGINT", "DECIMAL(12, 2)", "VARCHAR"),
    "postgresql": ("integer", "bigint", "numeric(12, 2)", "varchar(12)"),
    "sqlite": ("INTEGER", "BIGINT", "NUMERIC", "TEXT"),
}
"""Of one key: in the parent, in a composite key, in a child, and in another child."""


def statements(kind: str) -> list[str]:
    """Return what makes the tables: a parent, one whose key has two columns, and two children."""
    own, composite, decimal, text = TYPES[kind]
    shops = ", ".join(f"({each % REGIONS}, {each}, '{CLEAR} {each}')" for each in range(SHOPS))
    sales = ", ".join(
        f"({each}, {'NULL' if each % 9 == 0 else each % REGIONS}, {each % SHOPS})"
        for each in range(SALES)
    )
    notes = ", ".join(f"('{each % REGIONS}', '{CLEAR}')" for each in range(SALES))
    return [
        f"CREATE TABLE regions (id {own} PRIMARY KEY, name TEXT)",
        f"CREATE TABLE shops (region {composite}, shop INTEGER, name TEXT, "
        "PRIMARY KEY (region, shop))",
        f"CREATE TABLE sales (no INTEGER, region {decimal}, shop INTEGER)",
        f"CREATE TABLE notes (region {text}, note TEXT)",
        "INSERT INTO regions VALUES "
        + ", ".join(f"({each}, '{CLEAR} {each}')" for each in range(REGIONS)),
        f"INSERT INTO shops VALUES {shops}",
        f"INSERT INTO sales VALUES {sales}",
        f"INSERT INTO notes VALUES {notes}",
    ]


def made(kind: str, place: Path, postgres: Callable[[], Any]) -> str:
    """Return the URL of a database with the tables."""
    if kind == "postgresql":
        url: str = postgres().database("masked_samples")
        postgres().run("; ".join(statements(kind)), url=url)
        return url
    path = place / f"t.{kind}"
    if kind == "duckdb":
        with duckdb.connect(str(path)) as database:
            for each in statements(kind):
                database.execute(each)
    else:
        with closing(sqlite3.connect(path)) as lite, lite:
            for each in statements(kind):
                lite.execute(each)
    return f"{kind}://{path}"


@pytest.mark.parametrize("kind", ["duckdb", *also(OTHER_ROUTES, "postgresql", "sqlite")])
def test_masked_samples_join(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """For any type of the key, alone or as a part of another; without a key a row is in no sample,
    and every row with a sampled key is there."""
    url = made(kind, tmp_path, lambda: request.getfixturevalue("postgres"))
    job = tmp_path / "job.toml"
    children = ("shops", "sales", "notes")
    job.write_text(
        f'source = "{url}"\nto = "{tmp_path}/out/{{table}}"\nparallelism = 1\n'
        'sample = "25%"\nsample-by = "region"\n'
        "[[table]]\ntable = 'regions'\nsample-by = 'id'\nmask = { id = 'tokenize', name = 'hmac' }\n"
        + "".join(
            f"[[table]]\ntable = '{each}'\nmask = {{ region = 'tokenize' }}\n"
            + ("exclude = ['name']\n" if each == "shops" else "")
            + ("exclude = ['note']\n" if each == "notes" else "")
            for each in children
        )
    )
    command.run("run", str(job), "--quiet", env={"UNLOADER_MASKING_KEY_DEFAULT": KEY})
    read = f"read_csv('{tmp_path}/out/%s/*.csv', header = true, all_varchar = true)"
    with duckdb.connect() as reader:
        ((regions, tokens),) = reader.execute(
            f"SELECT count(*), count(DISTINCT id) FROM {read % 'regions'}"
        ).fetchall()
        assert 0 < regions == tokens < REGIONS
        for child, rows in zip(children, (SHOPS, SALES, SALES), strict=True):
            ((found, joined),) = reader.execute(
                f"SELECT count(*), count(r.id) FROM {read % child} c "
                f"LEFT JOIN {read % 'regions'} r ON c.region = r.id"
            ).fetchall()
            assert found == joined
            keyed = [each for each in range(rows) if child != "sales" or each % 9]
            # Of each region that is in the sample, all rows.
            wanted = sampled(regions)
            assert found == sum(each % REGIONS in wanted for each in keyed)


def sampled(count: int) -> set[int]:
    """Return the regions in the sample, as the documentation defines it."""
    from hashlib import sha256

    limit = int(0.25 * 2**32)
    found = {
        each for each in range(REGIONS)
        if int(sha256(str(each).encode()).hexdigest()[:8], 16) < limit
    }  # fmt: skip
    assert len(found) == count
    return found
