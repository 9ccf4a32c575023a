"""TLS to PostgreSQL: verified unless someone says otherwise, and each refusal with the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from postgres.tls_front import front
from processes.command import PATIENCE_SECONDS

from unloader.errors import SourceError, TransientSourceError, UnloaderError
from unloader.model import SourceSpec
from unloader.sources.postgres.libpq import connection as copying
from unloader.sources.postgres.session import Session, verified

HOST = socket.gethostname()
"""A name of this machine that is not localhost: to us it is a host on the network."""


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "PGSSLMODE",
        "PGSSLROOTCERT",
        "PGSERVICE",
        "PGSERVICEFILE",
        "PGHOST",
        "PGHOSTADDR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def reachable() -> None:
    """Skip where the machine does not know its own name."""
    try:
        found = socket.gethostbyname(HOST)
    except OSError:
        found = ""
    if HOST == "localhost" or not found.startswith("127."):
        pytest.skip("this machine's name does not lead to itself")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return self_signed(tmp_path / "own.pem", HOST)


@pytest.fixture
def port(postgres: Any, own: Path, reachable: None) -> Iterator[int]:
    """A server with that certificate."""
    with front(postgres.url, own) as found:
        yield found


def connect(url: str) -> str:
    """Connect, and return what a first query gives."""
    with closing(Session(SourceSpec(kind="postgresql", location=url))) as session:
        return str(session.value("SELECT 'connected'"))


def refused(url: str) -> UnloaderError:
    """Return the error of a connection that must not be made."""
    with pytest.raises(UnloaderError) as caught:
        connect(url)
    return caught.value


def test_a_certificate_that_nobody_knows_is_refused(port: int) -> None:
    """Without a word on TLS the certificate is verified, and the error states how to trust it."""
    error = refused(f"postgresql://postgres@{HOST}:{port}/postgres")
    assert type(error) is SourceError
    assert not error.retryable
    assert "is not trusted: SSL error: certificate verify failed" in error.message
    assert "sslrootcert=FILE" in error.hint


@pytest.mark.parametrize("way", ["url", "variable", "home", "system"])
def test_a_certificate_of_a_known_ca_is_accepted(
    port: int, own: Path, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The CA may be named in the URL, in libpq's places, or be one of the system."""
    url = f"postgresql://postgres@{HOST}:{port}/postgres"
    if way == "url":
        url += f"?sslrootcert={own}"
    elif way == "variable":
        monkeypatch.setenv("PGSSLROOTCERT", str(own))
    elif way == "home":
        (tmp_path / ".postgresql").mkdir()
        (tmp_path / ".postgresql" / "root.crt").write_bytes(own.read_bytes())
    else:
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        assert connect(f"{url}?sslmode=verify-full&sslrootcert=system") == "connected"
    assert connect(url) == "connected"


def test_a_certificate_of_another_host_is_refused(
    postgres: Any, tmp_path: Path, reachable: None
) -> None:
    """A known CA is not enough: the certificate must be that host's."""
    pem = self_signed(tmp_path / "other.pem", "db.example")
    with front(postgres.url, pem) as port:
        error = refused(f"postgresql://postgres@{HOST}:{port}/postgres?sslrootcert={pem}")
    assert "does not match host name" in error.message


def test_whoever_says_so_goes_without_verification(port: int) -> None:
    """`sslmode` of the URL wins; require encrypts, and takes any certificate."""
    url = f"postgresql://postgres@{HOST}:{port}/postgres?sslmode=require"
    assert connect(url) == "connected"


def test_a_server_without_tls_is_refused(postgres: Any, reachable: None) -> None:
    """The default is not given up silently; the error names both ways out."""
    with front(postgres.url, None) as port:
        error = refused(f"postgresql://postgres@{HOST}:{port}/postgres")
    assert not isinstance(error, TransientSourceError)
    assert "does not offer TLS" in error.message
    assert "sslmode=disable" in error.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@/d?host=/run/postgresql",
        "postgresql:///d",
        "postgresql://u@localhost:5432/d",
        "postgresql://u@127.0.0.1/d",
        "postgresql://u@[::1]:5432/d",
        "postgresql://u@localhost,127.0.0.1:5433/d",
        "postgresql://u@db01/d?sslmode=prefer",
        "postgresql://u@db01/d?application_name=x&sslmode=disable",
    ],
)
def test_what_is_local_or_decided_stays_as_it_is(url: str) -> None:
    """Nothing is added for this machine, or where the URL has a mode."""
    assert verified(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@db01/d",
        "postgresql://u@db01:5432/d",
        "postgresql://u@10.0.0.7/d",
        "postgresql://u@[2001:db8::1]:5432/d",
        "postgresql://u@localhost,db01/d",
        "postgresql://u@/d?host=db01",
        "postgresql://u@/d?hostaddr=10.0.0.7",
        "postgresql://u@localhost/d?hostaddr=10.0.0.7",
        "postgresql:///d?service=sales",
    ],
)
def test_what_is_on_a_network_is_verified(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its name, its address, a list, a setting or a service file."""
    (tmp_path / ".pg_service.conf").write_text("[sales]\nhost=db01\n")
    assert "sslmode=verify-full&sslrootcert=" in verified(url)
    monkeypatch.setenv("PGSSLMODE", "require")
    assert verified(url) == url


LONG_RECORDS = """
import sys
from contextlib import closing
from unloader.sources.postgres.libpq.connection import Connection

for length, rows in ((10864, 3), (9335, 10), (9586, 5)):
    with closing(Connection(sys.argv[1])) as session:
        sql = f"SELECT repeat('x', {length - 1}) FROM generate_series(1, {rows})"
        copied = session.copy(f"COPY ({sql}) TO STDOUT", 1 << 20)
        assert sum(map(len, copied)) == length * rows
        assert len(session.query(sql)) == rows
"""


@pytest.mark.parametrize("variables", [{}, {copying.OVERRIDE: ""}], ids=["native", "plain"])
def test_long_records_are_read_to_their_end(
    postgres: Any, own: Path, variables: dict[str, str]
) -> None:
    """The last piece from a proxy is read, although nothing more comes.

    With the libpq of the system: the one of `psycopg[binary]` may read everything without help.
    """
    if find_library("pq") is None:
        pytest.skip("this system has no libpq of its own")
    with front(postgres.url, own, long_records=True) as port:
        url = f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=require"
        done = subprocess.run(
            [sys.executable, "-c", LONG_RECORDS, url],
            env={**os.environ, "PSYCOPG_IMPL": "python", **variables},
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
