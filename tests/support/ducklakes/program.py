"""The program of a process with the DuckDB that has the extension.

    python program.py make CATALOG DIRECTORY     a catalog whose data goes to the directory
    python program.py contract TABLE             check all promises of a format of tables
    python program.py sql CATALOG STATEMENT      print the rows as Python shows them

A catalog is as in `--to`, without the mark; a statement finds it as `lake`.
"""

from __future__ import annotations

import sys

import duckdb
from lakehouse.format_checks import Checks

from unloader.lakehouse.ducklake_tables import Address, attached, extensions


def main() -> None:
    """Do it."""
    what, name, *rest = sys.argv[1:]
    if what == "contract":
        Checks("ducklake", name, _rows).check_format()
        return
    with duckdb.connect() as connection:
        extensions(connection, name)
        connection.execute("SET TimeZone = 'UTC'")
        if what == "make":
            connection.execute(f"ATTACH 'ducklake:{name}' AS lake (DATA_PATH '{rest[0]}')")
            return
        connection.execute(f"ATTACH 'ducklake:{name}' AS lake (CREATE_IF_NOT_EXISTS false)")
        for row in connection.execute(rest[0]).fetchall():
            print(repr(row))


def _rows(name: str) -> int:
    address = Address.parse(name)
    with attached(address) as lake:
        found = lake.execute(f"SELECT count(*) FROM lake.{address.schema}.{address.table}")
        return int((found.fetchone() or (0,))[0])


if __name__ == "__main__":
    main()
