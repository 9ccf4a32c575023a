"""`python -m oracle_server`: a server with sample tables, for benchmarks and trials by hand.

Prints the source URL and the password as one line of JSON, and serves until its input ends. With
`--processes N` that many processes accept connections at one port, each with the same rows, so that
clients on many processors do not wait for one server process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys

from oracle_server.database import Database
from oracle_server.faults import Fault
from oracle_server.model import Column, Type
from oracle_server.samples.tables import accounts_tables, furnished, reference_table
from oracle_server.server import OracleServer
from oracle_server.wire.negotiation import MODES
from oracle_server.writable import WritableDatabase

_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def count(text: str) -> int:
    """Return a number of rows such as `500`, `20k` or `10M`."""
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number such as 500, 20k or 10M")
    return int(found[1]) * _UNITS[found[2]]


def order(text: str) -> Fault:
    """Return the fault that a JSON object describes: `{"kind": "cut", "after_rows": 1000}`."""
    try:
        return Fault(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m oracle_server", description=__doc__)
    parser.add_argument("--reference", type=count, default=0, metavar="ROWS", help="e.g. 10M")
    parser.add_argument("--partitions", type=int, default=32, help="of the reference table")
    parser.add_argument("--turns", type=int, default=1, help="so often its rows come; default: 1")
    parser.add_argument("--accounts", metavar="ROWS,...", help="a table of each of these sizes")
    parser.add_argument("--objects", metavar="NAME:BYTES:ROWS,...", help="tables with a BLOB")
    parser.add_argument("--writable", action="store_true", help="users may change their tables")
    parser.add_argument("--mode", choices=MODES, default="23ai")
    parser.add_argument("--processes", type=int, default=1, help="default: 1")
    parser.add_argument("--fault", type=order, action="append", default=[], metavar="JSON")
    return parser.parse_args()


def main() -> None:
    """Serve until the input ends."""
    chosen = arguments()
    if chosen.processes > 1 and (chosen.writable or chosen.fault):
        sys.exit("oracle_server: --writable and --fault are of one process")
    make = WritableDatabase if chosen.writable else Database
    database = furnished(make(version=chosen.mode))
    if chosen.reference:
        reference_table(
            database, chosen.reference, partitions=chosen.partitions, turns=chosen.turns
        )
    if chosen.accounts:
        accounts_tables(database, [count(each) for each in chosen.accounts.split(",")])
    for name, size, rows in (
        each.split(":") for each in filter(None, (chosen.objects or "").split(","))
    ):
        blob = bytes(number % 251 for number in range(int(size)))
        database.create_table(
            "SCOTT",
            name.upper(),
            columns=(
                Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0)),
                Column(name="V", type=Type(name="BLOB")),
            ),
            rows=[(number, blob) for number in range(int(rows))],
        )
    server = OracleServer(
        database, mode=chosen.mode, listener=socket.create_server(("127.0.0.1", 0), backlog=1024)
    )
    # Before any thread. The rows are shared, and the input's end ends every process.
    others = [_forked(server, number, chosen.processes) for number in range(1, chosen.processes)]
    server.renumber(0, chosen.processes)
    with server:
        for fault in chosen.fault:
            server.faults.add(fault)
        report = {"url": server.url("scott"), "dsn": server.dsn, "password": "tiger"}
        print(json.dumps(report), flush=True)
        sys.stdin.read()
    for pid in others:
        os.waitpid(pid, 0)


def _forked(server: OracleServer, number: int, processes: int) -> int:
    """Return the id of another process that serves, until the input ends."""
    pid = os.fork()
    if pid == 0:
        server.renumber(number, processes)
        with server:
            os.read(0, 1)
        os._exit(0)
    return pid


if __name__ == "__main__":
    main()
