"""What is wrong with a command line, reported without what was typed.

click repeats what it cannot understand. That may be a password: given to an option that there is
not, put where a number belongs, or left over behind a blank that nobody quoted. So a value that was
refused is shown only if it is a number or very like a word that belongs there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

import click

from unloader.errors import UsageError
from unloader.request.refused_values import without_subject

_OPTION = re.compile(r"--(?:s3|[a-z]+)(?:-[a-z]+)*")
_SECRETIVE = re.compile(r"(?i)--?(?:p$|w$|pass|pw|secret|token|user)")

_COMMANDS = {
    **dict.fromkeys(("list", "tables", "ls", "show", "columns", "schema", "inspect"), "describe"),
    **dict.fromkeys(("export", "unload", "dump", "copy", "extract", "backup", "start"), "run"),
    **dict.fromkeys(("check-files", "validate", "compare", "diff"), "verify"),
    **dict.fromkeys(("continue", "restart", "retry"), "resume"),
    **dict.fromkeys(("cancel", "kill", "abort"), "stop"),
    **dict.fromkeys(("delete", "remove", "rm", "purge", "cleanup"), "clean"),
    **dict.fromkeys(("explain", "dry-run", "estimate"), "plan"),
    **dict.fromkeys(("tune", "benchmark", "bench"), "sweep"),
    **dict.fromkeys(("numa", "nodes", "cpus"), "topology"),
    **dict.fromkeys(("history", "jobs", "ps"), "runs"),
}
"""Words of similar tools, and the command that does the same."""

_OPTIONS = {
    **dict.fromkeys(
        (
            "output",
            "out",
            "outdir",
            "outfile",
            "dest",
            "destination",
            "target",
            "directory",
            "path",
        ),
        "--to",
    ),
    **dict.fromkeys(
        ("jobs", "threads", "workers", "parallel", "processes", "concurrency", "num-mappers"),
        "--parallelism",
    ),
    **dict.fromkeys(("tables", "table-name", "tbl"), "--table"),
    **dict.fromkeys(("schema", "namespace", "owner"), "--table 'SCHEMA.*'"),
    **dict.fromkeys(("sql", "select", "statement", "src-stream"), "--query"),
    **dict.fromkeys(("fields", "column", "cols"), "--columns"),
    **dict.fromkeys(("condition", "predicate"), "--where"),
    **dict.fromkeys(
        ("sep", "separator", "field-separator", "fields-terminated-by", "column-separator"),
        "--delimiter",
    ),
    **dict.fromkeys(
        ("quote", "quotechar", "quote-char", "enclosed-by", "fields-enclosed-by"), "--enclosure"
    ),
    **dict.fromkeys(("nullstr", "null-string", "null-value", "na", "nulls"), "--null"),
    **dict.fromkeys(
        ("lines-terminated-by", "newline", "line-terminator", "row-separator"), "--eol"
    ),
    **dict.fromkeys(("compress", "codec", "gzip", "zip", "column-compression"), "--compression"),
    **dict.fromkeys(("charset", "character-set"), "--encoding"),
    **dict.fromkeys(("batch-size", "fetch-size", "arraysize", "batch-size-row"), "--fetch-memory"),
    **dict.fromkeys(("limit", "top", "max-rows", "head"), "--limit-rows"),
    **dict.fromkeys(("force", "replace", "clobber", "drop"), "--overwrite"),
    **dict.fromkeys(("append", "write-mode"), "--save-mode append"),
    **dict.fromkeys(("skip-header", "noheader", "tuples-only"), "--no-header"),
    **dict.fromkeys(("silent", "no-progress"), "--quiet"),
    **dict.fromkeys(("flashback-scn", "as-of"), "--scn"),
    **dict.fromkeys(("partitions", "subpartition"), "--partition"),
    **dict.fromkeys(("file-size-threshold", "max-file-size", "chunk-size"), "--file-size"),
    **dict.fromkeys(("row-group-size",), "--row-group-rows"),
    **dict.fromkeys(
        ("s3-endpoint", "s3-endpoint-url", "endpoint", "endpoint-url"),
        "--to 's3://BUCKET/PREFIX?endpoint=URL'",
    ),
    **dict.fromkeys(("s3-region", "region"), "--to 's3://BUCKET/PREFIX?region=NAME'"),
    **dict.fromkeys(("verbose", "debug", "trace"), "unloader --debug run ..."),
    **dict.fromkeys(("dry-run", "explain"), "unloader plan"),
    **dict.fromkeys(
        ("source", "src", "db", "database", "dsn", "url", "uri", "conn", "connection"),
        "unloader run SOURCE, with the URL of the source as the first word",
    ),
}
"""Names of options in similar tools, and what does the same here."""

_PLACES = "a password comes from UNLOADER_PASSWORD, --password-file or --password-prompt"


def usage_error(error: click.ClickException) -> UsageError:
    """Return click's complaint as an error of ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "unloader"
    hint = f"see {path} --help"
    if isinstance(error, click.NoSuchOption):
        return _no_option(error, hint)
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        text = without_subject(error.message)
        error = click.BadParameter(text, error.ctx, error.param, error.param_hint)
    message = error.format_message()
    return UsageError(message[:1].lower() + message[1:], hint)


def no_command(given: str, known: Iterable[str]) -> UsageError:
    """Return the error for a first word that is no command; a source may stand there."""
    names = tuple(known)
    near = [_COMMANDS[given]] if given in _COMMANDS else get_close_matches(given, names, n=1)
    if near:
        return UsageError("unknown command", f"did you mean {near[0]}? See unloader --help")
    return UsageError(
        "the first word is not a command",
        f"write unloader COMMAND ..., with one of the commands {', '.join(names)}",
    )


def _options_of(context: click.Context | None) -> set[str]:
    parameters = context.command.params if context is not None else ()
    return {name for each in parameters for name in (*each.opts, *each.secondary_opts)}


def _no_option(error: click.NoSuchOption, hint: str) -> UsageError:
    name, near = error.option_name, list(error.possibilities or ())
    if _SECRETIVE.match(name):
        return UsageError("no option takes a password", _PLACES)
    if re.match("-[0-9.]", name):
        return UsageError(
            f"{name} is not an option, and the option before it has no value",
            f"write a value that begins with - behind the option and a =; {hint}",
        )
    short = re.fullmatch("-[A-Za-z]", name) is not None
    same, has = _OPTIONS.get(name.lstrip("-")), _options_of(error.ctx)
    if same is not None and (same[:2] != "--" or same.split()[0] in has):
        return UsageError(f"there is no option {name}", f"use {same}. S{hint[1:]}")
    known = f"there is no option {name}" if short or _OPTION.fullmatch(name) else ""
    meant = f"did you mean {' or '.join(near[:3])}? S{hint[1:]}" if near else hint
    return UsageError(known or "an unknown option is given", meant)
