"""A secret in every place where a user might put one: none of it leaves the program."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click
import pytest
from amounts import EVERYTHING
from long_tests import OTHER_ROUTES
from processes import forked_commands
from processes.forked_commands import Call

from unloader.cli.group import COMMANDS, group

SECRET = "Hunter2Xyzzy"
DIFFICULT = "Hunter2Xyzzy@a/b:c?d#e"
"""What marks the parts of URLs is in it, and so is the other."""

KNOWN = {"UNLOADER_PASSWORD": SECRET}

SOURCES = (
    "{}",
    "scott/{}",
    "scott/{}@h/db",
    "scott/{}@{host}/X",
    "scott:{}@{host}/X",
    "oracle:scott/{}@{host}/X",
    "oracle:scott:{}@{host}/X",
    "oracle:/scott/{}@{host}/X",
    "oracle://scott/{}@{host}/X",
    "oracle://scott:{}@{host}/X",
    "oracle://scott%2F{}@{host}/X",
    "oracle://scott@{}@{host}/X",
    "oracle://scott@127.0.0.1:{}/X",
    "oracle://{host}/X?password={}",
    "oracle://scott@{host}/X?wallet_password={}",
    "oracle://scott@(DESCRIPTION=(ADDRESS=(HOST=h))(SECURITY=(WALLET_PASSWORD={})))",
    "jdbc:oracle:thin:scott/{}@//{host}/X",
    "jdbc:oracle:thin:scott/{}@{host}:X",
    "jdbc:postgresql://{host}/x?user=etl&password={}",
    "postgresql:etl:{}@{host}/x",
    "postgres:etl:{}@{host}/x",
    "postgresql:/etl:{}@{host}/x",
    "postgresql://etl:{}@{host}/x",
    "POSTGRESQL://etl:{}@{host}/x",
    "postgres://etl:{}@{host}/x",
    "postgresql://etl%3A{}@{host}/x",
    "postgresql://:{}@{host}/x",
    "postgresql://etl@{}@{host}/x",
    "postgresql://etl@127.0.0.1:{}/x",
    "postgresql://etl:12/{}@{host}/x",
    "postgresql://etl:12?{}@{host}/x",
    "postgresql://etl:12?a={}@{host}/x",
    "postgresql://etl:a#{}@{host}/x",
    "postgresql://{host}/x?password={}",
    "postgresql://{host}/x?user=etl&pass%77ord={}",
    "postgresql://etl@{host}/x?sslpassword={}",
    "host=127.0.0.1 user=etl password={} dbname=x",
    "odbc:DSN=x;UID=etl;PWD={}",
    "DSN=x;UID=etl;PWD={{{}}}",
    "mysql://etl:{}@{host}/x",
    "nobody://etl:{}@{host}/x",
    "https://etl:{}@{host}/x",
    "duckdb:etl/{}@{host}",
    "duckdb:{}",
    "duckdb://etl:{}@{host}/x",
    "duckdb:///etl/{}@{host}",
    "duckdb:///x.db?password={}",
    "sqlite:etl:{}@{host}/x",
    "sqlite://etl/{}@{host}/x",
)
"""All forms that a user might take for a source, with the secret at the braces."""

REFLEXES = (
    ("-p", "{}"),
    ("-p{}",),
    ("-W", "{}"),
    ("-P{}",),
    ("--password", "{}"),
    ("--password={}",),
    ("--pass", "{}"),
    ("--pwd={}",),
    ("--password{}",),
    ("--user", "scott/{}"),
    ("--{}",),
    ("--json={}",),
    ("{}",),
    ("scott/{}@h", "x"),
    ("--password-file", "{}"),
    ("--password-file", "scott/{}@h"),
    ("--password-file={}", "--password-prompt"),
)
"""What other programs take, and slips of the pen."""

MANNERS: tuple[tuple[str, ...], ...] = (
    (), ("--debug",), ("--json",), ("--debug", "--json"), ("--log-format=json",),
)  # fmt: skip

Ask = Callable[[Sequence[Call]], None]


class Ear:
    """A port that counts who connects, and says goodbye to each."""

    def __init__(self) -> None:
        """Listen."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                connection.close()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@pytest.fixture
