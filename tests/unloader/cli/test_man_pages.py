"""The manual pages in `man` are those of the declarations, and `man` shows them without a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from schemas import man_pages

MAN = Path(__file__).parents[3] / "man"


def test_each_command_has_its_page() -> None:
    """A changed option changes the page: `python tests/support/schemas/man_pages.py man`."""
    found = {each.name: each.read_text("utf-8") for each in MAN.iterdir()}
    assert found == man_pages.pages()


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_shows_them_without_a_warning(tmp_path: Path) -> None:
    """Of all pages at once; a page with an unknown request is found."""
    broken = tmp_path / "broken.1"
    broken.write_text('.TH X 1\n.SH NAME\nx \\- y\n.SH "open\n.nosuch request\n')

    def warnings(*pages: Path) -> str:
        shown = subprocess.run(
            ["man", "--warnings", "-l", *map(str, pages)],
            env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert "X(1)" in shown.stdout or "--parallelism" in shown.stdout
        return shown.stderr

    assert warnings(*sorted(MAN.iterdir())) == ""
    assert "nosuch" in warnings(broken)
