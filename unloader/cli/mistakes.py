"""How a call of the program ends badly: one line on stderr and an exit status.

Errors in a command line are reported without the words that the user typed. click repeats words
that it cannot understand. Such a word may be a password: given to an unknown option, written in
place of a number, or split at a blank without quotes. So a refused value is shown only if it is a
number or very like a word that belongs there.
"""

from __future__ import annotations

import re
import select
import sys
import traceback
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches

import click

from unloader.cli import streams
from unloader.cli.display import render
from unloader.cli.signals import is_interrupt
from unloader.cli.streams import Invocation, give_up
from unloader.errors import Interrupted, UnloaderError, UsageError, translate
from unloader.request.settings import without_subject

_OPTION = re.compile(r"--(?:s3|[a-z]+)(?:-[a-z]+)*")
_SECRETIVE = re.compile(r"(?i)--?(?:p$|w$|pass|pw|secret|token|user)")

_SAME_AS = {
    "describe": "list tables ls show columns schema inspect",
    "run": "export unload dump copy extract backup start",
    "verify": "check-files validate compare diff",
    "resume": "continue restart retry",
    "stop": "cancel kill abort",
    "clean": "delete remove rm purge cleanup",
    "plan": "explain dry-run estimate",
    "sweep": "tune benchmark bench",
    "network": "bandwidth latency udp tcp iperf",
    "topology": "numa nodes cpus",
    "runs": "history jobs ps",
    "--to": "output out outdir outfile dest destination target directory path",
    "--parallelism": "jobs threads workers parallel processes concurrency num-mappers",
    "--table": "tables table-name tbl",
    "--table 'SCHEMA.*'": "schema namespace owner",
    "--query": "sql select statement src-stream",
    "--columns": "fields column cols",
    "--where": "condition predicate",
    "--delimiter": "sep separator field-separator fields-terminated-by column-separator",
    "--enclosure": "quote quotechar quote-char enclosed-by fields-enclosed-by",
    "--null": "nullstr null-string null-value na nulls",
    "--eol": "lines-terminated-by newline line-terminator row-separator",
    "--compression": "compress codec gzip zip column-compression",
    "--encoding": "charset character-set",
    "--fetch-memory": "batch-size fetch-size arraysize batch-size-row",
    "--sample": "subset tablesample",
    "--on-success": "hook hooks callback",
    "--limit-rows": "limit top max-rows head",
    "--overwrite": "force replace clobber drop",
    "--save-mode append": "append write-mode",
    "--no-header": "skip-header noheader tuples-only",
    "--quiet": "silent no-progress",
    "--scn": "flashback-scn as-of",
    "--partition": "partitions subpartition",
    "--file-size": "file-size-threshold max-file-size chunk-size",
    "--row-group-rows": "row-group-size",
    "--to 's3://BUCKET/PREFIX?endpoint=URL'": "s3-endpoint s3-endpoint-url endpoint endpoint-url",
    "--to 's3://BUCKET/PREFIX?region=NAME'": "s3-region region",
    "unloader --debug run ...": "verbose debug trace",
    "unloader plan": "dry-run explain",
    "unloader run SOURCE, with the URL of the source as the first word": (
        "source src db database dsn url uri conn connection"
    ),
}
"""What to write instead of a word of a similar tool: a command, or what begins with an option."""


def report(error: BaseException, invocation: Invocation) -> int:
    """Report what ended the program and return the exit status.

    With `--json` the same is written to stdout, too, so that it always holds one JSON object,
    unless stdout is for the data.
    """
    if isinstance(error, BrokenPipeError):
        with suppress(OSError, ValueError):
            # Whether stdout is a pipe without a reader, and not a pipe of a worker.
            poll = select.poll()
            poll.register(sys.stdout.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                give_up(sys.stdout)
                return 0
    known, details = known_error(error), ""
    if invocation.debug:
        details = "".join(traceback.format_exception(error))
        if isinstance(error, click.ClickException):
            # Its text may repeat words of the command line.
            details = f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}"
    # Without the middle of long values, which may have megabytes.
    message, hint = render.shortened(known.message), render.shortened(known.hint)
    facts = {
        "kind": type(known).__name__,
        "message": message,
        "hint": hint,
        "exit_code": known.exit_code,
    }
    # The exit status reports the same where stderr is full or gone.
    try:
        line = render.one_line(str(UnloaderError(message, hint))).strip()
        line = f"{render.lines(details)}unloader: error: {line}"
        streams.write("error", {**facts, "traceback": details or None}, line)
    except OSError:
        give_up(sys.stderr)
    if invocation.json and not invocation.data_on_stdout:
        try:
            # Whole: it is for another program, and a part of it would mend a part.
            script = {"script": known.script} if known.script else {}
            render.emit(render.json_text({"error": {**facts, **script}}))
        except OSError:
            give_up(sys.stdout)
        except UnloaderError:
            pass  # The error that is being reported, or one that came after it.
    return known.exit_code


