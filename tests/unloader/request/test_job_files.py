"""Job files: the places of keys and entries, and the reports of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader import redaction
from unloader.errors import ConfigError, UsageError
from unloader.request.job_files import JobFile, Mistake, read_job
from unloader.request.option import of_scope
from unloader.request.options import options_of

OPTIONS = options_of("run")


def write(directory: Path, text: str, name: str = "job.toml") -> Path:
    """Return a job file with this text."""
    path = directory / name
    path.write_text(text, "utf-8")
    return path


def read(path: Path) -> JobFile:
    """Return a job file, or raise the first mistake in it."""

    def first(mistake: Mistake) -> None:
        raise mistake.error

    return read_job(path, OPTIONS, first)


def values(job: JobFile) -> dict[str, object]:
    """Return the keys and values at the top of a job file."""
    return {given.key: given.value for given in job.values}


def mistakes(path: Path) -> list[str]:
    """Return all mistakes of a job file."""
    found: list[Mistake] = []
    read_job(path, OPTIONS, found.append)
    return [each.error.message.replace(f"{path.parent}/", "") for each in found]


def test_a_job_file_may_use_dashes_underscores_and_a_run_table(tmp_path: Path) -> None:
    """Keys at the top and in [run] are one set, with TOML's own kinds of values."""
    path = write(tmp_path, 'file-size = "1MiB"\ncolumns = ["A"]\n[run]\nfile_per = "table"\n')
    assert values(read(path)) == {"file_size": "1MiB", "columns": ["A"], "file_per": "table"}


def test_an_unknown_key_is_told_with_the_closest_known_one(tmp_path: Path) -> None:
    """A typing error in a job file does not pass unnoticed."""
    with pytest.raises(
        UsageError, match=r"job\.toml, line 1: .*'fil-size'.*did you mean 'file-size'"
    ):
        read(write(tmp_path, "fil-size = 1"))


def test_an_option_of_another_command_belongs_on_the_command_line(tmp_path: Path) -> None:
    """A job file of a run may be swept; the sweep's own options are not allowed in it."""
    found: list[Mistake] = []
    path = write(tmp_path, 'table = "T"\nmax-spread = 5\n')
    read_job(path, OPTIONS, found.append, {"table", "max_spread"})
    (mistake,) = found
    assert "line 2: a job file holds options of run" in mistake.error.message
    assert "--max-spread on the command line" in mistake.error.hint


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    """The same option at the top and in [run], or in both spellings, is a contradiction."""
    with pytest.raises(UsageError, match="twice"):
        read(write(tmp_path, "file-size = 1\n[run]\nfile_size = 2\n"))


def test_a_password_in_a_job_file_is_refused_without_showing_it(tmp_path: Path) -> None:
    """A secret in a job file is a usage error that does not repeat it."""
    with pytest.raises(UsageError, match="password") as caught:
        read(write(tmp_path, 'password = "tiger"'))
    assert "tiger" not in str(caught.value)


@pytest.mark.parametrize("content", [b"table = ", b"a = " + b"[" * 100_000])
def test_a_broken_job_file_is_named(tmp_path: Path, content: bytes) -> None:
    """Text that is not TOML is a configuration error with the file's name."""
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"job\.toml is not TOML"):
        read(path)


def test_a_missing_job_file_is_named(tmp_path: Path) -> None:
    """A path that is not there is a configuration error with the path."""
    with pytest.raises(ConfigError, match="nowhere"):
        read(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("mark", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_named(tmp_path: Path, mark: str) -> None:
    """TOML is UTF-8; another encoding is reported."""
    path = tmp_path / "job.toml"
    path.write_bytes('table = "é"'.encode(mark))
    with pytest.raises(ConfigError, match=r"job\.toml is not UTF-8 text"):
        read(path)


def test_a_mark_of_the_byte_order_is_no_mistake(tmp_path: Path) -> None:
    """Editors of Windows write one before UTF-8."""
    path = tmp_path / "job.toml"
    path.write_bytes('table = "é"'.encode("utf-8-sig"))
    assert values(read(path)) == {"table": "é"}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[[run]]\ntable = 'a'\n", 1, "not a table"),
        ("run = 1", 1, "not a table"),
        ("table = 't'\n[output]\nto = 'x'", 2, r"unknown table \[output\]"),
        ("table = 't'\n[run.where]\nto = 'x'", 2, "'where': expected `str`, got `object`"),
        ("\n[RUN]\ntabel = 't'", 3, "did you mean 'table'"),
        ("where = '''\ntabel = 5\n'''\ntabel = 5", 4, "did you mean 'table'"),
        ("'tabel' = 5", 1, "did you mean 'table'"),
    ],
)
def test_each_mistake_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, what: str
) -> None:
    """Other tables, tables of tables and wrong keys are reported by file and line."""
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=what) as caught:
        read(path)
    assert f"job.toml, line {line}: " in str(caught.value)


