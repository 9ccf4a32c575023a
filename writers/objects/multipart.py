"""Uploads in parts on S3, request by request: begun, sent, compared, completed, aborted.

Between its last part and its completion an upload is not visible to readers of objects. Any process
can complete it or abort it. obstore has none of these requests, so they go through boto3.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

from writers.errors import Superseded
from writers.model import UncompletedUpload, UploadedPart
from writers.objects.location import Location, has_tls
from writers.objects.s3 import client, code_of, error_of, marks, translated

_GONE = ("NoSuchUpload", "404")
_IN_THE_WAY = ("PreconditionFailed", "412")
_AT_WORK = ("ConditionalRequestConflict", "409")
_UNKNOWN = "NotImplemented"
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between requests, where the store still works on an earlier one. botocore does not repeat
a request after this answer."""


def algorithm_of(store: Location) -> str:
    """Return which checksum the parts of an upload get; empty for none.

    CRC-32C costs an eighth of SHA-256's CPU and finds damage. Without TLS an attacker could change
    the bytes and the CRC; SHA-256 is in the signature of the request. botocore can add checksums,
    but its CRC-32C needs another library, and with TLS it sends them in a form of body that only
    some servers accept.
    """
    asked = store.option("checksum")
    if asked:
        return "" if asked == "none" else asked.upper()
    return "CRC32C" if has_tls(store) and find_spec("crc32c") else "SHA256"


def _checksum(name: str, data: bytes | bytearray | memoryview) -> str:
    """Return a checksum as S3 writes it; empty for no algorithm."""
    return base64.b64encode(_CHECKSUMS[name](data)).decode() if name else ""


def _crc32c(data: bytes | bytearray | memoryview) -> bytes:
    # Imported on use: it is no part of the core.
    import crc32c

    return int(crc32c.crc32c(data)).to_bytes(4, "big")


_CHECKSUMS: dict[str, Callable[[bytes | bytearray | memoryview], bytes]] = {
    "SHA256": lambda data: hashlib.sha256(data).digest(),
    "CRC32C": _crc32c,
}


class Pending(NamedTuple):
    """An upload in parts that was neither completed nor aborted. Its parts cost money."""

    key: str
    id: str


def begin(location: Location, algorithm: str) -> str:
    """Begin an upload of an object; return its id.

    Raises:
        StoreFailed: The store refused.
    """
    more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    with translated("begin an upload to", location):
        answer = client(location, sends_parts=True).create_multipart_upload(
            Bucket=location.bucket, Key=location.key, **marks(location), **more
        )
    return str(answer["UploadId"])


def send(
    location: Location, upload: str, number: int, body: bytes | bytearray, algorithm: str
) -> UploadedPart:
    """Send a part, which is numbered from 1.

    Raises:
        StoreFailed: The store refused, or has got other bytes.
    """
    found = _checksum(algorithm, body)
    more = {f"Checksum{algorithm}": found} if algorithm else {}
    # Without a checksum in a header the signature is all that tells of the bytes.
    with translated(f"write part {number} of", location):
        answer = client(location, sends_parts=bool(algorithm)).upload_part(
            Bucket=location.bucket,
            Key=location.key,
            UploadId=upload,
            PartNumber=number,
            Body=body,
            **more,
        )
    return UploadedPart(etag=str(answer["ETag"]), checksum=found, bytes=len(body))


def compare(location: Location, upload: UncompletedUpload) -> None:
    """Compare the parts that the store has with those that were sent.

    Raises:
        Superseded: They differ, or the upload is not there any more.
        StoreFailed: The store refused or failed.
    """
    try:
        there = _parts(location, upload.id)
    except client(location, sends_parts=True).exceptions.NoSuchUpload:
        raise _other(f"the upload of {location.name} does not exist any more") from None
    if len(there) != len(upload.parts):
        raise _other(
            f"the store has {len(there)} parts of {location.name}, but {len(upload.parts)} were "
            "sent"
        )
    for number, (sent, found) in enumerate(zip(upload.parts, there, strict=True), start=1):
        said = found.get(f"Checksum{upload.algorithm}", sent.checksum)
        if (found["PartNumber"], found["Size"]) != (number, sent.bytes) or (
            said != sent.checksum or _bare(found["ETag"]) != _bare(sent.etag)
        ):
            raise _other(
                f"part {number} of {location.name} in the store differs from the part that was sent"
            )


def _other(what: str) -> Superseded:
    return Superseded(f"{what}.", "check the store, and the network between it and this machine.")


def _parts(location: Location, upload: str) -> list[dict[str, Any]]:
    asking = client(location, sends_parts=True)
    with translated("list the parts of", location, but=asking.exceptions.NoSuchUpload):
        pages = asking.get_paginator("list_parts").paginate(
            Bucket=location.bucket, Key=location.key, UploadId=upload
        )
        return [part for page in pages for part in page.get("Parts") or ()]


