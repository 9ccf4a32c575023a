"""`unloader formats`: what this installation can write."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
from msgspec import to_builtins

from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.lakehouse.lake_formats import EXTRAS, LIBRARIES, LakeKind
from writers import registry


@click.command(
    "formats",
    cls=JobCommand,
    short_help="List output formats, codecs and dialects.",
    epilog="""\b
    Example:
      unloader formats --json
    """,
)
@declared_options("formats")
def command(**values: Any) -> None:
    """List output formats, compression codecs, dialects of delimited text, and kinds of tables."""
    from writers.native import encoder
    from writers.parquet.native import pages
    from writers.text import dialects

    codecs, reasons = registry.codecs(), (encoder.why_not(), pages.why_not())
    if values["json"]:
        named = {name: to_builtins(each) for name, each in dialects.DIALECTS.items()}
        text, parquet = (
            {"name": "native" if reason is None else "plain", "why_not_native": reason}
            for reason in reasons
        )
        document = {"formats": registry.formats(), "compression": codecs, "dialects": named}
        document["tables"] = _lake_libraries()
        render.emit_json({**document, "text_encoder": text, "parquet_encoder": parquet})
    elif not values["quiet"]:
        render.emit(_shown(registry.formats(), codecs, dialects.DIALECTS))
        render.emit("\n" + _tables())
        lines = map(_encoder, ("text", "parquet"), reasons)
        render.emit("\n" + "\n".join(lines))


def _lake_libraries() -> dict[LakeKind, str | None]:
    """Return the formats of tables with the version of each library; None if it is missing."""
    found: dict[LakeKind, str | None] = {}
    for kind, library in LIBRARIES.items():
        try:
            found[kind] = version(library)
        except PackageNotFoundError:
            found[kind] = None
    return found


def _shown(formats: tuple[str, ...], codecs: Any, dialects: Any) -> str:
    return "\n\n".join(
        (
            render.table(("format",), ((name,) for name in formats)),
            render.table(
                ("compression", "formats", "levels", "library for text"),
                (_codec(each) for each in codecs),
            ),
            render.table(
                ("dialect", "delimiter", "enclosure", "enclose", "escape", "null", "eol", "header"),
                (_dialect(name, each) for name, each in dialects.items()),
            ),
        )
    )


def _tables() -> str:
    """Return the tables of a lakehouse that files can become part of."""
    rows = (
        (name, LIBRARIES[name], found or f"pip install 'unloader[{EXTRAS[name]}]'")
        for name, found in _lake_libraries().items()
    )
    return render.table(("table", "library", "version"), rows)


def _encoder(name: str, reason: str | None) -> str:
    title = f"{name} encoder".ljust(17)
    if reason is None:
        return f"{title}native (compiled)"
    return f"{title}plain, which is slower; the native encoder cannot be used: {reason}"


def _codec(codec: dict[str, Any]) -> tuple[str, ...]:
    return (
        codec["codec"],
        ", ".join(codec["formats"]),
        _levels(codec),
        codec["library"] or render.UNKNOWN,
    )


def _levels(codec: dict[str, Any]) -> str:
    levels = codec["levels"]
    return render.UNKNOWN if levels is None else f"{levels[0]} to {levels[1]}"


def _dialect(name: str, text: Any) -> tuple[str, ...]:
    marks = (text.delimiter, text.enclosure)
    return (
        name,
        *(_escaped(mark) for mark in marks),
        text.enclose,
        text.escape,
        _escaped(text.null) if text.null != r"\N" else text.null,
        "crlf" if text.eol == "\r\n" else "lf" if text.eol == "\n" else _escaped(text.eol),
        "yes" if text.header else "no",
    )


def _escaped(text: str) -> str:
    """Return a text as the options take it, or the sign for an empty text."""
    return text.encode("unicode_escape").decode() if text else render.UNKNOWN
