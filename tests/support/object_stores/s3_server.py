"""An S3 server of moto in a process, and fixtures with its buckets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes.program import Program

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A server that runs, with a bucket in it."""

    endpoint: str
    bucket: str = "extracts"

    def client(self) -> Any:
        """Return boto3's client of it, since a check must not read with the library that wrote."""
        import boto3
        from botocore.config import Config

        # For an object in parts the server returns a checksum of checksums, not of the bytes.
        config = Config(response_checksum_validation="when_required")
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            config=config,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def place(self, key: str, more: str = "") -> str:
        """Return a place of `--to`."""
        return f"s3://{self.bucket}/{key}?endpoint={self.endpoint}&region={_REGION}{more}"

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Return all objects below a prefix, by their keys without it."""
        client = self.client()
        found = {}
        for page in client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix
        ):
            for each in page.get("Contents", ()):
                with suppress(client.exceptions.NoSuchKey):  # An active run removes some.
                    body = client.get_object(Bucket=self.bucket, Key=each["Key"])["Body"]
                    found[each["Key"][len(prefix) :]] = body.read()
        return found

    def uploads(self, prefix: str) -> list[str]:
        """Return the keys below a prefix of uploads that were neither completed nor aborted."""
        answer = self.client().list_multipart_uploads(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in answer.get("Uploads", ())]

    def abort(self, key: str) -> None:
        """Abort the uploads to a key."""
        client = self.client()
        answer = client.list_multipart_uploads(Bucket=self.bucket, Prefix=key)
        for each in answer["Uploads"]:
            client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=each["UploadId"])


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server, and end it."""
    process = Program(
        [sys.executable, str(Path(__file__).with_name("moto_server.py"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **CREDENTIALS},
    )
    assert process.stdout is not None
    try:
        # It is bound by then, and a client waits for the answer.
        port = int(process.stdout.readline())
        server = S3Server(f"http://127.0.0.1:{port}")
        server.client().create_bucket(Bucket=server.bucket)
        yield server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return a server, with the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_process