def complete(location: Location, upload: UncompletedUpload, *, replaces: bool) -> None:
    """Make an object of an upload; nothing happens where that was done already.

    Args:
        location: Of the object.
        upload: All of its parts.
        replaces: An object that is there already is replaced; else it is in the way.

    Raises:
        FileNotFoundError: The upload is not there, and the object is not what it would have made.
        FileExistsError: There is another object.
        StoreFailed: The store refused or failed.
    """
    condition = {} if replaces else {"IfNoneMatch": "*"}
    pauses = list(_PAUSES)
    while True:
        refused = _complete(location, upload, condition)
        # Whether an earlier request was carried out, whose answer was lost, is seen by the object.
        if refused is None or is_there(location, upload):
            return
        if code_of(refused) == _UNKNOWN and condition:
            # The store has no conditions here; the lock of the place keeps others out.
            condition = {}
        elif code_of(refused) in _AT_WORK and pauses:
            time.sleep(pauses.pop(0))
        else:
            raise _why(refused, location)


def _why(refused: Exception, location: Location) -> Exception:
    name = str(location).partition("?")[0]
    if code_of(refused) in _GONE:
        return FileNotFoundError(errno.ENOENT, "its upload does not exist any more", name)
    if code_of(refused) in _IN_THE_WAY:
        return FileExistsError(errno.EEXIST, "another object exists there", name)
    return error_of("complete the upload of", location, refused)


def _complete(
    location: Location, upload: UncompletedUpload, condition: dict[str, str]
) -> Exception | None:
    """Ask the store once; return what it said, if it refused."""
    from botocore.exceptions import BotoCoreError, ClientError

    parts = []
    for number, part in enumerate(upload.parts, start=1):
        more = {f"Checksum{upload.algorithm}": part.checksum} if upload.algorithm else {}
        parts.append({"PartNumber": number, "ETag": part.etag, **more})
    try:
        client(location).complete_multipart_upload(
            Bucket=location.bucket,
            Key=location.key,
            UploadId=upload.id,
            MultipartUpload={"Parts": parts},
            **condition,
        )
    except (BotoCoreError, ClientError) as error:
        refused: Exception = error
        return refused
    return None


def is_there(location: Location, upload: UncompletedUpload) -> bool:
    """Return whether there is an object of the size and with the checksum of an upload.

    Raises:
        StoreFailed: The store refused.
    """
    from botocore.exceptions import ClientError

    with translated("look at", location):
        try:
            head = client(location).head_object(
                Bucket=location.bucket, Key=location.key, ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                return False
            raise
    if head["ContentLength"] != upload.bytes:
        return False
    said = str(head.get(f"Checksum{upload.algorithm}", "")).partition("-")[0]
    if upload.algorithm and said:
        sums = (base64.b64decode(part.checksum) for part in upload.parts)
        return said == _checksum(upload.algorithm, b"".join(sums))
    return _bare(head["ETag"]) == _etag_of(upload)


def _etag_of(upload: UncompletedUpload) -> str:
    """Return the ETag of the object, as stores make it that use MD5 for those of parts."""
    try:
        together = b"".join(bytes.fromhex(_bare(part.etag)) for part in upload.parts)
    except ValueError:
        return ""
    found = hashlib.md5(together, usedforsecurity=False).hexdigest()
    return f"{found}-{len(upload.parts)}"


def _bare(etag: str) -> str:
    return etag.strip('"')


def pending_uploads(location: Location, *, deep: bool = True) -> list[Pending]:
    """Return the uploads within a location that were never ended.

    Args:
        location: Its key is what the keys of them begin with, and a slash.
        deep: Those further down, too.

    Raises:
        StoreFailed: The store refused.
    """
    with translated("list the uploads in", location):
        pages = (
            client(location)
            .get_paginator("list_multipart_uploads")
            .paginate(
                Bucket=location.bucket,
                Prefix=location.prefix,
                **({} if deep else {"Delimiter": "/"}),
            )
        )
        found = [
            Pending(each["Key"], each["UploadId"])
            for page in pages
            for each in page.get("Uploads") or ()
        ]
    # Some servers ignore the prefix and the delimiter.
    return [
        each
        for each in found
        if each.key.startswith(location.prefix)
        and (deep or "/" not in each.key.removeprefix(location.prefix))
    ]


def abort_uploads(store: Location, uploads: Iterable[Pending]) -> None:
    """Abort uploads; one that has ended meanwhile is none any more.

    Raises:
        StoreFailed: The store refused.
    """
    asking = client(store)
    with translated("abort uploads in", store):
        for each in uploads:
            try:
                asking.abort_multipart_upload(Bucket=store.bucket, Key=each.key, UploadId=each.id)
            except asking.exceptions.NoSuchUpload:
                continue