def ear() -> Iterator[Ear]:
    """A port where no refused source may connect."""
    found = Ear()
    yield found
    found.close()


@pytest.fixture
def ask(tmp_path: Path, environment: dict[str, str], ear: Ear) -> Ask:
    """Make calls; fail if the secret is in anything that left one of them, or one had a fault.

    A source without a host would be looked for at the ear.
    """
    surroundings = {**environment, "PGHOST": "127.0.0.1", "PGPORT": str(ear.port)}

    def make(calls: Sequence[Call]) -> None:
        for call, answer in zip(
            calls, forked_commands.answers(calls, tmp_path, surroundings), strict=True
        ):
            for place, text in answer.texts.items():
                assert SECRET.lower() not in text.lower(), (call, place, text)
            assert answer.status not in (0, 1, 99), (call, answer)

    return make


def written(form: str, ear: Ear, secret: str = SECRET) -> str:
    """Return a form with the secret and the ear's place in it."""
    return form.format(secret, host=f"127.0.0.1:{ear.port}")


def with_manner(number: int, *arguments: str) -> tuple[str, ...]:
    """Return a command line that asks for details, for JSON or for a log, each in its turn."""
    manner = MANNERS[number % len(MANNERS)]
    general = [option for option in manner if option == "--debug"]
    rest = [option for option in manner if option != "--debug"]
    if arguments[0] not in ("run", "plan", "codecs", "verify", "demo"):
        rest = [option for option in rest if option != "--log-format=json"]
    return (*general, *arguments, *rest)


def test_a_source_that_is_refused_is_not_shown(ask: Ask, ear: Ear) -> None:
    """In every place of a source, it is refused unseen and unconnected, before anything starts.

    Each form is tried in one of the places, in a run of everything in two, and once with marks of
    URLs in the secret.
    """
    calls = []
    for number, form in enumerate(SOURCES):
        source, difficult = written(form, ear), written(form, ear, DIFFICULT)
        in_job, in_plan = json.dumps(source), {"job": {"source": source, "table": "t"}}
        places = (
            Call(arguments=with_manner(number, "run", source, "--table", "t", "--to", "out")),
            Call(arguments=with_manner(number, "plan", source, "--table", "t")),
            Call(arguments=with_manner(number, "describe", source)),
            Call(arguments=with_manner(number, "verify", ".", source)),
            Call(arguments=with_manner(number, "describe", source, "--password-prompt")),
            Call(
                arguments=with_manner(number, "codecs", "job.toml"),
                files={"job.toml": f"source = {in_job}\ntable = 't'\n"},
            ),
            Call(
                arguments=with_manner(number, "run", "plan.json", "--to", "out"),
                files={"plan.json": json.dumps(in_plan)},
            ),
        )
        calls += [places[(number + step) % 7] for step in ((0, 3) if EVERYTHING else (0,))]
        calls.append(Call(arguments=with_manner(number + 2, "describe", difficult)))
    ask(calls)
    assert ear.connections == 0


