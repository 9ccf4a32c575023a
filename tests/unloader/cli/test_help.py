"""Every command is documented, and asking for help costs nothing."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from schemas.option_pages import reference

from unloader.cli import main
from unloader.cli.commands.help import STATUSES
from unloader.cli.group import COMMANDS, group
from unloader.cli.options.command import JobOption, examples_with
from unloader.errors import UsageError
from unloader.request.job_options import DIALECTS

ROOT = Path(__file__).parents[3]
HEAVY = (
    *("pyarrow", "duckdb", "adbc_driver_manager", "oracledb", "rich", "zstandard"),
    *("prometheus_client", "opentelemetry"),
)
"""Packages that the first help page does not need; each would lengthen it by a tenth."""
PAGES = [[name, page] for name in COMMANDS for page in ("-h", "--help")]
PACKAGES = ("unloader", "partition_planner", "writers", "numa")


def command(name: str) -> click.Command:
    """Return a command of the group by its name."""
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def options(name: str) -> list[click.Option]:
    """Return the declared options of a command."""
    return [each for each in command(name).params if isinstance(each, click.Option)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_variable(name: str) -> None:
    """Each option is read from UNLOADER_ and its name."""
    for option in options(name):
        if not option.hidden:
            expected = option.opts[0].lstrip("-").replace("-", "_").upper()
            assert option.envvar == f"UNLOADER_{expected}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_page_shows_what_the_command_is_for_and_an_example(name: str) -> None:
    """A help page has a summary, all options, their variables, and a command to copy."""
    result = CliRunner().invoke(group, [name, "--help"], prog_name="unloader")
    assert result.exit_code == 0
    assert command(name).short_help
    assert f"unloader {name}" in result.output.split("Example", 1)[1]
    for option in options(name):
        assert (option.opts[0] in result.output) or option.hidden
    assert "--password " not in result.output


@pytest.mark.parametrize("name", ["resume", "set"])
def test_what_no_variable_sets_shows_none(name: str) -> None:
    """A number of workers that is meant for all runs of a machine changes none that is there."""
    result = CliRunner().invoke(group, [name, "--help"], prog_name="unloader")
    assert "--parallelism" in result.output
    assert "UNLOADER_PARALLELISM" not in result.output


def test_the_group_lists_every_command() -> None:
    """The first help page has all commands, each with a whole sentence."""
    result = CliRunner().invoke(group, ["--help"], prog_name="unloader")
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w.*\.$", result.output, re.MULTILINE), name


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_first_screen_has_24_lines_of_80_columns(name: str) -> None:
    """-h shows options and examples of every command on one screen of any terminal."""
    arguments = [*filter(None, [name]), "-h"]
    # Of 80 columns click leaves two free, which its runner for tests does not.
    result = CliRunner().invoke(group, arguments, prog_name="unloader", terminal_width=78)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) <= 24, result.output
    assert max(map(len, lines)) <= 80, result.output
    assert f"unloader {name or 'demo'}" in result.output.split("Example", 1)[1]
    assert f"{' '.join(filter(None, ('unloader', name)))} --help" in lines[-1] + lines[-2]


def test_the_first_screen_of_run_has_its_common_options() -> None:
    """The options of a first run are on it, and no others of the 141."""
    result = CliRunner().invoke(group, ["run", "-h"], prog_name="unloader")
    shown = re.findall(r"^  (--[a-z-]+)", result.output, re.MULTILINE)
    assert {"--table", "--query", "--to", "--format", "--parallelism", "--verify"} <= set(shown)
    assert len(shown) < 15


def _parts() -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for name in COMMANDS:
        for option in options(name):
            if isinstance(option, JobOption):
                found[name, option.group.lower()] = None
                found[name, option.opts[0]] = None
    return list(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_one_group_or_option_with_an_example(name: str) -> None:
    """Each part of a page can be read alone, and its example has the option."""
    for command_name, part in _parts():
        if command_name == name:
            result = CliRunner().invoke(group, ["help", name, part], prog_name="unloader")
            assert result.exit_code == 0, (part, result.output)
            text, example = result.output.split("\nExample:\n")
            assert f"unloader {name}" in example, result.output
            assert len(max(example.splitlines(), key=len)) <= 80, result.output
            if part.startswith("--"):
                assert re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE) == [part]
                assert part in re.split(r"[\s=]+", example), result.output


@pytest.mark.parametrize(
    "words", [("help", "run", "--parallelism"), ("help", "run", "PARALLELISM"), ("help", "plan")]
)
def test_help_takes_a_name_with_and_without_dashes(words: tuple[str, ...]) -> None:
    """The option itself, its name in any case, or no part at all."""
    result = CliRunner().invoke(group, words, prog_name="unloader")
    assert result.exit_code == 0
    assert "UNLOADER_PARALLELISM" in result.output


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (("run", "--paralelism", "4"), "did you mean --parallelism (group Speed)"),
        (
            ("resume", "out", "--compression", "none"),
            "resume has no option --compression, but run has this option. Next: leave it out, "
            "because resume uses the options of the interrupted run. See unloader resume --help",
        ),
        (("verify", "out", "--table", "t"), "Next: leave it out. See unloader verify --help"),
        (("check", "sqlite:/a.db", "--query", "q"), "give only this file: unloader check JOB.toml"),
        (("describe", "sqlite:/a.db", "--query", "q"), "unloader check JOB.toml"),
        (("run", "--threads", "4"), "use --parallelism (group Speed). See unloader help run --par"),
        (("help", "run", "threads"), "did you mean unloader help run --parallelism?"),
        (("help", "run", "dry-run"), "use unloader plan"),
        (("help", "run", "parket"), "did you mean unloader help run parquet?"),
        (("help", "run", "zzzz"), "use an option, or one of the groups source, selection, tables"),
        (("help", "run", "password"), "no option takes a password"),
        (("help", "parquet"), "did you mean unloader help run parquet?"),
        (("help", "nightly"), "write unloader COMMAND ..."),
    ],
)
def test_a_wrong_option_or_part_names_the_nearest(
    words: tuple[str, ...], way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the option to use, its group, and the page that explains it."""
    assert main(words) == 2
    assert way_out in capsys.readouterr().err


