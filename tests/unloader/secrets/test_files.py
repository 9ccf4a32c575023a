"""Files with secrets: which rights are refused, and what makes up for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from unloader.errors import ConfigError
from unloader.secrets.secret_places import check_private

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user may enter, unlike the directories of pytest."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def secret(directory: Path, mode: int, owner: int | None = None) -> Path:
    path = directory / "a secret"
    path.write_text("Hunter2Xyzzy")
    if os.geteuid() == 0:
        os.chown(path, NOBODY if owner is None else owner, -1)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602, 0o604, 0o666, 0o440, 0o610])
def test_any_right_of_others_is_refused(directory: Path, mode: int) -> None:
    """Reading, writing or executing, by the group or by everybody; the hint is the remedy."""
    path = secret(directory, mode)
    with pytest.raises(ConfigError, match=f"other users can read .* .mode {mode:03o}") as caught:
        check_private(path, "password file")
    assert f"chmod 600 '{path}'" in caught.value.hint
    path.chmod(0o600)
    check_private(path, "password file")


def test_a_link_counts_as_what_it_leads_to(directory: Path) -> None:
    """A symbolic link has no separate rights."""
    link = directory / "link"
    link.symlink_to(secret(directory, 0o644))
    with pytest.raises(ConfigError):
        check_private(link, "password file")
    (directory / "a secret").chmod(0o400)
    check_private(link, "password file")


@pytest.mark.parametrize(("mode", "accepted"), [(0o700, True), (0o710, False), (0o701, False)])
def test_a_directory_may_keep_others_out(directory: Path, mode: int, accepted: bool) -> None:
    """In a directory that only its owner may enter, the rights of the file do not matter."""
    inner = directory / "closed" / "inner"
    inner.mkdir(parents=True)
    path = secret(inner, 0o644)
    inner.parent.chmod(mode)
    if accepted:
        check_private(path, "password file")
    else:
        with pytest.raises(ConfigError):
            check_private(path, "password file")


@needs_root
@pytest.mark.parametrize(
    ("mode", "accepted"), [(0o640, True), (0o440, True), (0o660, False), (0o444, False)]
)
def test_roots_file_may_be_read_by_its_group(directory: Path, mode: int, accepted: bool) -> None:
    """As libpq has it for keys: service managers hand secrets to a service through its group."""
    path = secret(directory, mode, owner=0)
    if accepted:
        check_private(path, "password file")
    else:
        with pytest.raises(ConfigError):
            check_private(path, "password file")


def test_what_is_no_file_is_left_to_whoever_reads_it(directory: Path) -> None:
    """A pipe of a shell, a directory, and a missing file."""
    os.mkfifo(directory / "pipe", 0o666)
    os.chmod(directory / "pipe", 0o666)
    for name in ("pipe", ".", "nothing"):
        check_private(directory / name, "password file")


OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")

MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from unloader.errors import ConfigError
from unloader.secrets.secret_places import check_private

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "secrets", place], check=True)
(place / "password").write_text("Hunter2Xyzzy")
(place / "password").chmod(0o444)
for options in ("remount,rw", "remount,ro"):
    subprocess.run(["mount", "-o", options, place], check=True)
    try:
        check_private(place / "password", "password file")
        print(options, "accepted")
    except ConfigError:
        print(options, "refused")
"""


def test_a_secret_of_a_container_is_accepted(directory: Path) -> None:
    """Docker and Kubernetes put root's files, readable by all, on a read-only mount in memory."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare to make a mount with")
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, "-c", MOUNTED, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this machine lets nobody make a mount of its own")
    assert done.stdout.splitlines() == ["remount,rw refused", "remount,ro accepted"], done.stderr
