"""What a run over several tables is to do, as it lies in `_run` before the first row is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader import json_fields
from unloader.redaction import redact

if TYPE_CHECKING:
    from unloader.model import TablesOptions
    from unloader.resolve.table_problems import TableProblem
    from unloader.resolve.tables import OpenTables


def tables_record(
    resolved: OpenTables, options: TablesOptions, home: str, left_out: Sequence[TableProblem]
) -> bytes:
    """Return the record, without any statement of a session, which may hold a password.

    `unloader.resolve.homes` knows it by its first key. Tables that are left out stand there, too:
    a run that is gone on with is no more complete than it would have been.
    """
    runs = b", ".join(run.record().rstrip() for run in resolved.runs)
    others = json.dumps(
        {
            "home": home,
            "options": json_fields.fields_to_json(options),
            "left_out": [[each.table, redact(each.error.message)] for each in left_out],
        }
    )
    return b'{"tables": [' + runs + b"], " + others[1:].encode("ascii") + b"\n"
