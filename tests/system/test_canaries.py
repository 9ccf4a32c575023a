"""Secrets in every place that one can come from, looked for in everything that a command leaves."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest
from lakehouse.catalogs import Lake, lake
from processes import command

MARK = "cnry7Xv"
"""A text that is in every secret and nowhere else."""

AGE = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"
LAKE = "PYICEBERG_CATALOG__LAKE__"


def key(number: int) -> str:
    """Return a key in base64 with the mark in it."""
    return base64.b64encode(base64.b64decode(f"{MARK}A") + bytes([number]) * 26).decode()


ENVIRONMENT = {
    "UNLOADER_WALLET_PASSWORD": f"Zq01{MARK}",
    "UNLOADER_ORACLE_TOKEN": f"Zq02{MARK}",
    "UNLOADER_PASSWORD": f"Zq03{MARK}",
    "UNLOADER_MASKING_KEY_DEFAULT": key(4),
    "UNLOADER_SESSION_SQL": f"SET ROLE r IDENTIFIED BY Zq05{MARK}",
    "PGPASSWORD": f"Zq06{MARK}",
    "MYSQL_PWD": f"Zq07{MARK}",
    "PGSSLPASSWORD": f"Zq08{MARK}",
    "AWS_SECRET_ACCESS_KEY": f"Zq09/{MARK}+",
    "AWS_SESSION_TOKEN": f"Zq10{MARK}",
    "AZURE_STORAGE_KEY": f"Zq11{MARK}==",
    "AZURE_STORAGE_SAS_TOKEN": f"sv=1&sig=Zq12{MARK}",
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=x;AccountKey=Zq13{MARK}==",
    "GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "Zq14{MARK}"}}',
    f"{LAKE}TOKEN": f"Zq15{MARK}",
    f"{LAKE}CREDENTIAL": f"client:Zq16{MARK}",
    f"{LAKE}S3__SECRET_ACCESS_KEY": f"Zq17{MARK}",
    f"{LAKE}HEADER__X_API_KEY": f"Zq18{MARK}",
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://joe:Zq19{MARK}@127.0.0.1:1",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20Zq20{MARK}",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    "https_proxy": f"http://joe:Zq21{MARK}@127.0.0.1:1",
    "DATABASE_URL": f"postgresql://joe:Zq22{MARK}@127.0.0.1:1/x",
    "DB_PASS": f"Zq23{MARK}",
    "DB_PW": f"Zq24{MARK}",
    "STRIPE_API_KEY": f"Zq25{MARK}",
    "SLACK_WEBHOOK": f"https://hooks.example.com/Zq26{MARK}",
}
"""Every kind of secret that a job's surroundings may have."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with one small table and one large query's worth of rows."""
    path = tmp_path_factory.mktemp("canaries") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range(20000) r(i)")
    return f"duckdb://{path}"


def left_in(directory: Path) -> str:
    """Return names and texts of all files below a directory."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return "".join(
        f"{path.relative_to(directory)}\n{path.read_bytes().decode('utf-8', 'replace')}\n"
        for path in files
    )


def lines_with_a_secret(text: str) -> list[str]:
    """Return the lines that have the mark in them."""
    return [line for line in text.splitlines() if MARK in line or key(4) in line]


