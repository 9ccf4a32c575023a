"""Clients that others wrote read from the test server exactly what its tables hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from oracle_server.model import Column
from oracle_server.server import OracleServer
from witness_clients import UNREADABLE, Client, held, read
from witness_table import PASSWORD, ROWS, USER, Tables

FETCH_ROWS = 150
"""So that 5,000 rows take many replies, the last one shorter than the others."""


def _run(
    client: Client, server: OracleServer, *statements: str, password: str = PASSWORD
) -> list[Any]:
    return client.run(
        USER,
        server.host,
        str(server.port),
        server.service,
        str(FETCH_ROWS),
        password=password,
        statements=statements,
    )


def _result(lines: Iterator[Any]) -> tuple[list[Any], list[list[Any]]]:
    """Return the columns and rows of one statement's lines."""
    head = next(lines)
    assert "columns" in head, head
    rows = []
    for line in lines:
        if "row" not in line:
            assert line == {"rows": len(rows)}
            return head["columns"], rows
        rows.append(line["row"])
    raise AssertionError("the client stopped in the middle of its rows")


def _check(
    client: Client, columns: tuple[Column, ...], rows: list[Any], seen: list[list[Any]]
) -> None:
    """Compare every value; the message names the first that is another one."""
    assert len(seen) == len(rows)
    for number, (row, texts) in enumerate(zip(rows, seen, strict=True)):
        for column, value, text in zip(columns, row, texts, strict=True):
            expected = held(client.name, column.type, value)
            if expected != UNREADABLE:
                found = read(column.type, text)
                assert found == expected, f"row {number}, {column.name}: {text!r} is not {value!r}"[
                    :400
                ]


@pytest.mark.parametrize(
    ("mode", "verifier"), [("23ai", "12c"), ("21c", "11g"), ("19c", "12c"), ("19c", "11g")]
)
def test_a_client_reads_every_value(
    client: Client, tables: Tables, mode: str, verifier: str
) -> None:
    """Every type, NULL and repeated value arrives over many replies, and after an error as well."""
    columns, rows = tables.columns["VALUES_OF_TYPES"], tables.rows["VALUES_OF_TYPES"]
    with OracleServer(tables.database, mode=mode, verifier=verifier) as server:
        lines = iter(
            _run(
                client,
                server,
                "SELECT * FROM VALUES_OF_TYPES",
                "SELECT * FROM NO_SUCH_TABLE",
                "SELECT ID FROM VALUES_OF_TYPES",
                "SELECT ROWID, ROWIDTOCHAR(ROWID) AS R FROM FLAGS",
            )
        )
        assert "connected" in next(lines)
        described, seen = _result(lines)
        assert [name for name, *_ in described] == [column.name for column in columns]
        _check(client, columns, rows, seen)

        failed = next(lines)
        assert failed["error"] == 942
        assert failed["message"].startswith("ORA-00942: ")

        # No value is repeated here, so the server stops comparing rows after the first reply.
        _, numbers = _result(lines)
        assert numbers == [[str(number)] for number in range(ROWS)]

        _, addresses = _result(lines)
        assert len(addresses) == len(tables.rows["FLAGS"])
        assert all(binary == text for binary, text in addresses)


def test_a_client_without_bit_vectors_reads_the_same(client: Client, tables: Tables) -> None:
    """A server that sends every row whole is understood too, in small packets as in large ones."""
    columns, rows = tables.columns["VALUES_OF_TYPES"], tables.rows["VALUES_OF_TYPES"]
    with OracleServer(tables.database, vectors=False, sdu=512) as server:
        lines = iter(_run(client, server, "SELECT * FROM VALUES_OF_TYPES"))
        assert "connected" in next(lines)
        _check(client, columns, rows, _result(lines)[1])


@pytest.mark.parametrize("mode", ["23ai", "19c"])
def test_a_client_reads_large_objects(client: Client, tables: Tables, mode: str) -> None:
    """CLOBs, NCLOBs and BLOBs arrive whole, however the client wants them.

    Node takes locators and reads them, Go takes LONGs in place of LOBs, Java takes the first 32 KiB
    with the locators and reads the rest.
    """
    columns, rows = tables.columns["LARGE_OBJECTS"], tables.rows["LARGE_OBJECTS"]
    with OracleServer(tables.database, mode=mode) as server:
        lines = iter(_run(client, server, "SELECT * FROM LARGE_OBJECTS"))
        assert "connected" in next(lines)
        _check(client, columns, rows, _result(lines)[1])


def test_a_client_reads_booleans(client: Client, tables: Tables) -> None:
    """BOOLEAN, which only 23ai has, arrives as true, false and NULL."""
    with OracleServer(tables.database) as server:
        lines = iter(_run(client, server, "SELECT * FROM FLAGS"))
        assert "connected" in next(lines)
        _check(client, tables.columns["FLAGS"], tables.rows["FLAGS"], _result(lines)[1])


@pytest.mark.parametrize("verifier", ["12c", "11g"])
def test_a_wrong_password_is_refused(client: Client, tables: Tables, verifier: str) -> None:
    """A client that logs in with another password gets ORA-01017 and nothing else."""
    with OracleServer(tables.database, verifier=verifier) as server:
        (line,) = _run(client, server, "SELECT 1 FROM DUAL", password="lion")
        assert line["error"] == 1017
        assert line["message"].startswith("ORA-01017: ")
    assert not server.sessions
