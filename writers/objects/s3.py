"""What only S3 has, through boto3: profiles, uploads that were broken off, and large copies."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from writers.errors import FormatError, StoreFailed
from writers.objects.endpoints import addressing, s3_endpoint
from writers.objects.location import Location


class Pending(NamedTuple):
    """An upload in parts that was neither completed nor aborted. Its parts cost money."""

    key: str
    id: str


def credentials_of_profile(store: Location) -> Any:
    """Return what gives obstore the credentials that boto3 finds, and renews them.

    Raises:
        FormatError: boto3 is missing.
    """
    session = _session(store.option("profile"))
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(session)
    except ValueError:
        raise _no_credentials(store) from None


def region_of_profile(store: Location) -> str:
    """Return the region that is configured, empty if none is."""
    return _session(store.option("profile")).region_name or ""


def pending_uploads(location: Location) -> list[Pending]:
    """Return the uploads within a location that were never ended.

    Raises:
        StoreFailed: The store refused.
    """
    found = []
    with _translated("list the uploads in", location):
        asked: dict[str, Any] = {"Bucket": location.bucket, "Prefix": location.prefix}
        while True:
            answer = _client(location.store, os.getpid()).list_multipart_uploads(**asked)
            for each in answer.get("Uploads") or ():
                # Some servers do not look at the prefix.
                if each["Key"].startswith(location.prefix):
                    found.append(Pending(each["Key"], each["UploadId"]))
            if not answer.get("IsTruncated"):
                return found
            asked["KeyMarker"] = answer["NextKeyMarker"]
            asked["UploadIdMarker"] = answer["NextUploadIdMarker"]


def abort_uploads(store: Location, uploads: Iterable[Pending]) -> None:
    """Abort uploads; one that has ended meanwhile is none any more.

    Raises:
        StoreFailed: The store refused.
    """
    client = _client(store.store, os.getpid())
    with _translated("abort uploads in", store):
        for each in uploads:
            try:
                client.abort_multipart_upload(Bucket=store.bucket, Key=each.key, UploadId=each.id)
            except client.exceptions.NoSuchUpload:
                continue


def copy_large(store: Location, source: str, target: str) -> None:
    """Copy an object within its bucket, in parts where it is large, by the server itself.

    Raises:
        StoreFailed: The store refused.
    """
    extra: dict[str, str] = {}
    for option, name in (
        ("storage_class", "StorageClass"),
        ("sse", "ServerSideEncryption"),
        ("kms_key", "SSEKMSKeyId"),
    ):
        if value := store.option(option):
            extra[name] = value
    if tags := store.tags:
        # A copy in parts does not take those of the original with it.
        extra |= {"TaggingDirective": "REPLACE", "Tagging": urlencode(tags)}
    with _translated("copy in", store):
        _client(store.store, os.getpid()).copy(
            {"Bucket": store.bucket, "Key": source}, store.bucket, target, ExtraArgs=extra
        )


@lru_cache(maxsize=16)
def _client(store: Location, _: int) -> Any:
    from botocore.config import Config

    session = _session(store.option("profile"))
    return session.client(
        "s3",
        endpoint_url=s3_endpoint(store) or None,
        region_name=store.option("region") or session.region_name or "us-east-1",
        config=Config(
            retries={"mode": "standard", "max_attempts": 8},
            s3={"addressing_style": addressing(store)},
        ),
    )


@lru_cache(maxsize=16)
def _session(profile: str) -> Any:
    try:
        import boto3
        from botocore.exceptions import ProfileNotFound
    except ImportError:
        raise FormatError(
            "profiles and roles of S3, and what was left of uploads, need the package boto3.",
            "install it with: pip install 'unloader[cloud]'.",
        ) from None
    try:
        return boto3.Session(profile_name=profile or None)
    except ProfileNotFound as error:
        raise FormatError(f"{error}.", "see the profiles in ~/.aws/config.") from None


def _no_credentials(store: Location) -> FormatError:
    return FormatError(
        f"no credentials for {store} were found.",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (AWS_PROFILE), or give "
        "this machine a role.",
    )


class _translated:
    """Turns the errors of boto3 into our own."""

    def __init__(self, verb: str, location: Location) -> None:
        self._verb, self._location = verb, location

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise StoreFailed for an error of boto3."""
        if error is None or not type(error).__module__.startswith(("botocore", "boto3")):
            return
        raise StoreFailed(
            f"cannot {self._verb} {self._location}: {error}.",
            "check the rights of these credentials on the bucket.",
        ) from error
