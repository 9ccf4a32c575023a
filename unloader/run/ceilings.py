"""The ceilings that a run is compared with: read before it begins, since they may be edited."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unloader.errors import ConfigError
from unloader.events import Notice, Observer
from unloader.model import Request

if TYPE_CHECKING:
    from unloader.ceilings.model import Ceilings


def check_ceilings(request: Request) -> None:
    """Check that the file can be used, if the request names one.

    Raises:
        ConfigError: It cannot.
    """
    if request.ceilings is not None:
        from unloader.ceilings.file import read_ceilings

        read_ceilings(Path(request.ceilings))


def ceilings_of(request: Request, observe: Observer) -> Ceilings | None:
    """Return the ceilings of a request; None without any, or where the file has gone since.

    A run that is resumed must not fail for want of them.
    """
    if request.ceilings is None:
        return None
    from unloader.ceilings.file import read_ceilings

    try:
        return read_ceilings(Path(request.ceilings))
    except ConfigError as error:
        observe(Notice(text=f"the run is not compared with the ceilings: {error.message}"))
        return None
