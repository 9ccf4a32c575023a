"""The manifest keeps the options of a run under the keys that it always had."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

Run = Callable[..., "subprocess.CompletedProcess[str]"]

RECORDED: dict[str, Any] = {
    "to": "out",
    "columns": [],
    "exclude": [],
    "where": "id<5",
    "partition": [],
    "as_text": [],
    "format": "csv",
    "compression": {"codec": "none", "level": None},
    "compression_library": None,
    "compression_choice": None,
    "file_size": 0,
    "file_per": "unit",
    "file_name": "{table}.{unit}{part}.{ext}",
    "overwrite": True,
    "overlap_buffer": 4194304,
    "overlap_buffers": 4,
    "checksum": "xxh3",
    "direct_io": False,
    "min_free": 0,
    "pause_timeout": 3600.0,
    "fetch_memory": 33554432,
    "worker_memory": 0,
    "parallelism": 1,
    "split": "auto",
    "unit_bytes": None,
    "consistency": "snapshot",
    "verify": "count",
    "retries": 1,
    "retry_delay": 1.0,
    "retry_delay_max": 60.0,
    "stall_timeout": 300.0,
    "fetch": "auto",
    "enable_row_security": False,
    "number_without_precision": "string",
    "nanoseconds": "string",
    "zone_columns": False,
    "numa": "auto",
    "nodes": [0],
    "placement": "spread",
    "bind": "node",
    "memory_policy": "preferred",
    "near": None,
    "dialect": {
        "kind": "text",
        "delimiter": ",",
        "enclosure": "~~",
        "enclose": "strings",
        "escape": "double",
        "null": "",
        "eol": "\r\n",
        "header": False,
        "trailing_delimiter": True,
        "record_length_digits": 10,
        "encoding": "utf-8",
        "date_format": "YYYYMMDDHH24MISS",
        "timestamp_format": "YYYYMMDDHH24MISS",
        "timestamp_tz_format": "YYYYMMDDHH24MISSTZH:TZM",
        "utc": False,
        "fractions": "keep",
        "decimal_separator": ".",
        "boolean": "true/false",
        "binary": "prefixed-hex",
        "substitute": None,
        "fixed": [],
        "guard_formulas": False,
        "refused": "",
        "eol_ends_always": True,
    },
}
"""Of a run by an earlier version."""


def test_the_record_of_the_options_stays(unloader: Run, database: str) -> None:
    """Keys and values stay as scripts read them."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--json", "--quiet")
    options = ("--where", "id<5", "--dialect", "sqlldr-var", "--retries", "1")
    more = ("--numa-nodes", "0", "--overwrite", "--parallelism", "1")
    result = unloader(*arguments, *options, *more)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["options"] == RECORDED
