"""What a run over several tables is to do, as it lies in `_run` before any is published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader import json_fields
from unloader.canonical_json import CanonicalTexts
from unloader.redaction import redact

if TYPE_CHECKING:
    from unloader.model import TablesOptions
    from unloader.resolve.tables.problems import TableProblem
    from unloader.resolve.tables.resolving import OpenTables


def tables_record(
    resolved: OpenTables, options: TablesOptions, home: str, problems: Sequence[TableProblem]
) -> bytes:
    """Return the record, without any statement of a session, which may hold a password.

    `unloader.resolve.tables.homes` knows it by its first key.
    """
    texts = CanonicalTexts()
    runs = b", ".join(run.record(texts).rstrip() for run in resolved.runs)
    left_out = [
        {"table": each.table, "error": type(each.error).__name__, "why": redact(each.error.message)}
        for each in problems
    ]
    others = json.dumps(
        {
            "home": home,
            "options": json_fields.fields_to_json(options),
            "left_out": left_out,
        }
    )
    return b'{"tables": [' + runs + b"], " + others[1:].encode("ascii") + b"\n"
