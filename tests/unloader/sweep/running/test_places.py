"""Where a sweep writes, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.errors import OutputFailed
from unloader.sweep.running.places import places


@pytest.mark.parametrize(("below", "text"), [("", "is not a directory"), ("x", "cannot create")])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str, text: str) -> None:
    """A destination that is a file, or below one, is an error that names it, and it stays."""
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    with pytest.raises(OutputFailed, match=text) as caught, places((str(file / below),), "id"):
        pass
    assert str(file) in caught.value.message
    assert file.read_text() == "mine"


def test_what_a_sweep_has_made_is_removed(tmp_path: Path) -> None:
    """Directories of its own go again, those that were there stay."""
    (tmp_path / "there").mkdir()
    with places((str(tmp_path / "there"), str(tmp_path / "new" / "one")), "id"):
        assert (tmp_path / "new" / "one" / "_sweep-id").is_dir()
    assert [each.name for each in tmp_path.rglob("*")] == ["there"]
