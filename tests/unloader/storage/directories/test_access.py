"""Rights and owners of what a run writes: as asked for, from the first moment, or an error."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from processes.program import forked, status_of
from publications.staged_runs import as_bytes, manifest_of, stage, taken

from unloader.errors import ConfigError, UnloaderError
from unloader.storage.storage_protocol import RUN

OTHER = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(params=[0o077, 0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that would make other rights than those asked for."""
    former = os.umask(request.param)
    yield request.param
    os.umask(former)


def rights(path: Path) -> int:
    """Return the rights of a file or a directory."""
    return stat.S_IMODE(path.stat().st_mode)


def unload(path: Path, *names: str, overwrite: bool = False, **asked: Any) -> None:
    """Do a whole run with these rights."""
    with taken([path], overwrite=overwrite, **asked) as directory:
        moves = stage(directory, *names)
        directory.commit(moves, as_bytes(manifest_of(names)))


def test_a_directory_that_was_there_keeps_its_rights(tmp_path: Path) -> None:
    """Anyone who made it has decided, whether it is exchanged or files go in one by one."""
    tmp_path.chmod(0o711)
    for stranger in (False, True):
        out = tmp_path / f"out{stranger}"
        out.mkdir()
        out.chmod(0o705)
        with taken([out], overwrite=True, mode=0o604) as directory:
            moves = stage(directory, "1.csv")
            if stranger:
                # Files get their names one by one then.
                (out / "notes.txt").write_text("mine")
            directory.commit(moves, as_bytes(manifest_of(["1.csv"])))
        assert (rights(out), rights(out / "1.csv")) == (0o705, 0o604)
        assert rights(out / "_manifest.json") == 0o604


def test_staged_files_are_never_more_open_than_in_the_end(tmp_path: Path, umask: int) -> None:
    """While the run continues, no one but its user can read staged files, for any final rights."""
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    with taken([out], overwrite=False, mode=0o640) as directory:
        stage(directory, "1.csv")
        assert rights(out / RUN / "staged") & 0o077 == 0
        assert rights(out / RUN) == 0o750


def test_without_the_option_all_is_as_the_umask_has_it(tmp_path: Path, umask: int) -> None:
    """Nothing changes for those who do not ask."""
    unload(tmp_path / "out", "1.csv")
    assert rights(tmp_path / "out") == 0o777 & ~umask
    assert rights(tmp_path / "out" / "1.csv") == 0o666 & ~umask


@needs_root
def test_owner_and_group_are_given(tmp_path: Path) -> None:
    """Of the files, the manifest and new directories, also where an earlier run is replaced."""
    out = tmp_path / "out"
    unload(out, "1.csv", owner_group=f"{OTHER}:12345", mode=0o440)
    unload(out, "2.csv", owner_group=f"{OTHER}:12345", mode=0o440, overwrite=True)
    for path in (out, out / "2.csv", out / "_manifest.json"):
        assert (path.stat().st_uid, path.stat().st_gid) == (OTHER, 12345)
    assert rights(out / "2.csv") == 0o440
    assert not (out / "1.csv").exists()


def let_through(path: Path) -> None:
    """Let everybody pass to a directory: pytest keeps its own to itself, some levels up too."""
    for directory in (path, *path.parents):
        rights = directory.stat().st_mode
        if rights & 0o011 != 0o011:
            directory.chmod(rights | 0o011)


def as_other(path: Path, **asked: Any) -> str:
    """Return the error of a run that a user without rights starts."""
    # That user may not be able to read where Python is installed.
    import_module("grp")
    import_module("pwd")
    reading, writing = os.pipe()

    def become_and_unload() -> None:
        os.setgroups([])
        os.setegid(OTHER)
        os.seteuid(OTHER)
        try:
            unload(path, "1.csv", **asked)
            os.write(writing, b"done")
        except UnloaderError as error:
            os.write(writing, f"{type(error).__name__} {error.message} {error.hint}".encode())

    child = forked(become_and_unload)
    os.close(writing)
    status_of(child)
    with os.fdopen(reading) as pipe:
        return pipe.read()


@needs_root
@pytest.mark.parametrize("owner_group", ["0", ":0", "0:0"])
def test_what_is_not_permitted_is_refused_before_the_first_row(
    tmp_path: Path, owner_group: str
) -> None:
    """Another owner and a foreign group: one error with the way out, and nothing is left."""
    let_through(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    said = as_other(home / "out", owner_group=owner_group)
    assert said.startswith("OutputFailed")
    assert "cannot set the permissions or the owner of " in said
    assert ": Operation not permitted" in said
    assert "--owner-group" in said
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("owner_group", ["nobody-of-this-name", ":nobody-of-this-name"])
def test_names_that_there_are_not_are_refused(tmp_path: Path, owner_group: str) -> None:
    """A wrong name is an error of configuration, before anything is made."""
    with pytest.raises(ConfigError, match="this machine does not have"):
        taken([tmp_path / "out"], overwrite=False, owner_group=owner_group)
    assert list(tmp_path.iterdir()) == []