NIGHT = """\
source = "duckdb:///sales.db"
parallelism = 4
to = "/extract/{table}"

[defaults]
null = "-"
delimiter = ";"

[[table]]
table = "ORDERS"
where = '''
[[table]]
where = 1
'''

[[table]]
query = "SELECT 1"
to = "/extract/one"
[[table.route]]
name = "lake"
format = "parquet"
[[table.route]]
null = "NULL"

[[route]]
name = "loader"
delimiter = "|"
"""


def test_entries_have_their_own_values_and_those_above(tmp_path: Path) -> None:
    """A route overrides its table, a table the top, and the top [defaults]."""
    job = read(write(tmp_path, NIGHT))
    first, second = job.tables
    assert [route.label for route in job.routes] == ["[[route]] loader"]
    assert job.routes_of(first) == job.routes
    assert [route.label for route in job.routes_of(second)] == ["[[route]] lake", "[[route]] 2"]
    held = {key: given.value for key, given in job.values_of(first, job.routes[0]).items()}
    assert held == {
        "parallelism": 4,
        "to": "/extract/{table}",
        "null": "-",
        "delimiter": "|",
        "table": "ORDERS",
        "where": "[[table]]\nwhere = 1\n",
    }
    own = job.values_of(second, second.routes[1])
    assert "table" not in own
    assert (own["to"].value, own["null"].value) == ("/extract/one", "NULL")
    assert [key for key, given in own.items() if given.is_default] == ["delimiter"]
    assert (first.place.line, second.place.line, job.routes[0].place.line) == (9, 16, 25)
    assert own["null"].where() == f"{tmp_path}/job.toml, line 23: [[table]] 2, [[route]] 2"


def test_every_mistake_is_told_with_file_entry_and_key(tmp_path: Path) -> None:
    """All of them in one error; mistakes of included files have their own file's name."""
    write(tmp_path, "tabel = 't'\nretries = 'many'\n[[table]]\nnull = '-'", "base.toml")
    path = write(
        tmp_path,
        """include = "base.toml"
where = 5
[[table]]
table = "A"
parallelism = 2
forma = "csv"
[[table.route]]
partition = "P*"
format = "pdf"
[[route]]
name = "a b"
[[route]]
name = "x"
[[route]]
name = "x"
password = "tiger"
""",
    )
    assert mistakes(path) == [
        "base.toml, line 1: unknown key 'tabel'",
        "job.toml, line 2: the key 'where': expected `str`, got `int`",
        "job.toml, line 5: [[table]] 2: the key 'parallelism' belongs to the whole run, and not to one "
        "table",
        "job.toml, line 6: [[table]] 2: unknown key 'forma'",
        "job.toml, line 8: [[table]] 2, [[route]] 1: the key 'partition' belongs to a table, and not "
        "to one of its routes",
        "job.toml, line 11: [[route]] 1: the name of a route is not a plain word in quotes",
        "job.toml holds a password, where backups and version control find it",
        "job.toml, line 14: [[route]] x: another route has the same name",
        "base.toml, line 3: [[table]] 1: it names neither a table nor a query",
        "invalid value for the key 'retries' of base.toml, line 2: the value is not a whole "
        "number.",
        "invalid value for the key 'format' of job.toml, line 9, [[table]] 2, [[route]] 1: 'pdf' "
        "is not one of csv, parquet.",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[table]\ntable = 'A'", r"begin each entry with a line \[\[table\]\]"),
        ("route = 'x'", r"begin each entry with a line \[\[route\]\]"),
        ("table = 'A'\n[[route]]\nto = 'x'\n[[route.table]]\ntable = 'B'", "unknown table"),
        ("defaults = 1", r"write its keys below one line \[defaults\]"),
        ("query = 'SELECT 1'\n[[table]]", "names neither"),
        ("[[table]]\ntable = 'A'\n[defaults]\nsource = 'x'", "unknown key 'source'"),
        ("[[table]]\ntable = 'A'\n[run]\ntable = 'B'", "does not apply beside"),
    ],
)
def test_what_is_no_entry_is_refused(tmp_path: Path, text: str, what: str) -> None:
    """Tables where lists of them belong, and two places that name the tables to unload."""
    with pytest.raises(UsageError, match=what):
        read(write(tmp_path, text))


