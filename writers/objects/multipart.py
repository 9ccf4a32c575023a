"""Uploads in parts on S3, request by request: begun, sent, compared, completed, aborted.

Between its last part and its completion an upload is seen by nobody who reads objects. It stays so
until somebody completes it, from whatever process, or aborts it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from writers.errors import Superseded
from writers.model import UncompletedUpload, UploadedPart
from writers.objects.location import Location
from writers.objects.part_checksums import checksum, of_parts
from writers.objects.s3 import client, code_of, error_of, marks, translated

_GONE = ("NoSuchUpload", "404")
_IN_THE_WAY = ("PreconditionFailed", "412")
_AT_WORK = ("ConditionalRequestConflict", "409")
_UNKNOWN = "NotImplemented"
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between requests, where the store is still at work on an earlier one."""


class Pending(NamedTuple):
    """An upload in parts that was neither completed nor aborted. Its parts cost money."""

    key: str
    id: str


def get_ready(location: Location) -> None:
    """Load what asks the store.

    Raises:
        WriteError: It is missing, or no credentials are found.
    """
    with translated("open", location):
        client(location)


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
    found = checksum(algorithm, body)
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
        there = list(_parts(location, upload.id))
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


def _parts(location: Location, upload: str) -> Iterable[dict[str, Any]]:
    asked: dict[str, Any] = {"Bucket": location.bucket, "Key": location.key, "UploadId": upload}
    asking = client(location, sends_parts=True)
    while True:
        with translated("list the parts of", location, but=asking.exceptions.NoSuchUpload):
            answer = asking.list_parts(**asked)
        yield from answer.get("Parts") or ()
        if not answer.get("IsTruncated"):
            return
        asked["PartNumberMarker"] = answer["NextPartNumberMarker"]


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
    """Tell whether there is an object of the size and with the checksum of an upload.

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
        return said == of_parts(upload.algorithm, [part.checksum for part in upload.parts])
    return _bare(head["ETag"]) == _etag_of(upload)


def _etag_of(upload: UncompletedUpload) -> str:
    """Return the ETag of the object, as stores make it that use MD5 for those of parts."""
    import hashlib

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
    found = []
    with translated("list the uploads in", location):
        asked: dict[str, Any] = {"Bucket": location.bucket, "Prefix": location.prefix}
        if not deep:
            asked["Delimiter"] = "/"
        while True:
            answer = client(location).list_multipart_uploads(**asked)
            for each in answer.get("Uploads") or ():
                # Some servers look at neither the prefix nor the delimiter.
                rest = each["Key"].removeprefix(location.prefix)
                if each["Key"].startswith(location.prefix) and (deep or "/" not in rest):
                    found.append(Pending(each["Key"], each["UploadId"]))
            if not answer.get("IsTruncated"):
                return found
            asked["KeyMarker"] = answer["NextKeyMarker"]
            asked["UploadIdMarker"] = answer.get("NextUploadIdMarker", "")


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
