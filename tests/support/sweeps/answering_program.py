"""Answers calls of the command line, one a line of JSON, in one process that has imported scipy."""

from __future__ import annotations

import contextlib
import io
import json
import sys

from unloader.cli import main


def _answer(arguments: list[str]) -> dict[str, object]:
    # With an encoding and bytes below, as standard streams have them.
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    texts = [each.buffer.getvalue().decode() for each in (out, err)]
    return {"status": status, "out": texts[0], "err": texts[1]}


for line in sys.stdin:
    print(json.dumps(_answer(json.loads(line))), flush=True)
