"""The page of `--report`: checked before a run begins, written once it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unloader.errors import FollowUpFailed, UnloaderError


def check_report(values: Mapping[str, Any]) -> None:
    """Find out whether the page of `--report` can be written; nothing is done without one.

    Raises:
        ConfigError: A library is missing, or there is no such directory.
    """
    if values["report"] is None:
        return
    from unloader import api

    api.check_report(Path(values["report"]))


def write_report(values: Mapping[str, Any], manifest: dict[str, Any]) -> None:
    """Write the page of `--report`.

    Args:
        values: The options by their names with underscores.
        manifest: Of the run, which is complete.

    Raises:
        FollowUpFailed: It could not be written.
    """
    if values["report"] is None:
        return
    from unloader import api

    try:
        api.write_report(Path(values["report"]), api.report_of(manifest))
    except UnloaderError as error:
        raise FollowUpFailed(
            f"the run is complete, but {error.message}",
            "make the page again with: unloader report DEST --output FILE",
        ) from error
