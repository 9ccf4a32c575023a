"""A run without metrics, traces and hooks loads nothing for them."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from unloader.cli import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]))
"""


def test_nothing_is_loaded_that_is_not_asked_for(source: str, to: tuple[str, ...]) -> None:
    """Neither our own modules nor the libraries for metrics and traces."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", source, *to, "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    status, modules = json.loads(done.stdout)
    assert status == 0
    ours = ("unloader.operations", "unloader.retention", "unloader.cli.display.log_lines")
    theirs = ("prometheus_client", "opentelemetry", "google.protobuf", "requests")
    assert [name for name in modules if name.startswith((*ours, *theirs))] == []
