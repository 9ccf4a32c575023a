"""Where an object, or a place for objects, is: `s3://bucket/prefix?endpoint=https://host`.

Its text has everything that a reader of a manifest needs to find it. It has no secrets: credentials
come from the environment of the process.
"""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from writers.errors import FormatError

SCHEMES = ("s3", "gs", "az")
_MARKS = tuple(f"{scheme}://" for scheme in SCHEMES)
_OPTIONS = {
    "s3": (
        "endpoint",
        "region",
        "profile",
        "addressing",
        "checksum",
        "sse",
        "kms_key",
        "storage_class",
        "tag",
    ),
    "gs": ("endpoint",),
    "az": ("account", "endpoint"),
}
_CHOICES = {
    "addressing": ("path", "virtual"),
    "checksum": ("sha256", "crc32c", "crc64nvme", "none"),
    "sse": ("AES256", "aws:kms", "aws:kms:dsse"),
}
_FORMS = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


class Location(Struct, frozen=True, kw_only=True, order=True):
    """A key in a bucket, with the options of the store. `str()` returns its text."""

    scheme: str
    bucket: str
    key: str
    """Without a slash at either end; empty is the bucket as a whole."""
    options: tuple[tuple[str, str], ...] = ()
    """In the order of their names; `tag` may stand several times."""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Return the location of a text, or a FormatError that does not repeat the text."""
        return _parsed(text)

    def option(self, name: str) -> str:
        return dict(self.options).get(name, "")

    @property
    def tags(self) -> dict[str, str]:
        pairs = (value.partition(":") for name, value in self.options if name == "tag")
        return {name: value for name, _, value in pairs}

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def below(self, *names: str) -> Location:
        return replace(self, key="/".join(filter(None, (self.key, *names))))

    @property
    def parent(self) -> Location:
        """The location that this one is in; the bucket is in itself."""
        return replace(self, key=self.key.rpartition("/")[0])

    def __truediv__(self, other: object) -> Location:
        """Return a location within this one, or another one if its whole text is given."""
        text = str(other)
        return Location.parse(text) if is_location(text) else self.below(*text.split("/"))

    @property
    def prefix(self) -> str:
        """The beginning of the keys of all objects within; empty for the whole bucket."""
        return f"{self.key}/" if self.key else ""

    @property
    def store(self) -> Location:
        """The bucket itself, as all its locations share it."""
        return replace(self, key="")

    def __fspath__(self) -> str:
        """Return the text: messages have it where a local file has its path."""
        return str(self)

    def __str__(self) -> str:
        query = "&".join(f"{name}={quote(value, safe=':/-_.~')}" for name, value in self.options)
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/") + (query and f"?{query}")


def is_location(text: str) -> bool:
    """Return whether a text means an object store, correct or not."""
    return text.startswith(_MARKS)


def below(place: str, name: str) -> str:
    """Return a place within another one, whether that is a directory or in an object store."""
    if is_location(place):
        return str(Location.parse(place).below(name))
    return f"{place.rstrip('/')}/{name}"


@lru_cache(maxsize=256)
def _parsed(text: str) -> Location:
    if not is_location(text):
        raise FormatError("this is not a place in an object store.", f"write it as {_FORMS}.")
    parts = urlsplit(text)
    if "@" in parts.netloc or "#" in text:
        raise FormatError(
            f"a place in an object store ({parts.scheme}://) contains credentials or a #.",
            "remove them: credentials come from the environment or a profile.",
        )
    if not parts.netloc:
        raise FormatError(f"{parts.scheme}:// does not name a bucket.", f"write it as {_FORMS}.")
    key = parts.path.strip("/")
    if any(part in ("", ".", "..") for part in key.split("/") if key):
        raise FormatError(f"{text.partition('?')[0]} has an empty part.", f"write it as {_FORMS}.")
    return Location(
        scheme=parts.scheme,
        bucket=parts.netloc,
        key=key,
        options=tuple(sorted(_options(parts.scheme, parts.query))),
    )


def _options(scheme: str, query: str) -> list[tuple[str, str]]:
    """Return the options after the `?`; an error does not show a value that may be a secret."""
    try:
        pairs = parse_qsl(query, strict_parsing=True) if query else []
    except ValueError:
        raise FormatError(
            f"the text after the ? of a place in {scheme}:// cannot be read.",
            "write NAME=VALUE, put & between several, and quote the place for the shell.",
        ) from None
    known = _OPTIONS[scheme]
    for name, value in pairs:
        if name not in known:
            raise FormatError(
                f"a place in {scheme}:// has no option {name}.",
                f"use {', '.join(known)}; credentials come from the environment or a profile.",
            )
        if name in _CHOICES and value not in _CHOICES[name]:
            raise FormatError(
                f"the value in {name}={value} is unknown.", f"use {', '.join(_CHOICES[name])}."
            )
        if name == "endpoint":
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
                raise FormatError(
                    "endpoint is not the address of a server, or contains credentials.",
                    "write it as endpoint=https://HOST:PORT.",
                )
        if name == "tag" and not all(value.partition(":")):
            raise FormatError(f"tag={value} is not a tag.", "write tag=NAME:VALUE.")
    names = [name for name, _ in pairs if name != "tag"]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise FormatError(f"{twice} appears twice in one place.", "leave one of them out.")
    if "kms_key" in names and not dict(pairs).get("sse", "").startswith("aws:kms"):
        raise FormatError("kms_key works only with KMS.", "add sse=aws:kms.")
    return pairs


def s3_endpoint(store: Location) -> str:
    """Return the server to ask; empty for Amazon's own."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return store.option("endpoint") or named


def addressing(store: Location) -> str:
    """Return whether the bucket is named in the `path` or in the host (`virtual`)."""
    return store.option("addressing") or ("path" if s3_endpoint(store) else "virtual")
