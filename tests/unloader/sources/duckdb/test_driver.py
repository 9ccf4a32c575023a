"""DuckDB's module loaded with less around it is the same module, and nobody else notices."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
if sys.argv[1] == "ours":
    from unloader.sources.duckdb.source import DuckDBSource
    DuckDBSource().load()
    assert "importlib.metadata" not in sys.modules
import dataclasses, importlib.metadata, re
import duckdb
from duckdb import _relation

made = duckdb.sql("SELECT range AS k, range % 3 AS v FROM range(20)")
shown = made.filter("k > 4").aggregate("v, sum(k) AS total", "v").order("v DESC").limit(2, offset=1)
both = made.set_alias("a").join(shown.set_alias("b"), "a.v = b.v").project("k, total").distinct()
print(duckdb.__version__ == importlib.metadata.version("duckdb"), dataclasses.__file__)
print(shown.fetchall(), sorted(both.fetchall()), re.sub("relation_[0-9a-f]+", "", both.sql_query()))
classes = [each for each in vars(_relation).values() if dataclasses.is_dataclass(each)]
for each in classes:
    print(each.__name__, [(field.name, field.type) for field in dataclasses.fields(each)])
first, second = (_relation.Sql("SELECT 1") for _ in range(2))
print(len(classes), first, first == second, len({first, second}), dataclasses.replace(first, text=""))
try:
    first.text = ""
except dataclasses.FrozenInstanceError as error:
    print(error)
"""


def printed(way: str) -> str:
    """Return what the program prints that loads DuckDB in a way."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_module_is_what_a_plain_import_gives() -> None:
    """Its version, rows of relations, their SQL, and the classes that these are made of."""
    pytest.importorskip("duckdb._relation", reason="this DuckDB has none of them")
    told = printed("ours")
    assert told == printed("plain")
    assert told.startswith("True ")
