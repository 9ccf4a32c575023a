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

_OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*")
_SECRETIVE = re.compile(r"(?i)--?(?:p$|w$|pass|pw|secret|token|user)")

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
    near = get_close_matches(given, names, n=1)
    if near:
        return UsageError("unknown command", f"did you mean {near[0]}? See unloader --help")
    return UsageError(
        "the first word is not a command",
        f"write unloader COMMAND ..., with one of the commands {', '.join(names)}",
    )


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
    known = f"there is no option {name}" if short or _OPTION.fullmatch(name) else ""
    meant = f"did you mean {' or '.join(near[:3])}? S{hint[1:]}" if near else hint
    return UsageError(known or "an unknown option is given", meant)
