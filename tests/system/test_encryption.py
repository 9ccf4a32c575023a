"""Encrypted output from end to end: other programs read it with the key, and none without."""

from __future__ import annotations

import base64
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil
import pytest
import zstandard
from encrypted_files.age import Keys, decrypted, new_keys
from long_tests import OTHER_ROUTES, also
from processes import command, program
from processes.breaking import held_behind, kill_after, staged_units

ROWS = 20_000
PLANTED = "Xyzzy-planted"
"""A text in each row."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The keys of these tests, and their files."""

    mine: Keys
    other: Keys
    key: str
    identity_file: str
    other_file: str
    recipients_file: str
    key_file: str
    other_key_file: str

    @property
    def private(self) -> tuple[str, ...]:
        """What must be seen nowhere."""
        return (self.key, self.mine.private, self.other.private)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """New keys, in a directory that only its owner can enter."""
    home = tmp_path_factory.mktemp("keys")
    home.chmod(0o700)
    mine, other = new_keys(), new_keys()
    key = base64.b64encode(os.urandom(32)).decode()
    texts = {
        "identity": f"# public key: {mine.public}\n{mine.private}\n",
        "other": f"{other.private}\n",
        "recipients": f"# those of tonight\n{mine.public}\n\n{other.public}\n",
        "key": f"{key}\n",
        "other_key": base64.b64encode(os.urandom(32)).decode(),
    }
    for name, text in texts.items():
        (home / name).write_text(text)
    return Secrets(mine, other, key, *(str(home / name) for name in texts))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table with the planted text in each row."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, '{PLANTED} \"' || i AS v, i / 7 AS d FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


def job(source: str, dest: object, *options: str) -> tuple[str, ...]:
    """Return a run of some fourteen units."""
    units = ("--unit-bytes", "192kB", "--parallelism", "1")
    return ("run", source, "--table", "t", "--to", str(dest), *units, *options)