def known_error(error: BaseException) -> UnloaderError:
    """Return the error that ended the program, in the words for the user."""
    if isinstance(error, click.ClickException):
        return usage_error(error)
    if isinstance(error, OSError):
        # click was writing a help page or the version when it was refused.
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        if any(frame.f_globals.get("__name__") == click.echo.__module__ for frame in frames):
            return render.lost_answer(error)
    if (known := translate(error)) is not None:
        return known
    if isinstance(error, click.Abort) or is_interrupt(error):
        return Interrupted("interrupted before anything was unloaded", "run it again")
    kind = type(error).__name__
    return UnloaderError(f"internal error: {kind}{f': {error}' if str(error) else ''}")


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
    """Return the error for a first word that is not a command; the word may be a source."""
    names = tuple(known)
    same = [name for name in names if given in _SAME_AS.get(name, "").split()]
    if near := same or get_close_matches(given, names, n=1):
        return UsageError("unknown command", f"did you mean {near[0]}? See unloader --help")
    return UsageError(
        "the first word is not a command",
        f"write unloader COMMAND ..., with one of the commands {', '.join(names)}",
    )


def no_part(context: click.Context, given: str, groups: Sequence[str]) -> UsageError:
    """Return the error for a word that names neither a group nor an option of a command."""
    name, command = given.lstrip("-"), str(context.command.name)
    if _SECRETIVE.match(f"--{name}"):
        return _NO_PASSWORD
    has = _options_of(context)
    same = _same_option(name, has)
    if same is not None and same[:2] != "--":
        return UsageError(f"{command} has no such option", f"use {same}")
    near = [same.split()[0]] if same else get_close_matches(name, groups, n=1)
    near = near or get_close_matches(name, [each.lstrip("-") for each in has], n=1)
    others = f"use an option, or one of the groups {', '.join(groups)}"
    hint = f"did you mean unloader help {command} {near[0]}?" if near else others
    return UsageError(f"{command} has no such option or group of options", hint)


def _options_of(context: click.Context | None) -> dict[str, str]:
    """Return the names of the options of a command, each with its group."""
    parameters = context.command.params if context is not None else ()
    return {
        name: getattr(each, "group", "")
        for each in parameters
        if isinstance(each, click.Option) and not each.hidden
        for name in (*each.opts, *each.secondary_opts)
    }


def _same_option(name: str, has: Container[str]) -> str | None:
    """Return what a command with some options has for the option of a similar tool."""
    for text, same in _SAME_AS.items():
        if name in same.split():
            word = text.split()[0]
            if word in has if word[:2] == "--" else " " in text:
                return text
    return None


_OF_RUN = {
    "check": "write the options to a job file, and give only this file: unloader check JOB.toml",
    "describe --query": "write the query to a job file. This command then lists its columns and "
    "their types: unloader check JOB.toml",
    "resume": "leave it out, because resume uses the options of the interrupted run",
}
"""Advice for an option of `run` that another command lacks; the usual advice is to leave it out."""

_NO_PASSWORD = UsageError(
    "no option takes a password",
    "a password comes from UNLOADER_PASSWORD, --password-file or --password-prompt",
)


def _no_option(error: click.NoSuchOption, hint: str) -> UsageError:
    name, context, page = error.option_name, error.ctx, f"S{hint[1:]}"
    if _SECRETIVE.match(name):
        return _NO_PASSWORD
    has = _options_of(context)
    same, group = _same_option(name.lstrip("-"), has), context and context.parent
    if same is None and context is not None and group and isinstance(group.command, click.Group):
        run = group.command.get_command(context, "run")
        if run is not None and any(name in option.opts for option in run.params):
            command = str(context.command.name)
            advice = _OF_RUN.get(f"{command} {name}") or _OF_RUN.get(command) or "leave it out"
            return UsageError(
                f"{command} has no option {name}, but run has this option", f"{advice}. {page}"
            )
    shown = same is not None or re.fullmatch("-[A-Za-z]", name) or _OPTION.fullmatch(name)
    text = f"unknown option {name}" if shown else "unknown option"
    meant = same or next(iter(error.possibilities or ()), None)
    if meant is None:
        return UsageError(text, hint)
    option = meant.split()[0]
    if context is not None and group and option in has:
        page = f"See unloader help {context.command.name} {option}"
    meant += f" (group {has[option]})" if has.get(option) else ""
    return UsageError(text, f"use {meant}. {page}" if same else f"did you mean {meant}? {page}")
