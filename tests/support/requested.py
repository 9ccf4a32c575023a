"""What a command line asks for, without a run of it."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from unloader import api
from unloader.cli.group import group
from unloader.cli.streams import Invocation
from unloader.model import Request


def requested(*arguments: str) -> Request:
    """Return the request that a call of `run` makes."""
    seen: list[Request] = []

    def unload(request: Request, *_: object, **__: object) -> None:
        seen.append(request)
        raise click.exceptions.Exit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "unload", unload)
        CliRunner().invoke(group, list(arguments), obj=Invocation())
    return seen[0]
