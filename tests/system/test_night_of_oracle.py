"""Everything together over tables of Oracle, beside runs of one table at the same SCN."""

from __future__ import annotations

import csv
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES
from masking import CARDS, CLEAR, KEY, card
from oracle.leg import OracleLeg
from oracle_server.model import Column, Moment, Type
from processes import command
from processes.breaking import held_behind, staged_units

ENV = {"UNLOADER_MASKING_KEY_DEFAULT": KEY}
CUSTOMERS = 400


@dataclass(frozen=True, kw_only=True)
class Entry:
    name: str
    keys: str
    mask: str = ""
    routes: tuple[str, ...] = ()
    """Each with its name first, and without its directory."""

    def several(self, home: Path) -> str:
        """Return the entry among others."""
        mask = f"[table.mask]\n{self.mask}\n" if self.mask else ""
        return f"[[table]]\n{self._keys(home)}\n{mask}{self._routes('table.route', home)}"

    def alone(self, home: Path) -> str:
        """Return the same as a job of this table alone."""
        mask = f"[mask]\n{self.mask}\n" if self.mask else ""
        return f"{self._keys(home)}\n{mask}{self._routes('route', home)}"

    def _keys(self, home: Path) -> str:
        return self.keys if self.routes else f'{self.keys}\nto = "{home}/{self.name}"'

    def _routes(self, key: str, home: Path) -> str:
        return "".join(
            f'[[{key}]]\nname = "{route.splitlines()[0]}"\n'
            f'to = "{home}/{self.name}/{route.splitlines()[0]}"\n'
            + "\n".join(route.splitlines()[1:])
            + "\n"
            for route in self.routes
        )


NIGHT = (
    Entry(
        name="customers",
        keys='table = "CUSTOMERS"\nsample = "40%"\nsample-by = "ID"',
        routes=(
            "tests\nmask = { NAME = 'tokenize', CARD = { method = 'ff1', digits = 16 }, BORN = "
            "{ method = 'truncate-date', to = 'year' }, ID = 'tokenize' }\nexclude = ['PHOTO']",
            "lake\nformat = 'parquet'\nfilter = 'ID > 100'\nmask = { NAME = 'hmac', CARD = "
            "'redact', DOC = 'redact' }",
            "lobs\ncolumns = ['ID', 'DOC', 'PHOTO']\nfilter = 'ID < 300'\ncompression = 'gzip'",
        ),
    ),
    Entry(
        name="orders",
        keys='table = "ORDERS"\nsample = "40%"\nsample-by = "CUSTOMER"\nwhere = "AMOUNT > 3"',
        mask="CUSTOMER = 'tokenize'\nWHEN_MADE = { method = 'shift-date', by = 'CUSTOMER', days = 90 }",
    ),
    Entry(name="first", keys='table = "ORDERS"\nlimit-rows = 50'),
    Entry(name="few", keys='table = "FEW"\nformat = "parquet"'),
    Entry(name="bare", keys='table = "BARE"\ndialect = "sqlldr-var"'),
    Entry(
        name="totals",
        keys='query = "SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER ORDER BY '
        'CUSTOMER"',
        mask="CUSTOMER = 'tokenize'",
    ),
)


def column(name: str, kind: str, **more: Any) -> Column:
    """Return a column."""
    return Column(name=name, type=Type(name=kind, **more))


