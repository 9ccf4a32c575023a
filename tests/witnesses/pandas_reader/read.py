"""Reads files with pandas, which its own environment has.

Each line of standard input is JSON: `{"csv": path, "options": {...}}` for `read_csv`, or
`{"parquet": path, "to": path}`, which is read and written again. Each answer is a line of JSON: the
rows with null where pandas has no value, or true.
"""

import json
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def rows_of_csv(path, options):
    frame = pd.read_csv(path, dtype=str, **options)
    missing = frame.isna().values.tolist()
    return [
        [None if gone else value for value, gone in zip(row, none, strict=True)]
        for row, none in zip(frame.values.tolist(), missing, strict=True)
    ]


def copied_parquet(path, to):
    frame = pd.read_parquet(path, engine="pyarrow", dtype_backend="pyarrow")
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), to)
    return True


for line in sys.stdin:
    asked = json.loads(line)
    if "csv" in asked:
        answer = rows_of_csv(asked["csv"], asked["options"])
    else:
        answer = copied_parquet(asked["parquet"], asked["to"])
    print(json.dumps(answer), flush=True)
