"""Evaluates the expression on standard input and prints the rows that it returns, as JSON.

usage: evaluate.py duckdb | pandas | polars | pyarrow | chdb
"""

import importlib
import json
import sys

library = sys.argv[1]
expression = sys.stdin.read()
if library == "pyarrow":
    import pyarrow as pa
    from pyarrow import csv

    rows = [list(row.values()) for row in eval(expression, {"pa": pa, "csv": csv}).to_pylist()]
elif library == "pandas":
    import pandas

    frame = eval(expression, {"pandas": pandas})
    rows = [
        [None if pandas.isna(value) else value for value in row]
        for row in frame.itertuples(index=False)
    ]
elif library == "chdb":
    import chdb

    # Its own text would be another dialect to read.
    answer = chdb.query(
        f"SELECT id, hex(a), isNull(a), hex(b), isNull(b) FROM ({expression})", "JSONCompactEachRow"
    )
    rows = [
        [number, *(None if null else bytes.fromhex(text).decode() for text, null in pairs)]
        for number, *rest in map(json.loads, str(answer).splitlines())
        for pairs in [list(zip(rest[::2], rest[1::2], strict=True))]
    ]
else:
    module = importlib.import_module(library)
    found = module.sql(expression) if library == "duckdb" else eval(expression, {library: module})
    rows = found.fetchall() if library == "duckdb" else found.rows()
json.dump([list(row) for row in rows], sys.stdout)
