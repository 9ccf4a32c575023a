"""`unloader sources`: which databases this installation can read."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.errors import ConfigError
from unloader.sources.registry import schemes, source_of


@click.command(
    "sources",
    cls=JobCommand,
    short_help="List the databases that can be read.",
    epilog="""\b
    Example:
      unloader sources
    """,
)
@declared_options("sources")
def command(**values: Any) -> None:
    """List the kinds of sources, their drivers, and how to install a missing driver."""

    found = [_entry(scheme) for scheme in schemes()]
    if values["json"]:
        render.emit_json({"sources": found})
    elif not values["quiet"]:
        render.emit(
            render.table(
                ("scheme", "driver", "version", "what"),
                (
                    (
                        each["scheme"],
                        each["driver"] or render.UNKNOWN,
                        each["driver_version"] or each["install"] or render.UNKNOWN,
                        each["summary"],
                    )
                    for each in found
                ),
            )
        )
    for each in () if values["quiet"] else found:
        if each["warning"]:
            click.echo(f"unloader: warning: {each['driver']}: {each['warning']}", err=True)


def _entry(scheme: str) -> dict[str, Any]:

    try:
        source = source_of(scheme)
    except ConfigError as error:
        # A broken third-party package must not hide the others.
        return _line(scheme, error.message)
    try:
        installed = version(source.driver) if source.driver else None
    except PackageNotFoundError:
        installed = None
    entry = _line(scheme, source.summary)
    entry.update(driver=source.driver, extra=source.extra, driver_version=installed)
    entry["options"] = list(source.options)
    if installed is not None:
        entry["warning"] = source.driver_warning(installed)
    if installed is None and source.extra:
        entry["install"] = f"pip install 'unloader[{source.extra}]'"
    return entry


def _line(scheme: str, summary: str) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "summary": summary,
        "driver": None,
        "extra": None,
        "driver_version": None,
        "install": None,
        "warning": None,
        "options": [],
    }