def test_the_example_of_every_option_can_be_parsed() -> None:
    """No page shows a command line that the program refuses to read."""
    for name in COMMANDS:
        context = click.Context(command(name), info_name=name, parent=click.Context(group))
        for option in options(name):
            for text in examples_with(command(name), [option]):
                words = shlex.split(text.replace("\\\n", ""), comments=True)
                words = list(takewhile(lambda word: word not in ("|", ">"), words))
                assert words[:2] == ["unloader", name], text
                parser = command(name).make_parser(context)
                given, arguments, _ = parser.parse_args(words[2:])
                assert not [each for each in arguments if each.startswith("--")], text
                for parameter in command(name).params:
                    if parameter.name in given and isinstance(parameter, JobOption):
                        parameter.type_cast_value(context, given[parameter.name])


def test_help_imports_nothing_heavy() -> None:
    """Help pages need neither drivers nor Arrow nor the library that draws bars."""
    script = (
        "import json, sys\n"
        "from unloader.cli import main\n"
        f"pages = {[['--help'], ['-h'], ['help', 'run', 'session'], *PAGES]!r}\n"
        "status = [main(page) for page in pages]\n"
        "print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    status, modules = json.loads(result.stderr)
    assert not any(status)
    assert not {name.partition(".")[0] for name in modules} & set(HEAVY)


def test_the_reference_page_is_the_one_of_these_commands() -> None:
    """docs/cli.md is made from the commands: make it again after changing one."""
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == reference()


def test_the_dialects_offered_are_those_there_are() -> None:
    """The choices of --dialect are the dialects that the writers know."""
    from writers.text.dialects import DIALECTS as KNOWN

    assert tuple(KNOWN) == DIALECTS


def test_every_option_in_a_text_of_the_program_exists() -> None:
    """No error sends the user to an option that is not there."""
    of_pip = {"--editable", "--force-reinstall", "--no-cache-dir"}
    known = {"--help", "--version", *of_pip}
    for parameters in (group.params, *(command(name).params for name in COMMANDS)):
        for each in parameters:
            known.update(each.opts, each.secondary_opts)
    unknown = {
        f"{path.relative_to(ROOT)}: {option}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in _texts(path)
        for option in re.findall(r"(?<![\w-])(?<!var\()--[a-z][a-z-]*[a-z]", text)
        if option not in known
    }
    assert not unknown


def _texts(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_help_knows_the_exit_statuses() -> None:
    """Every status that an error ends with is on the page."""
    result = CliRunner().invoke(group, ["help", "exit-statuses"], prog_name="unloader")
    shown = [int(line.split()[0]) for line in result.output.splitlines()]
    assert shown == list(STATUSES)


@pytest.mark.parametrize(("word", "option"), [("subset", "--sample"), ("hook", "--on-success")])
def test_help_knows_other_words(word: str, option: str) -> None:
    """The word of a user leads to the option that does it."""
    with pytest.raises(UsageError, match="no such option") as caught:
        group.main(["help", "run", word], standalone_mode=False)
    assert f"unloader help run {option}?" in caught.value.hint
