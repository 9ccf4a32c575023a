"""The reference page of the command line, made from the commands themselves.

`python -m unloader.cli.reference > docs/cli.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from unloader.cli.group import COMMANDS, group
from unloader.cli.options.command import sections
from unloader.cli.options.parameter import JobOption
from unloader.errors import EXIT_CODES

_INTRODUCTION = r"""# Command line

<!-- Made by `python -m unloader.cli.reference > docs/cli.md`; do not edit. -->

Each option is also a variable `UNLOADER_<NAME>` in the environment and, for `run` and `plan`, a key
of the job file. An option on the command line comes before the variable, the variable before the
job file, the job file before the default. An empty variable counts as not set. A variable with this
prefix that no option has is reported on stderr.

- Sizes are bytes, or a number with `KiB MiB GiB TiB` (1024), `kB MB GB TB` (1000), or `K M G T`
  (1024, too). Counts of rows take `k M G` (1000) and underscores.
- Durations are seconds, or a number with `ms`, `s`, `m` or `h`.
- Lists are separated by commas; an item with a comma stands in double quotes. The option may also
  be repeated. Numbers are `0,2-4`, or `0-62:2` for every second one.
- Texts take the escapes `\xHH`, `\t`, `\n`, `\r` and `\\`; `\N` stands for itself.
- Passwords come from `UNLOADER_PASSWORD`, `--password-file`, `--password-keyring`, a systemd
  credential, a prompt (`--password-prompt`) or what the database's driver has for it. One inside
  the URL or on the command line is refused.

The result goes to stdout, everything else to stderr. With `--json` stdout is one JSON object, also
where a command fails: `{"error": {"kind", "message", "hint", "exit_code"}}`.

A job file holds the options as keys, with `-` or `_`, at the top or in a table `[run]`, and
`source` ([jobs.md](jobs.md)):

```toml
source = "duckdb:///data/sales.db"
table = "ORDERS"
to = "/extract/orders"
columns = ["ID", "AMOUNT"]
file-size = "1GiB"
header = false
```

## Help and completion

`unloader help`, `unloader help run` and `-h` after any command show the help pages; `-V` the
version. Shells complete commands, options and the values of those that have a list. Once a shell
has read the script that the program prints for it, Tab does so:

```sh
eval "$(_UNLOADER_COMPLETE=bash_source unloader)"           # in ~/.bashrc; bash 4.4 or newer
eval "$(_UNLOADER_COMPLETE=zsh_source unloader)"            # in ~/.zshrc, after compinit
_UNLOADER_COMPLETE=fish_source unloader | source            # in ~/.config/fish/config.fish
```

Each starts the program once. Its output may as well be kept in a file that the shell reads.

## What progress shows

On a terminal: the step of planning that goes on and for how long, then the share done, the time
left, units, rows and rates, and a line for each worker. `- MB/s` means that no buffer has been
written yet. In a log of text: a line for each step that lasts a second, one each
`--log-interval`, one for each trouble, and the totals of the manifest at the end. With
`--log-format json` each line of stderr is one object, the error at the end included; events and
keys are in [operations.md](operations.md). What else is written and read by programs is in
[manifest.md](manifest.md).
"""

_STATUS = {
    "UnloaderError": "a fault of this program; run it again with `--debug` and report it",
    "UsageError": "an option is wrong, or options contradict each other, wherever they stand",
    "ConfigError": "the configuration is wrong, a driver is missing, a file cannot be read, or the "
    "machine refuses memory, files or processes",
    "SourceError": "the database refused, failed or went away",
    "PlanFailed": "the table cannot be cut as asked, or a plan file is not usable",
    "OutputFailed": "the destination or the format refused",
    "PartialUnload": "some work units or tables failed; finished units stay in `DEST/_run` for "
    "`unloader resume`, until another run begins there",
    "VerifyMismatch": "files and manifest, or files and source, differ",
    "AnswerLost": "done, but standard output did not take the result",
    "FollowUpFailed": "the run is complete, but `--latest-link`, `--report` or the command of "
    "`--on-success` failed",
    "Interrupted": "stopped by SIGINT, SIGTERM or SIGHUP",
}


def reference() -> str:
    """Return the page as Markdown, the same for every version of click."""
    context = click.Context(group, info_name="unloader")
    parts = [_INTRODUCTION, "\n".join(_options(group, context)), _statuses()]
    for name in COMMANDS:
        command = group.get_command(context, name)
        if command is not None:
            parts.append("\n".join(_command(command, context)))
    return "\n".join(parts)


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=command.name, parent=parent)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    shown = [_argument(each) for each in arguments]
    yield f"## {context.command_path}\n"
    yield f"    {' '.join((context.command_path, *shown, '[OPTIONS]'))}\n"
    yield _text(command.help) + "\n"
    yield "```sh"
    yield "\n".join(_examples(command))
    yield "```\n"
    yield from _options(command, context)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _examples(command: click.Command) -> Iterator[str]:
    """Yield the lines of the examples, without the heading that the help page has above them."""
    for line in (command.epilog or "").replace("\b", "").splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("Example"):
            yield "    " + stripped if stripped.startswith("--") else stripped


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for heading, options in sections(command, context).items():
        ours = [option for option in options if isinstance(option, JobOption)]
        if not ours:
            continue
        yield f"### {heading}\n" if command is not group else "### Before the command\n"
        yield "| option | meaning | default |"
        yield "|---|---|---|"
        for option in ours:
            yield f"| {_names(option)} | {_cell(option.help or '')} | {_default(option)} |"
        yield ""


def _names(option: click.Option) -> str:
    names = "/".join((*option.opts, *option.secondary_opts))
    if option.is_flag:
        return _code(names)
    if isinstance(option.type, click.Choice):
        value = "|".join(map(str, option.type.choices))
    else:
        value = option.metavar or option.type.name.upper()
    return _code(f"{names} {value}")


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return _cell(option.show_default)
    if option.is_flag:
        return ("on" if option.default is True else "off") if option.secondary_opts else "off"
    return _code(str(option.default)) if isinstance(option.default, (str, int)) else ""


def _statuses() -> str:
    lines = ["## Exit status\n", "| status | meaning |", "|---|---|", "| 0 | done |"]
    lines += [f"| {code} | {_STATUS[name]} |" for name, code in EXIT_CODES.items()]
    return "\n".join(lines) + "\n"


def _text(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
