"""`--verify source` with Oracle: STANDARD_HASH makes the checksums that the files have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.database import Database
from oracle_server.samples import tables as samples
from processes import command

ROWS = 64
NOT_HASHED = r"LONG|CLOB|NCLOB|BLOB|.*XMLTYPE|JSON|VECTOR"
"""Types that STANDARD_HASH does not take."""
ZONED = r"TIMESTAMP.* WITH TIME ZONE"
"""As text the name of the region is spelled as elsewhere, which Oracle cannot do."""


@pytest.fixture(scope="module", params=oracle_leg.legs())
def leg(request: pytest.FixtureRequest) -> Iterator[OracleLeg]:
    """One database for the module, with a table of every type."""
    with oracle_leg.opened(request.param) as found:
        database = Database()
        database.add_user("SCOTT", "tiger")
        without = [kind for kind in ("BOOLEAN", "JSON", "VECTOR") if not found.supports(kind)]
        table = samples.types_table(database, name="HASHED", rows=ROWS, without=without)
        rows = [row for part in table.segments for _, row in part.view(database.scn).rows()]
        if found.is_real:
            rows = [tuple(0.0 if isinstance(v, float) and v == 0 else v for v in r) for r in rows]
        found.create("HASHED", table.columns, rows=rows)
        yield found


def answer(leg: OracleLeg, *arguments: str) -> dict[str, Any]:
    """Return the answer of a command."""
    text = command.run(*arguments, "--json", "--progress", "none", env=leg.environment)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("format", ["csv", *also(OTHER_ROUTES, "parquet")])
def test_oracle_computes_the_same_of_every_type(
    leg: OracleLeg, tmp_path: Path, format: str
) -> None:
    """During the run and later, for all types that STANDARD_HASH takes; the others are named."""
    manifest = answer(
        leg, "run", leg.url, "--table", "HASHED", "--to", str(tmp_path / "out"),
        "--format", format, "--verify", "source", "--parallelism", "1",
    )  # fmt: skip
    named = {text.partition(":")[0] for text in manifest["verified"]["not_compared"]}
    columns = manifest["columns"]
    expected = {
        column["name"]
        for column in columns
        if re.match(NOT_HASHED, column["source_type"])
        or (re.match(ZONED, column["source_type"]) and column["output_type"] == "string")
    }
    assert named == expected
    assert len(expected) < len(columns) / 2
    found = answer(leg, "verify", str(tmp_path / "out"), leg.url, "--level", "source")
    assert found["result"] == "ok"
    assert {text.partition(":")[0] for text in found["not_compared"]} == expected
