"""Which server of S3's protocol is asked, and how it is told the bucket."""

from __future__ import annotations

import os

from writers.objects.location import Location


def s3_endpoint(store: Location) -> str:
    """Return the server to ask; empty for Amazon's own."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return store.option("endpoint") or named


def addressing(store: Location) -> str:
    """Return whether the bucket is named in the `path` or in the host (`virtual`)."""
    return store.option("addressing") or ("path" if s3_endpoint(store) else "virtual")


def has_tls(store: Location) -> bool:
    """Return whether what goes to that server is encrypted on its way."""
    return not s3_endpoint(store).startswith("http://")