def fill(oracle: OracleLeg) -> None:
    """Make the tables."""
    number = {"precision": 9, "scale": 0}
    customers = (
        column("ID", "NUMBER", **number), column("NAME", "VARCHAR2", length=60),
        column("CARD", "NUMBER", precision=16, scale=0), column("BORN", "DATE"),
        column("DOC", "CLOB"), column("PHOTO", "BLOB"),
    )  # fmt: skip
    oracle.create("CUSTOMERS", customers)
    rows = (
        (each, f"{CLEAR} {each}", card(each), Moment(1961 + each % 40, 4, 12),
         None if each % 5 == 0 else f"doc {each} Zoë\n" * (each % 7 * 40),
         None if each % 3 == 0 else bytes([each % 256]) * (each % 11 * 500))
        for each in range(CUSTOMERS)
    )  # fmt: skip
    oracle.load("CUSTOMERS", customers, rows)
    orders = (
        column("NO", "NUMBER", precision=12, scale=0), column("CUSTOMER", "VARCHAR2", length=12),
        column("AMOUNT", "NUMBER", precision=12, scale=2),
        column("WHEN_MADE", "TIMESTAMP", scale=6),
    )  # fmt: skip
    oracle.create(
        "ORDERS", orders,
        tail="PARTITION BY RANGE (NO) (PARTITION P_A VALUES LESS THAN (1000), "
        "PARTITION P_B VALUES LESS THAN (MAXVALUE))",
    )  # fmt: skip
    oracle.load(
        "ORDERS", orders,
        ((each, None if each % 17 == 0 else str(each % CUSTOMERS), each % 100,
          Moment(2026, 1, 2, 3, each % 60, 0, each * 1_000)) for each in range(3_000)),
    )  # fmt: skip
    few = (column("ID", "NUMBER", **number), column("NAME", "VARCHAR2", length=20))
    oracle.create("FEW", few)
    oracle.load("FEW", few, ((each, f"few {each}") for each in range(7)))
    oracle.create("BARE", few)


def top(oracle: OracleLeg, scn: str = "") -> str:
    """Return what every job begins with."""
    units = 'parallelism = 2\nunit-bytes = "16kB"\nverify = "full"\n'
    return f'source = "{oracle.url}"\n{units}' + (f"scn = {scn}\n" if scn else "")


def _places(home: Path) -> list[Path]:
    """Return the directories of a home that runs are at."""
    return [room.parent for room in home.rglob("_run")]


def kill_in_the_middle(home: Path, *arguments: str, env: dict[str, str]) -> None:
    """Kill a run of one worker once some units are on record, and others are not."""
    running = command.Forked(*arguments, env={**held_behind(3, files=3), **env})
    try:
        running.wait_until(lambda: any(map(staged_units, _places(home))), "a finished unit")
    finally:
        workers = running.workers()
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)


def written(home: Path) -> dict[str, bytes]:
    """Return all data files by their paths in a home."""
    found = (path for path in home.rglob("*") if path.is_file() and path.name[0] != "_")
    return {str(path.relative_to(home)): path.read_bytes() for path in found}


@pytest.mark.long(OTHER_ROUTES)
def test_a_night_is_what_runs_of_one_table_would_have_written(
    oracle: OracleLeg, tmp_path: Path
) -> None:
    """Routes, masks, samples, limits, filters and LOBs, also when it was killed and resumed; keys of
    customers join, and nothing clear is where it is masked."""
    fill(oracle)
    env = {**ENV, **oracle.environment}
    job, home = tmp_path / "night.toml", tmp_path / "night"
    job.write_text(top(oracle) + "".join(entry.several(home) for entry in NIGHT))
    kill_in_the_middle(home, "run", str(job), "--parallelism", "1", env=env)
    command.run("resume", str(home), "--quiet", env=env)
    together = written(home)
    scn = command.manifest_of(home)["snapshot"]["value"]
    alone = tmp_path / "alone"
    for entry in NIGHT:
        job.write_text(top(oracle, scn) + entry.alone(alone))
        command.run("run", str(job), "--quiet", env=env)
    assert _by_rows(home, together) == _by_rows(alone, written(alone))
    command.run("verify", str(home), "--strict", "--quiet", env=env)
    _check_joins(home)
    for name, data in together.items():
        if not name.startswith("customers/lobs"):
            assert CLEAR.encode() not in data, name
            assert CARDS.encode() not in data, name


def _by_rows(home: Path, files: dict[str, bytes]) -> dict[str, Any]:
    return {
        name: pq.read_table(home / name).to_pylist() if name.endswith(".parquet") else data
        for name, data in files.items()
    }


def _check_joins(home: Path) -> None:
    """Fail unless each order of the sample has its customer there, under one token."""
    ids = _column(home / "customers" / "tests", "ID")
    customers = _column(home / "orders", "CUSTOMER")
    assert 0.25 * CUSTOMERS < len(ids) < 0.55 * CUSTOMERS
    assert len(customers) > 50
    assert customers <= ids


def _column(place: Path, name: str) -> set[str]:
    """Return the values of a column of CSV files."""
    texts = (path.read_text(encoding="utf-8") for path in place.glob("*.csv"))
    return {row[name] for text in texts for row in csv.DictReader(StringIO(text))}
