"""The Oracle test server of this repository, in a separate process, for the scripts here.

It speaks Oracle's protocol to the real driver. A server in Python uses one processor, so more
clients alone gain nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


@contextmanager
def oracle_test_server(*arguments: str) -> Iterator[dict[str, Any]]:
    """Start the server, and yield its `url`, `dsn` and `password` once it listens.

    It ends when its standard input is closed. The password is in UNLOADER_PASSWORD from then on.

    Args:
        arguments: As `python -m oracle_server --help` lists them.

    Raises:
        SystemExit: It did not start.
    """
    paths = os.pathsep.join((str(CHECKOUT / "tests" / "support"), str(CHECKOUT)))
    with subprocess.Popen(
        [sys.executable, "-m", "oracle_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line:
                sys.exit("the Oracle test server did not start. Next: pip install '.[test]'")
            told: dict[str, Any] = json.loads(line)
            os.environ["UNLOADER_PASSWORD"] = told["password"]
            yield told
        finally:
            server.stdin.close()
