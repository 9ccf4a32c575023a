"""The symbolic link that leads to the newest run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unloader.errors import FollowUpFailed, OutputFailed


def link_of(directory: str, name: str) -> Path:
    """Return the path of the link that lies beside the directory of a run."""
    return Path(directory.rstrip("/")).parent / name


def check_link(directory: str, name: str) -> None:
    """Check that nothing but a symbolic link has the name.

    Raises:
        OutputFailed: Something has.
    """
    link = link_of(directory, name)
    if os.path.lexists(link) and not link.is_symlink():
        raise OutputFailed(
            f"{link} exists and is not a symbolic link",
            "remove it, or choose another name with --latest-link",
        )


def switch_link(directory: str, name: str, run_id: str) -> None:
    """Let the link lead to a directory; whoever follows it finds the former run or the new one.

    Raises:
        FollowUpFailed: The file system refused; the link is as it was.
    """
    link = link_of(directory, name)
    made = link.with_name(f".{name}-{run_id}")
    try:
        check_link(directory, name)
        with suppress(FileNotFoundError):
            os.unlink(made)  # Of this run, which was killed just here.
        os.symlink(os.path.basename(directory.rstrip("/")), made)
        os.replace(made, link)
    except (OSError, OutputFailed) as error:
        with suppress(OSError):
            os.unlink(made)
        why = error.strerror if isinstance(error, OSError) else str(error).partition(". Next")[0]
        raise FollowUpFailed(
            f"the run is complete in {directory}, but the link {link} still leads to another "
            f"place: {why}",
            f"set it by hand: ln -sfn {os.path.basename(directory.rstrip('/'))} {link}",
        ) from error