def written_below(directory: Path) -> dict[str, bytes]:
    """Return all files in a directory, by their paths."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def assert_nothing_shows(files: dict[str, bytes], secrets: Secrets, *texts: str) -> None:
    """Fail if a file has a value of the table, or a file or a text has a key."""
    for path, data in files.items():
        for secret in (PLANTED, *secrets.private):
            assert secret.encode() not in data, path
        assert base64.b64decode(secrets.key) not in data, path
    for secret in secrets.private:
        assert secret not in "".join(texts)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("codec", ["none", *also(OTHER_ROUTES, "zstd")])
def test_each_recipient_reads_the_text(
    source: str, secrets: Secrets, tmp_path: Path, codec: str
) -> None:
    """By another implementation, to the byte; and it is verified with and without a key."""
    plain, dest = tmp_path / "plain", tmp_path / "out"
    options = ("--compression", codec, "--file-size", "20kB")
    command.run(*job(source, plain, *options), "--quiet")
    encrypting = ("--encrypt-to", f"@{secrets.recipients_file}", "--verify", "full")
    done = command.ended(
        *job(source, dest, *options, *encrypting, "--decrypt-with", secrets.identity_file),
        *("--log-format", "json"),
    )
    assert done.returncode == 0, done.stderr
    assert_nothing_shows(written_below(dest), secrets, done.stdout, done.stderr)
    suffix = ".csv.age" if codec == "none" else ".csv.zst.age"
    for keys in (secrets.mine, secrets.other):
        found = b"".join(
            _text(decrypted(path.read_bytes(), keys.private), codec)
            for path in sorted(dest.glob(f"*{suffix}"))
        )
        expected = b"".join(
            _text(path.read_bytes(), codec) for path in sorted(plain.glob("*.csv*"))
        )
        assert set(found.splitlines()) == set(expected.splitlines())
        assert len(set(found.splitlines())) == ROWS + 1
    manifest = command.manifest_of(dest)
    record = manifest["options"]["encryption"]
    assert (record["method"], record["recipients"]) == (
        "age",
        [secrets.mine.public, secrets.other.public],
    )
    assert len(list(dest.glob(f"*{suffix}"))) == manifest["totals"]["files"]
    unread = command.ended("verify", str(dest))
    assert (unread.returncode, "records in them are not counted" in unread.stderr) == (0, True)
    level = ("verify", str(dest), "--level", "full")
    assert "--decrypt-with FILE" in command.error_of(*level, status=3)
    command.run(*level, "--decrypt-with", secrets.other_file)
    damaged = min(dest.glob(f"*{suffix}"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert damaged.name in command.error_of("verify", str(dest), status=8)


def _text(data: bytes, codec: str) -> bytes:
    if codec == "none":
        return data
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


@pytest.mark.parametrize("per", ["unit", *also(OTHER_ROUTES, "table")])
def test_duckdb_reads_the_parquet(source: str, secrets: Secrets, tmp_path: Path, per: str) -> None:
    """With the key that the run had; another key and none are refused, by both programs."""
    dest = tmp_path / "out"
    options = ("--format", "parquet", "--file-per", per, "--verify", "full")
    keyed = ("--parquet-key-file", secrets.key_file, "--parquet-key-name", "nightly 7")
    done = command.ended(*job(source, dest, *options, *keyed), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_shows(written_below(dest), secrets, done.stdout, done.stderr)
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{secrets.key}')")
        connection.execute(f"ATTACH '{source.removeprefix('duckdb://')}' AS s (READ_ONLY)")
        files = f"read_parquet('{dest}/*.parquet', encryption_config = {{footer_key: 'k'}})"
        same = f"SELECT count(*), (SELECT count(*) FROM (FROM {files} EXCEPT ALL FROM s.t)) FROM {files}"
        assert connection.execute(same).fetchall() == [(ROWS, 0)]
    record = command.manifest_of(dest)["options"]["encryption"]
    assert (record["method"], record["key_name"], record["recipients"]) == (
        "parquet",
        "nightly 7",
        [],
    )
    command.run("verify", str(dest))
    level = ("verify", str(dest), "--level", "full")
    command.run(*level, env={"UNLOADER_PARQUET_KEY": secrets.key})
    assert "--parquet-key-file" in command.error_of(*level, status=3)
    error = command.error_of(*level, "--parquet-key-file", secrets.other_key_file, status=3)
    assert "nightly 7" in error


REFUSED = {
    "private": (2, ("--encrypt-to", "{private}"), "private key"),
    "text": (2, ("--encrypt-to", "hunter2"), "is not a public key"),
    "no file": (2, ("--encrypt-to", "@/nowhere/x"), "cannot be read"),
    "damaged": (3, ("--encrypt-to", "{public}q"), "recipient 1"),
    "empty": (2, ("--encrypt-to", ""), "--encrypt-to"),
    "joined": (2, ("--encrypt-to", "{public}", "--file-per", "table"), "joined"),
    "stream": (2, ("--encrypt-to", "{public}", "--to", "-"), "one stream"),
    "preset": (2, ("--encrypt-to", "{public}", "--compression", "fastest"), "measures a sample"),
    "unread": (3, ("--encrypt-to", "{public}", "--verify", "full"), "--decrypt-with FILE"),
    "not mine": (
        3,
        ("--encrypt-to", "{public}", "--verify", "full", "--decrypt-with", "{other_file}"),
        "belongs to a recipient",
    ),
    "wrong format": (2, ("--encrypt-to", "{public}", "--format", "parquet"), "is for text"),
    "wrong key": (2, ("--parquet-key-file", "{key_file}"), "text is not encrypted with it"),
    "only a name": (2, ("--format", "parquet", "--parquet-key-name", "x"), "without a Parquet key"),
    "no recipient": (2, ("--decrypt-with", "{other_file}"), "--encrypt-to"),
    "not contain a key": (
        3,
        ("--format", "parquet", "--parquet-key-file", "{identity_file}"),
        "base64",
    ),
    "key not there": (
        3,
        ("--format", "parquet", "--parquet-key-file", "/nowhere/k"),
        "cannot be read",
    ),
    "bloom": (
        3,
        ("--format", "parquet", "--parquet-key-file", "{key_file}", "--bloom-filter", "i"),
        "Bloom",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_a_row_is_read(
    source: str, secrets: Secrets, tmp_path: Path, case: str
) -> None:
    """With one error that shows no key, and nothing is left."""
    status, options, expected = REFUSED[case]
    known = {
        "public": secrets.mine.public,
        "private": secrets.mine.private,
        "other_file": secrets.other_file,
        "key_file": secrets.key_file,
        "identity_file": secrets.identity_file,
    }
    dest = tmp_path / "out"
    place = () if "--to" in options else ("--to", str(dest))
    written = (each.format(**known) for each in options)
    error = command.error_of("run", source, "--table", "t", *place, *written, status=status)
    assert expected in error
    assert_nothing_shows(written_below(tmp_path), secrets, error)
    assert command.final_names(dest) == []


@pytest.mark.parametrize("name", ["UNLOADER_PARQUET_KEY", "UNLOADER_ENCRYPT_TO"])
def test_a_variable_that_a_script_left_empty_is_refused(
    source: str, tmp_path: Path, name: str
) -> None:
    """Nothing is written in the open because the program that gives the key has failed."""
    shape = "csv" if name.endswith("TO") else "parquet"
    arguments = job(source, tmp_path / "out", "--format", shape)
    assert name in command.error_of(*arguments, status=2, env={name: ""})
    assert command.final_names(tmp_path / "out") == []


def test_a_plan_of_encrypted_files_is_not_run_in_the_open(
    source: str, secrets: Secrets, tmp_path: Path
) -> None:
    """A plan does not contain a key from a variable, so it must be given again."""
    plan, dest = str(tmp_path / "plan.json"), tmp_path / "out"
    shape = ("--table", "t", "--format", "parquet", "--parallelism", "1")
    known = {"UNLOADER_PARQUET_KEY": secrets.key}
    command.run("plan", source, *shape, "--output", plan, env=known)
    assert "for encrypted files" in command.error_of("run", plan, "--to", str(dest), status=5)
    command.run("run", plan, "--to", str(dest), "--quiet", env=known)
    assert_nothing_shows(written_below(tmp_path), secrets)


TEXT = ("--encrypt-to", "{public}")
PARQUET = ("--format", "parquet", "--parquet-key-file", "{key_file}")


@pytest.mark.parametrize("options", [pytest.param(TEXT), *also(OTHER_ROUTES, (PARQUET,))])
def test_a_killed_run_leaves_nothing_in_the_open(
    source: str, secrets: Secrets, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Its staged files are encrypted, its record names no key, and it is continued."""
    dest = tmp_path / "out"
    known = {"public": secrets.mine.public, "key_file": secrets.key_file}
    arguments = job(source, dest, *(each.format(**known) for each in options))
    done = kill_after(3, dest, *arguments)
    left = written_below(dest)
    assert any(path.endswith(".part") for path in left)
    assert_nothing_shows(left, secrets)
    command.run("resume", str(dest), "--quiet")
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS
    assert len(done) >= 3
    attempts = {unit["id"]: unit["attempts"] for unit in command.manifest_of(dest)["units"]}
    assert {attempts[unit] for unit in done} == {1}
    assert_nothing_shows(written_below(dest), secrets)


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_is_resumed_with_its_own_key_only(
    source: str, secrets: Secrets, tmp_path: Path
) -> None:
    """The key is asked for again, and one run never has two."""
    dest = tmp_path / "out"
    known = {"UNLOADER_PARQUET_KEY": secrets.key}
    kill_after(2, dest, *job(source, dest, "--format", "parquet"), env=known)
    assert "UNLOADER_PARQUET_KEY" in command.error_of("resume", str(dest), status=3)
    wrong = ("resume", str(dest), "--parquet-key-file", secrets.other_key_file)
    assert "another Parquet key" in command.error_of(*wrong, status=6)
    command.run("resume", str(dest), "--parquet-key-file", secrets.key_file, "--quiet")
    command.run("verify", str(dest), env=known)
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{secrets.key}')")
        files = f"read_parquet('{dest}/*.parquet', encryption_config = {{footer_key: 'k'}})"
        assert connection.execute(f"SELECT count(*) FROM {files}").fetchall() == [(ROWS,)]