@pytest.mark.long(OTHER_ROUTES)
def test_a_source_in_a_wrong_place_is_not_shown(ask: Ask, ear: Ear) -> None:
    """Where a command, a directory or nothing belongs, a source is not repeated either.

    A word, or two with a slash, may well be a directory, and does not count as a source.
    """
    calls = []
    for number, form in enumerate(form for form in SOURCES if re.search("[@:=]", form)):
        source = written(form, ear)
        job = ("duckdb:///nowhere.db", "--table", "t")
        places = (
            Call(arguments=with_manner(number, "verify", source)),
            Call(arguments=with_manner(number, "run", *job, "--to", source)),
            Call(arguments=("--debug", source, "--table", "t")),
            Call(arguments=with_manner(number, "topology", source)),
            Call(arguments=with_manner(number, "run", *job, "--to", f"out,{source}")),
            Call(arguments=with_manner(number, "run", source, job[0], "nightly.toml")),
        )
        calls += [places[place] for place in (number % 2, 2 + number % 4)]
    ask(calls)
    assert ear.connections == 0


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reflex_of_other_programs_is_not_repeated(ask: Ask, command: str) -> None:
    """`-pSECRET`, `--password SECRET` and surplus arguments are refused unseen.

    `run` is tried with each of them, every other command with a third: one parser reads all.
    """
    subject = {
        "run": ("duckdb:///nowhere.db", "--table", "t", "--to", "out"),
        "plan": ("duckdb:///nowhere.db", "--table", "t"),
        "codecs": ("duckdb:///nowhere.db", "--table", "t"),
        "describe": ("postgresql://etl@127.0.0.1/x",),
        "verify": (".", "postgresql://etl@127.0.0.1/x"),
        **dict.fromkeys(("report", "resume", "merge", "status", "runs", "stop"), (".",)),
    }.get(command, ())
    ask(
        [
            Call(
                arguments=with_manner(
                    number, command, *subject, *(word.format(SECRET) for word in words)
                )
            )
            for number, words in enumerate(REFLEXES)
            if command == "run" or number % 3 == list(COMMANDS).index(command) % 3
            # A word left over is one more directory to clean, and shown as that.
            if not (command == "clean" and words == ("{}",))
        ]
    )


def options_of(command: str) -> list[click.Option]:
    """Return the options of a command that take a value."""
    with group.make_context("unloader", [command], resilient_parsing=True) as context:
        found = group.get_command(context, command)
    assert found is not None
    return [
        option
        for option in found.params
        if isinstance(option, click.Option) and not option.is_flag and not option.hidden
    ]


@pytest.mark.long(OTHER_ROUTES)
def test_a_value_that_its_option_cannot_mean_is_not_repeated(ask: Ask) -> None:
    """A secret where a number, a size or a choice belongs: the error names the option alone."""
    names = {
        option.opts[0]
        for command in ("plan", "topology")
        for option in options_of(command)
        if (option.declared.kind.choices or option.declared.kind.is_whole)
        or option.declared.kind.shown
        in ("SIZE", "SECONDS", "N|auto", "LIST", "CODEC[:LEVEL]|PRESET", "FORM")
    }
    assert len(names) > 20
    plan = ("plan", "duckdb:///nowhere.db", "--table", "t")
    calls = []
    for number, name in enumerate(sorted(names)):
        command = ("topology",) if name == "--allowed-cpus" else plan
        places = (
            Call(arguments=with_manner(number, *command, name, SECRET)),
            Call(
                arguments=with_manner(number + 1, *command),
                variables={"UNLOADER_" + name[2:].replace("-", "_").upper(): SECRET},
            ),
            Call(
                arguments=with_manner(number + 2, "run", "job.toml", "--to", "out"),
                files={"job.toml": f"source = '{plan[1]}'\ntable = 't'\n{name[2:]} = '{SECRET}'\n"},
            ),
        )
        calls.append(places[0 if command == ("topology",) else number % 3])
    ask(calls)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("command", ["run", "plan", "codecs", "describe"])
def test_the_password_itself_is_accepted_in_no_option(ask: Ask, command: str, ear: Ear) -> None:
    """The variable's value is refused in every option: it would go into manifest and plan.

    Of options that `run` has, too, the other commands are tried with some.
    """
    source = f"postgresql://etl@127.0.0.1:{ear.port}/x"
    subject = {"run": ("--table", "t", "--to", "out"), "describe": ()}.get(
        command, ("--table", "t")
    )
    values = (SECRET, f"a {SECRET} b", f"a='{SECRET}'")
    known = {option.opts[0] for option in options_of("run")}
    # Their texts are shown and recorded nowhere.
    hidden = {"--session-sql", "--on-success", "--on-failure"}
    calls = []
    for number, option in enumerate(options_of(command)):
        name = option.opts[0]
        if name in hidden:
            continue
        if command != "run" and name in known and number % 8:
            continue
        shown = subject[2:] if name == "--query" else subject
        # The name of a table is shown, even if it is the password.
        value = values[1 if name == "--table" else number % 3]
        arguments = (command, source, *shown, name, value)
        # Said twice, the last one counts.
        manner = 0 if name == "--log-format" else number
        calls.append(Call(arguments=with_manner(manner, *arguments), variables=KNOWN))
    ask(calls)
    assert ear.connections == 0