def test_later_files_override_earlier_ones(tmp_path: Path) -> None:
    """Included files count in their order, and below the file itself; each value knows its file."""
    folder = tmp_path / "common"
    folder.mkdir()
    write(folder, "include = 'deep.toml'\nnull = 'a'\neol = 'lf'\n[[table]]\ntable = 'A'", "a.toml")
    write(folder, "retries = 1\nnull = 'deep'", "deep.toml")
    write(folder, "null = 'b'\nretry-delay = 2", "b.toml")
    path = write(
        tmp_path,
        "include = ['common/a.toml', 'common/b.toml', 'common/a.toml']\neol = 'crlf'\n"
        "[[table]]\ntable = 'B'",
    )
    job = read(path)
    assert values(job) == {"retries": 1, "null": "a", "retry_delay": 2, "eol": "crlf"}
    assert [each.values[0].value for each in job.tables] == ["A", "B"]
    places = {given.key: given.place for given in job.values}
    assert str(places["null"]) == f"{folder}/a.toml, line 2"


def test_a_circle_of_includes_is_named(tmp_path: Path) -> None:
    """Files that include each other are listed in their order."""
    write(tmp_path, "\ninclude = ['b.toml']", "a.toml")
    write(tmp_path, "include = 'a.toml'", "b.toml")
    path = write(tmp_path, "include = 'a.toml'")
    assert mistakes(path) == [
        "b.toml, line 1: include: files include each other in a circle: a.toml includes b.toml, which "
        "includes a.toml"
    ]


def test_an_included_file_that_cannot_be_read_is_told_with_who_includes_it(tmp_path: Path) -> None:
    """So is a file that is not TOML, and a value that is not a path."""
    write(tmp_path, "= 1", "broken.toml")
    path = write(tmp_path, "\ninclude = ['gone.toml', 'broken.toml']")
    assert mistakes(path) == [
        "job.toml, line 2: include: the job file gone.toml cannot be read: No such file or "
        "directory",
        "job.toml, line 2: include: the job file broken.toml is not TOML at line 1, column 1",
    ]
    assert mistakes(write(tmp_path, "include = 1")) == [
        "job.toml, line 1: include: it is neither a path in quotes nor a list of such paths"
    ]


