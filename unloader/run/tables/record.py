"""What a run over several tables is to do, as it lies in `_run` before the first row is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from unloader import json_fields

if TYPE_CHECKING:
    from unloader.model import TablesOptions
    from unloader.resolve.tables import OpenTables


def tables_record(resolved: OpenTables, options: TablesOptions, home: str) -> bytes:
    """Return the record, without any statement of a session, which may hold a password.

    `unloader.resolve.homes` knows it by its first key.
    """
    runs = b", ".join(run.record().rstrip() for run in resolved.runs)
    others = json.dumps({"home": home, "options": json_fields.fields_to_json(options)})
    return b'{"tables": [' + runs + b"], " + others[1:].encode("ascii") + b"\n"