@pytest.mark.long(OTHER_ROUTES)
def test_files_that_are_read_are_not_repeated(ask: Ask) -> None:
    """Job files, plan files and manifests with a secret in any of their places, whole or broken."""
    jobs = (
        "password = '{}'", "Password = '{}'", "pwd = '{}'", "passwd = '{}'", "pass-word = '{}'",
        "password '{}'", "{}", "{} = 1", "'scott/{}@h' = 1", "source = {}", "source = 'scott/{}@h",
        "[{}]", "[run]\n{} = 1\n{} = 2", "a.{} = 1\na.{} = 2", "header = '{}'", "to = ['{}@h/x', 1]",
        "password-file = '{}'", "password-file = 'scott/{}@h'", "parallelism = '{}'", "run = '{}'",
        "parallelism = ['{}']", "table = {{ password = '{}' }}",
    )  # fmt: skip
    plans = (
        '{{"job": {{"{}": 1}}}}', '{{"job": {{"source": "scott/{}@h"}}}}', "password={}", '["{}"]',
        '{{"job": "{}"}}', '{{"job": {{"source": 1, "password": "{}"}}}}', '{{"job": {{"to": "{}"',
    )  # fmt: skip
    manifests = ("{}", '{{"source": {{"location": "postgresql://u:{}@h/x"}}}}', '["{}"]', '{{"{}"')
    calls = []
    for number in range(2):
        job = ("run", "job.toml", "--to", "out", "--table", "t")
        calls += [
            Call(
                arguments=with_manner(number, *job),
                files={"job.toml": text.replace("{}", SECRET) + "\n"},
            )
            for text in jobs
        ]
        calls += [
            Call(
                arguments=with_manner(number, "run", "plan.json", "--to", "out"),
                files={"plan.json": text.format(SECRET)},
            )
            for text in plans
        ]
        calls += [
            Call(
                arguments=with_manner(number, "verify", "d"),
                files={"d/_manifest.json": text.format(SECRET)},
            )
            for text in manifests
        ]
    ask(calls)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    "variables",
    [
        {"UNLOADER_PASSWORD": SECRET},
        {"PGPASSWORD": SECRET},
        {"UNLOADER_PASSWORD_FILE": SECRET},
        {"UNLOADER_SOURCE": f"scott/{SECRET}@h/x"},
        {"UNLOADER_WALLET_PASSWORD": SECRET},
        {"UNLOADER_WALLET_PASSWORD_FILE": SECRET},
        {"UNLOADER_ORACLE_TOKEN": SECRET},
        {"UNLOADER_ORACLE_TOKEN_FILE": SECRET},
        {"UNLOADER_ORACLE_TOKEN_FILE": "token", "UNLOADER_ORACLE_TOKEN_KEY_FILE": SECRET},
        {"PGPASSFILE": "pgpass"},
        {"UNLOADER_PASSWORD_FILE": "password"},
    ],
    ids="-".join,
)
def test_a_connection_that_fails_shows_no_secret(
    ask: Ask, ear: Ear, variables: dict[str, str]
) -> None:
    """Secrets in their right places stay there when the database is not to be had."""
    files = {"token": SECRET, "password": f"{SECRET}\n", "pgpass": f"*:*:*:*:{SECRET}\n"}
    calls = [
        Call(arguments=with_manner(number, "describe", source), variables=variables, files=files)
        for number, source in enumerate(
            (f"oracle://@127.0.0.1:{ear.port}/X", f"postgresql://etl:@127.0.0.1:{ear.port}/x")
        )
    ]
    ask(calls)