@pytest.mark.long(OTHER_ROUTES)
def test_the_line_for_cron_with_another_key_begins_anew(
    source: str, secrets: Secrets, tmp_path: Path
) -> None:
    """Files under two keys never come together."""
    dest = tmp_path / "out"
    line = (*job(source, dest, "--format", "parquet"), "--resume-or-start", "--overwrite")
    kill_after(2, dest, *line, "--parquet-key-file", secrets.key_file)
    again = command.ended(*line, "--parquet-key-file", secrets.other_key_file, "--progress", "log")
    assert again.returncode == 0, again.stderr
    assert "was a different job: this run starts from the beginning" in again.stderr
    command.run(
        "verify", str(dest), "--level", "count", "--parquet-key-file", secrets.other_key_file
    )


def test_a_running_process_shows_no_key(source: str, secrets: Secrets, tmp_path: Path) -> None:
    """Neither its command lines nor its log, also at --debug, nor its files so far."""
    dest = tmp_path / "out"
    arguments = job(source, dest, "--format", "parquet", "--parquet-key-file", secrets.key_file)
    running = command.Running("--debug", *arguments, "--log-format", "json", env=held_behind(2))
    try:
        running.wait_until(lambda: len(staged_units(dest)) >= 2, "two units")
        everybody = [psutil.Process(running.process.pid), *program.below(running.process.pid)]
        lines = "".join(json.dumps(each.cmdline()) for each in everybody)
        surroundings = "".join(json.dumps(each.environ()) for each in everybody)
    finally:
        os.killpg(running.process.pid, signal.SIGKILL)
        said = "".join(running.process.communicate())
    assert_nothing_shows(written_below(dest), secrets, lines, surroundings, said)