@pytest.mark.parametrize("output", ["text", "masked", "encrypted", "iceberg", "delta", "cluster"])
def test_a_run_leaves_no_secret_of_its_surroundings(
    source: str, tmp_path: Path, output: str
) -> None:
    """In no output, log, manifest, page, metrics, traces and hook; the run fails, and succeeds."""
    home, secret = tmp_path / "home", tmp_path / "home" / "parquet-key"
    home.mkdir(mode=0o700)
    secret.write_text(key(30))
    secret.chmod(0o600)
    lake(tmp_path)
    out = tmp_path / "out"
    options = {
        "text": ("--to", str(out), "--table", "t"),
        "masked": ("--to", f"{out}/{{table}}", "--table", "*", "--mask", "v=hmac"),
        "encrypted": ("--to", str(out), "--format", "parquet", "--parquet-key-file", str(secret)),
        "iceberg": ("--to", "iceberg://lake/ns.t", "--format", "parquet"),
        "delta": ("--to", f"delta:{out}", "--format", "parquet"),
        "cluster": ("--to", str(out), "--cluster", "local:1"),
    }[output]
    table = () if "--table" in options else ("--table", "t")
    around = (
        *("--trace", "otlp", "--metrics-file", str(tmp_path / "x.prom"), "--log-format", "json"),
        *("--report", str(tmp_path / "x.html"), "--verify", "full"),
        *("--on-success", f"env > {tmp_path}/good; env; echo API_KEY=Zq40{MARK}"),
        *("--on-failure", f"env > {tmp_path}/bad; curl -H 'Authorization: Bearer Zq41{MARK}'"),
    )
    env = {**os.environ, **ENVIRONMENT, **Lake(tmp_path).env}
    if output == "cluster":
        del env["UNLOADER_SESSION_SQL"]  # Refused there, as it would go to all machines.
    base = ("--debug", "run", source, *table, *options, *around)
    failed = command.ended(*base, "--where", "nowhere = 1", "--json", env=env)
    assert failed.returncode != 0
    assert (tmp_path / "bad").exists()
    done = command.ended(*base, "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "good").exists()
    secret.unlink()
    said = failed.stdout + failed.stderr + done.stdout + done.stderr
    assert lines_with_a_secret(said + left_in(tmp_path)) == []


REFUSED = {
    "password in a URL": ("postgresql://etl:{}@127.0.0.1:1/x",),
    "password as a setting": ("postgresql://etl@127.0.0.1:1/x?password={}",),
    "password of a key": ("postgresql://etl@127.0.0.1:1/x?sslpassword={}",),
    "token among settings": ("postgresql://etl@127.0.0.1:1/x?options=-capp.token%3D{}",),
    "login of SQL*Plus": ("oracle://etl/{}@127.0.0.1:1/x",),
    "password of a wallet": ("oracle://etl@127.0.0.1:1/x?wallet_password={}",),
    "URL of another database": ("mysql://etl:{}@127.0.0.1/x",),
    "no URL": ("etl/{}@db01",),
    "surplus argument": ("", "{}"),
    "unknown option": ("", "--pasword", "{}"),
    "unknown option with a value": ("", "--pasword={}"),
    "number": ("", "--parallelism", "{}"),
    "choice": ("", "--format", "{}"),
    "password for its file": ("", "--password-file", "{}"),
    "password for its credential": ("", "--password-credential", "{}"),
    "masking key": ("", "--mask", "v=hmac", "--mask-key", "{}"),
    "named masking key": ("", "--mask", "v=hmac", "--mask-key", "default={}"),
    "masking key as a parameter": ("", "--mask", "v=hmac,key={}"),
    "variable of a masking key": ("", "--mask", "v=hmac", "--mask-key", "default=env:{}"),
    "Parquet key for its file": ("", "--format", "parquet", "--parquet-key-file", "{}"),
    "private key for the public one": ("", "--encrypt-to", "AGE-SECRET-KEY-1{}"),
    "private key for its file": (
        *("", "--verify", "full", "--encrypt-to", AGE),
        *("--decrypt-with", "{}"),
    ),
    "no public key": ("", "--encrypt-to", "{}"),
    "login of a cluster": ("", "--cluster", "tcp://joe:{}@127.0.0.1:1"),
    "login of a store": ("", "--to", "s3://AKIA:{}@bucket/p"),
    "key as an option of a store": ("", "--to", "s3://bucket/p?secret_access_key={}"),
    "login of an endpoint": ("", "--to", "s3://bucket/p?endpoint=http://joe:{}@127.0.0.1:1"),
    "signature of Azure": ("", "--to", "az://c/p?account=x&sas_token={}"),
    "URL with a signature": ("", "--to", "https://x.blob.core.windows.net/c?sv=1&sig={}"),
    "token of Google": ("", "--to", "gs://bucket/p?token={}"),
    "key of a Delta table": ("", "--to", "delta:s3://AK:{}@bucket/t", "--format", "parquet"),
    "URL of a Delta table": ("", "--to", "delta:abfss://c@x/t?sas={}", "--format", "parquet"),
    "password of a DuckLake": ("", "--to", "ducklake:postgres:host=h password={}/main.t"),
    "URL of a DuckLake": ("", "--to", "ducklake:postgres:postgresql://etl:{}@h/x/main.t"),
    "key of a DuckLake": ("", "--to", "ducklake:postgres:host=h api_key={}/main.t"),
    "signature of a DuckLake": ("", "--to", "ducklake:https://x.example.com/c?sig={}/main.t"),
    "value for a variable": ("", "--hook-env", "DB_PASS={}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_not_shown(source: str, tmp_path: Path, name: str) -> None:
    """A secret in a place where it does not belong: one error, nothing of it in it, no file."""
    where, *options = (text.replace("{}", f"Zq50{MARK}") for text in REFUSED[name])
    to = () if "--to" in options else ("--to", str(tmp_path / "out"))
    for extra in ((), ("--json",), ("--log-format", "json")):
        done = command.ended(
            "--debug", "run", where or source, "--table", "t", *to, *options, *extra
        )
        assert done.returncode in (2, 3), done.stderr
        assert lines_with_a_secret(done.stdout + done.stderr + left_in(tmp_path)) == []


FAILING: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "catalog of a database": (
        "iceberg://lake/n.t",
        {f"{LAKE}TYPE": "sql", f"{LAKE}URI": "postgresql+psycopg2://etl:{}@127.0.0.1:1/x"},
    ),
    "catalog in a file": (
        "iceberg://lake/n.t",
        {f"{LAKE}TYPE": "sql", f"{LAKE}URI": "sqlite:////nowhere/x.db?password={}"},
    ),
    "catalog of a server": (
        "iceberg://lake/n.t",
        {f"{LAKE}TYPE": "rest", f"{LAKE}URI": "http://joe:{}@127.0.0.1:1/"},
    ),
    "key of Azure": (
        "az://c/p?endpoint=http://127.0.0.1:1",
        {"AZURE_STORAGE_ACCOUNT_NAME": "x", "AZURE_STORAGE_ACCOUNT_KEY": "{}"},
    ),
    "account of Google": (
        "gs://b/p",
        {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "{}", "client_email": "x"}'},
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_others_say_has_no_secret(source: str, tmp_path: Path, name: str) -> None:
    """A catalog or a store that does not answer, or cannot be opened: errors of their libraries."""
    to, variables = FAILING[name]
    own = {each: text.replace("{}", f"Zq60{MARK}") for each, text in variables.items()}
    env = {**os.environ, **ENVIRONMENT, **own}
    asked = ("--table", "t", "--to", to, "--format", "parquet", "--retries", "0")
    done = command.ended("--debug", "run", source, *asked, env=env)
    assert done.returncode not in (0, 1), done.stderr
    assert lines_with_a_secret(done.stdout + done.stderr + left_in(tmp_path)) == []