def test_variables_are_replaced_wherever_text_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In included files, entries and lists; not in the commands of a shell."""
    monkeypatch.setenv("NIGHT", "2026-01-31")
    monkeypatch.setenv("DB_PASSWORD_FILE", "/etc/secret")
    monkeypatch.delenv("MISSING", raising=False)
    write(tmp_path, "where = \"day = '${NIGHT}' OR x = $$ OR '$${y}'\"", "base-x.toml")
    path = write(
        tmp_path,
        "include = 'base-${MISSING:-x}.toml'\n"
        "shown-variables = ['NIGHT', 'MISSING', 'DB_PASSWORD_FILE']\nsource = 'duckdb:///${NIGHT}.db'\n"
        "to = ['/a/${NIGHT}', '/b/${MISSING:-}c']\npassword-file = '${DB_PASSWORD_FILE}'\non-success = 'echo ${UNLOADER_RUN_ID}'\n"
        "[[table]]\ntable = 'T${MISSING:-A}'\n",
    )
    job = read(path)
    assert values(job) == {
        "where": "day = '2026-01-31' OR x = $$ OR '${y}'",
        "to": ["/a/2026-01-31", "/b/c"],
        "password_file": "/etc/secret",
        "on_success": "echo ${UNLOADER_RUN_ID}",
    }
    assert job.source is not None
    assert job.source.value == "duckdb:///2026-01-31.db"
    assert job.tables[0].values[0].value == "TA"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("${MISSING}", "the variable MISSING is not set"),
        ("${EMPTY}", "the variable EMPTY is not set"),
        ("${MISSING", "does not begin a variable"),
        ("${1A}", "does not begin a variable"),
        ("${MISSING-x}", "does not begin a variable"),
        ("${MISSING:-${OTHER}}", "does not begin a variable"),
        ("${UNLOADER_PASSWORD}", "the variable UNLOADER_PASSWORD holds a secret"),
        ("${DB_PASS:-x}", "the variable DB_PASS holds a secret"),
        ("${HARMLESS}", "the variable HARMLESS holds a secret"),
    ],
)
def test_a_variable_that_cannot_be_replaced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    """Unset, empty, badly written or a secret: one error with file, entry, key and line."""
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("UNLOADER_PASSWORD", "t1ger&lily")
    monkeypatch.setenv("DB_PASS", "lion")
    monkeypatch.setenv("HARMLESS", "x t1ger&lily")
    shown = "shown-variables = ['MISSING', 'EMPTY', 'DB_PASS', 'HARMLESS', 'UNLOADER_PASSWORD']\n"
    path = write(tmp_path, f"{shown}[[table]]\ntable = 'A'\nwhere = 'a = {text}'\n")
    with pytest.raises(UsageError, match=what) as caught:
        read(path)
    assert "job.toml, line 4: [[table]] 1: the key 'where': " in str(caught.value)
    assert "t1ger" not in str(caught.value)


def test_a_variable_that_is_not_declared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every key that is shown, and in the path of an included file; for any variable name."""
    monkeypatch.setenv("INNOCENT", "t1ger-lily")
    for option in of_scope(OPTIONS, "run"):
        if str not in option.kind.takes or option.secret or not option.expands or option.is_flag:
            continue
        (told,) = mistakes(write(tmp_path, f"{option.name} = 'a${{INNOCENT}}'"))
        assert f"the key {option.name!r}: the variable INNOCENT may hold a secret" in told
        assert "t1ger" not in told
    (told,) = mistakes(write(tmp_path, "include = ['${INNOCENT:-base}.toml']"))
    assert "include: the variable INNOCENT may hold a secret" in told
    assert "t1ger" not in told


def test_declarations_of_all_files_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An included file may use the outer file's declarations, also in its own include."""
    monkeypatch.setenv("SITE", "a")
    write(tmp_path, "shown_variables = 'NIGHT'\nto = '/x/${SITE}'", "inner-a.toml")
    write(tmp_path, "include = 'inner-${SITE}.toml'", "base.toml")
    path = write(
        tmp_path, "include = 'base.toml'\nshown-variables = ['SITE']\nwhere = 'n = ${NIGHT:-1}'"
    )
    assert values(read(path)) == {"to": "/x/a", "where": "n = 1"}


@pytest.mark.parametrize("value", ["1", "['a b']", "[1]", "'${NIGHT}'", "{a = 1}"])
def test_a_declaration_has_names_alone(tmp_path: Path, value: str) -> None:
    """Anything else is a mistake, and nothing is declared by it."""
    assert mistakes(write(tmp_path, f"\nshown-variables = {value}")) == [
        "job.toml, line 2: shown-variables: it is not a list of names of variables"
    ]


def test_a_statement_of_a_session_takes_every_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never shown; the variable's value is hidden in all texts from then on."""
    monkeypatch.setattr(redaction, "_learned", set())
    monkeypatch.setenv("INNOCENT", "t1ger-lily")
    path = write(tmp_path, "session-sql = ['SET ROLE r IDENTIFIED BY ${INNOCENT}']")
    assert values(read(path)) == {"session_sql": ["SET ROLE r IDENTIFIED BY t1ger-lily"]}
    assert redaction.redact("ORA-01979: t1ger-lily") == "ORA-01979: ***"
