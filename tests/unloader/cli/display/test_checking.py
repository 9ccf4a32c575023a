"""What a command that checks files shows while it does."""

from __future__ import annotations

import io
import json
import time

import pytest
from rich.console import Console

from unloader.cli.display.bar import BarDisplay
from unloader.cli.display.log import LogDisplay
from unloader.events import PhaseStarted, Verified

HALF = Verified(done=1, of=3, what="files", bytes=5 << 20, of_bytes=10 << 20)


def picture(display: BarDisplay) -> str:
    """Return what a display draws now."""
    screen = io.StringIO()
    Console(file=screen, width=100).print(display.picture(time.monotonic()))
    return screen.getvalue()


def test_a_terminal_shows_a_bar_with_files_and_bytes() -> None:
    """Without a run there is a bar, too; it is gone with the phase."""
    display = BarDisplay(Console(file=io.StringIO(), force_terminal=True, width=100))
    display(PhaseStarted(phase="verifying"))
    display(HALF)
    assert "1/3 files, 5.2 MB of 10.5 MB" in picture(display)
    assert "reading the files back" in picture(display)
    display(PhaseStarted(phase="counting"))
    assert "files," not in picture(display)
    display.close(True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_says_the_same(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """As text, and as a separate key in JSON."""
    display = LogDisplay(as_json=as_json, interval_seconds=0.0)
    display(PhaseStarted(phase="verifying"))
    display(HALF)
    line = capsys.readouterr().err.splitlines()[-1]
    if as_json:
        assert json.loads(line)["verified"] == {
            "done": 1, "of": 3, "what": "files", "bytes": 5 << 20, "of_bytes": 10 << 20,
        }  # fmt: skip
    else:
        assert "1/3 files, 5.2 MB of 10.5 MB" in line
