"""The examples of docs/api.md run as they are, and `batches` yields exactly the rows of the table."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from msgspec.structs import replace

from unloader import api
from unloader.errors import ConfigError, UnloaderError, UsageError

ROOT = Path(__file__).parents[2]
ROWS = 5000


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A DuckDB file with a table of exact values, nulls and empty texts."""
    path = tmp_path / "sales.db"
    with duckdb.connect(str(path)) as session:
        session.execute(
            "CREATE TABLE orders AS SELECT i AS id, (i * 1.25)::DECIMAL(18,2) AS amount, "
            "CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'né ' || i END AS note "
            f"FROM range({ROWS}) t(i)"
        )
    return f"duckdb://{path}"


def test_the_examples_of_the_page_run(database: str, tmp_path: Path) -> None:
    """As one script, in the order of the page."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    lines = "\n".join(examples).splitlines()
    script = tmp_path / "examples.py"
    text = "\n".join(("if __name__ == '__main__':", *(f"    {line}" for line in lines)))
    text = text.replace("duckdb:///data/sales.db", database).replace("/extract/", f"{tmp_path}/")
    script.write_text(text)
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert shown[0] == f"{ROWS} rows in 1 files"
    assert shown[-3:] == [
        f"{ROWS} rows as in the manifest and in the source",
        f"{ROWS} rows in 1 work units",
        f"{ROWS} rows of ['id', 'amount']",
    ]


def test_batches_are_the_rows_of_the_table(database: str) -> None:
    """Compared with DuckDB's own Arrow result; in small units and batches, in threads too."""
    asked = api.request(database, table="orders")
    asked = replace(asked, unit_bytes=4096, fetch_bytes=16 * 1024, split="range")
    with duckdb.connect(database.removeprefix("duckdb://"), read_only=True) as session:
        wanted = session.execute("FROM orders ORDER BY id").fetchall()
    found: list[Any] = [None, None]

    def read(place: int) -> None:
        table = pa.Table.from_batches(list(api.batches(asked)))
        found[place] = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    threads = [threading.Thread(target=read, args=(place,)) for place in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [wanted, wanted]


def test_batches_of_postgres_are_at_one_snapshot(postgres: Any) -> None:
    """Rows that are committed after the first batch are not among them."""
    url = postgres.database("api")
    postgres.run("CREATE TABLE t AS SELECT i FROM generate_series(1, 100000) r(i)", url=url)
    asked = replace(api.request(url, table="t"), unit_bytes=256 * 1024, fetch_bytes=256 * 1024)
    found = api.batches(asked)
    first = next(found)
    postgres.run("INSERT INTO t SELECT -i FROM generate_series(1, 100000) r(i)", url=url)
    rows = [row for batch in chain([first], found) for row in batch.column(0).to_pylist()]
    assert sorted(rows) == list(range(1, 100_001))


def test_a_run_in_a_thread_is_stopped_and_resumed(database: str, tmp_path: Path) -> None:
    """Without a signal, and with an error of the tree."""
    asked = replace(api.request(database, str(tmp_path / "o"), table="orders"), unit_bytes=4096)
    failed: list[UnloaderError] = []

    def run() -> None:
        try:
            api.unload(asked, stop=lambda: True)
        except UnloaderError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [each.exit_code for each in failed] == [130]
    assert api.unload(asked, resume=True)["totals"]["rows"] == ROWS


@pytest.mark.parametrize(
    ("source", "names", "kind"),
    [
        ("duckdb:///t.db", {}, UsageError),
        ("duckdb:///t.db", {"table": "t", "query": "SELECT 1"}, UsageError),
        ("nosuch://db/x", {"table": "t"}, ConfigError),
        ("oracle://etl:geheim@db/x", {"table": "t"}, UsageError),
    ],
)
def test_a_request_that_cannot_be_is_refused(
    source: str, names: dict[str, str], kind: type[UnloaderError]
) -> None:
    """With an error of the tree that shows no password."""
    with pytest.raises(kind) as refused:
        api.request(source, **names)  # type: ignore[arg-type]
    assert "geheim" not in f"{refused.value.message} {refused.value.hint}"
