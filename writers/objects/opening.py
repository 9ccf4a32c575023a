"""Opens the stores that locations are in, with the credentials that are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from writers.errors import FormatError
from writers.objects.location import Location, addressing, s3_endpoint

_RETRIES: Any = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        # Less than half of the time after which a lock counts as lost.
        "max_backoff": timedelta(seconds=5),
        # A delay is chosen at random, between the first one and the last one times this. With 2
        # they hardly grow: ten of them were over within three seconds.
        "base": 4,
    },
}
"""Of each request, by the answers of the store: 429 and 5xx are asked again, ever more slowly. The
library does not look at `Retry-After`, so that the delays have to add up to what stores ask for."""

_REQUEST_SECONDS = 90
"""Of one request. A part of 64 MiB takes that on a line of 6 Mbit/s."""


def open_store(location: Location) -> Any:
    """Return the store of a location's bucket, the same one each time in a process.

    Raises:
        FormatError: The library is missing, or what the store needs to know is.
    """
    return _opened(location.store, os.getpid())


# By process: the threads of the library are not there any more in one that was forked.
@lru_cache(maxsize=64)
def _opened(store: Location, _: int) -> Any:
    try:
        from obstore import exceptions
    except ImportError:
        raise FormatError(
            "object stores need the package obstore.",
            "install it with: pip install 'unloader[cloud]'.",
        ) from None
    make = {"s3": _s3, "gs": _gs, "az": _az}[store.scheme]
    try:
        return make(store)
    except (exceptions.BaseError, ValueError) as error:
        said = str(error).partition("\n")[0][:300]
        raise FormatError(
            f"cannot open {store}: {said}.", "check its options and the credentials."
        ) from None


def _client(endpoint: str) -> Any:
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=_REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=10),
    }
    return {**options, "allow_http": True} if endpoint.startswith("http://") else options


def _s3(store: Location) -> Any:
    from obstore.store import S3Store

    endpoint = s3_endpoint(store)
    config: Any = {"virtual_hosted_style_request": addressing(store) == "virtual"}
    if endpoint:
        config["endpoint"] = endpoint
    checksum = store.option("checksum") or "sha256"
    if checksum == "crc32c":
        # The library does not know it.
        checksum = "sha256"
    if checksum != "none":
        config["checksum_algorithm"] = checksum
    if sse := store.option("sse"):
        config["server_side_encryption"] = sse
    if key := store.option("kms_key"):
        config["sse_kms_key_id"] = key
    more: dict[str, Any] = {}
    if store.option("profile") or not _has_own_chain(os.environ):
        from writers.objects.s3 import credentials_of_profile, region_of_profile

        more["credential_provider"] = credentials_of_profile(store)
        region = region_of_profile(store)
    else:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    config["region"] = store.option("region") or region or "us-east-1"
    return S3Store(
        store.bucket,
        config=config,
        client_options=_client(endpoint),
        retry_config=_RETRIES,
        **more,
    )


def _has_own_chain(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names credentials that the library finds and renews.

    Keys in the environment, a role of a Kubernetes service account, or a container's.
    """
    if environment.get("AWS_PROFILE"):
        return False
    return any(
        environment.get(name)
        for name in (
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        )
    )


def _gs(store: Location) -> Any:
    from obstore.store import GCSStore

    endpoint = store.option("endpoint") or _emulator()
    config: Any = {}
    if endpoint:
        # A server of one's own that speaks this protocol knows no accounts of Google.
        config = {"base_url": endpoint, "skip_signature": True}
    return GCSStore(
        store.bucket, config=config, client_options=_client(endpoint), retry_config=_RETRIES
    )


def _emulator() -> str:
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return host if not host or "://" in host else f"http://{host}"


def _az(store: Location) -> Any:
    from obstore.store import AzureStore

    config: Any = {}
    if account := store.option("account"):
        config["account_name"] = account
    if endpoint := store.option("endpoint"):
        config["endpoint"] = endpoint
    return AzureStore(
        store.bucket, config=config, client_options=_client(endpoint), retry_config=_RETRIES
    )
