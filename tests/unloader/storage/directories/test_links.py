"""Symbolic links on the way to a destination: one's own are followed, traps are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from publications.staged_runs import finish, taken

from unloader.errors import OutputFailed

OTHER = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp: all may write, and only owners may remove."""
    made = tmp_path / "shared"
    made.mkdir()
    made.chmod(0o1777)
    return made


@needs_root
@pytest.mark.parametrize("below", ["", "day/orders"])
def test_another_users_link_in_a_shared_directory_is_refused(
    shared: Path, tmp_path: Path, below: str
) -> None:
    """It would choose where our files go, at the end of the path or on the way."""
    target = tmp_path / "target"
    target.mkdir()
    (shared / "out").symlink_to(target)
    os.lchown(shared / "out", OTHER, OTHER)
    with pytest.raises(OutputFailed, match="symbolic link or belongs to another user"):
        taken([shared / "out" / below], overwrite=True)
    assert list(target.iterdir()) == []


def test_ones_own_link_is_followed(shared: Path, tmp_path: Path) -> None:
    """A link that this user has laid is a name like any other, in a shared directory, too."""
    target = tmp_path / "target"
    target.mkdir()
    (shared / "out").symlink_to(target)
    finish(shared / "out", "1.csv")
    assert (target / "1.csv").exists()


@needs_root
def test_a_link_in_a_directory_of_ones_own_is_followed(tmp_path: Path) -> None:
    """Where not everybody may write, no one lays traps."""
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "out").symlink_to(target)
    os.lchown(tmp_path / "out", OTHER, OTHER)
    finish(tmp_path / "out", "1.csv")
    assert (target / "1.csv").exists()
