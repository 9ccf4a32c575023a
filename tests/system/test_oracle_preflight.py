"""Ceilings of an Oracle database: what its connection and its workers give, over TCP."""

from __future__ import annotations

import json

from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from processes import command

COLUMNS = (
    Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0)),
    Column(name="PAD", type=Type(name="VARCHAR2", length=100)),
)


def test_the_way_to_the_database_is_measured(oracle: OracleLeg) -> None:
    """Round trips, and the bytes that came over the network, are known."""
    oracle.create("PREFLIGHT", COLUMNS)
    oracle.load("PREFLIGHT", COLUMNS, ((number, f"{number:0100d}") for number in range(2000)))
    oracle.settle()
    text = command.run(
        *("preflight", oracle.url, "--table", "PREFLIGHT", "--levels", "1,2", "--json"),
        *("--source-seconds", "0.3", "--without", "disk,encoder"),
        env=oracle.environment,
    )
    found = json.loads(text)
    one, two = found["source"]["levels"]
    assert (one["parallelism"], two["parallelism"]) == (1, 2)
    for level in (one, two):
        assert level["rows"] >= 2000
        # No two rows are alike, so that each takes its bytes at least.
        assert level["network_bytes_per_second"] > 90 * level["rows_per_second"]
    connection = found["connection"]
    assert connection["round_trip_seconds"] > 0
    assert connection["network_round_trip_seconds"] > 0
    assert connection["all_bytes_per_second"] >= connection["bytes_per_second"] > 0
    assert found["encoder"] is None
    assert found["disks"] == []
