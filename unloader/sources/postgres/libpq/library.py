"""libpq itself: where it lies, and the functions of it that are called.

That of `psycopg[binary]` goes first, as its version is known; psycopg is not imported. Where it is
not installed the system's counts. Source of the functions: PostgreSQL's manual, chapter libpq.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from unloader.errors import ConfigError

OVERRIDE = "UNLOADER_LIBPQ"
"""An environment variable that names the file of another libpq."""

SYSTEM = "libpq.so.5"

NoticeReceiver = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Missing(ConfigError):
    """There is no libpq that can be loaded; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"cannot load libpq, the client library of PostgreSQL: {why}",
            f"pip install 'unloader[postgres]', or set {OVERRIDE} to the file of a libpq",
        )


class Setting(ctypes.Structure):
    """A setting of a connection, as libpq lists them; the end of the list has no keyword."""

    _fields_ = (
        ("keyword", ctypes.c_char_p),
        ("variable", ctypes.c_char_p),
        ("compiled", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("label", ctypes.c_char_p),
        ("shown", ctypes.c_char_p),
        ("size", ctypes.c_int),
    )


def find() -> str:
    """Return the file of libpq, or the name by which the system finds its own; loads nothing."""
    if named := os.environ.get(OVERRIDE):
        return named
    try:
        spec = find_spec("psycopg_binary")
    except ValueError:
        spec = None
    if spec is not None and spec.origin:
        beside = Path(spec.origin).parents[1] / "psycopg_binary.libs"
        for path in sorted(beside.glob("libpq-*.so*")):
            return str(path)
    return SYSTEM


@lru_cache(maxsize=1)
def libpq() -> ctypes.CDLL:
    """Return the library, loaded once a process.

    Raises:
        Missing: There is none, or one that lacks a function.
    """
    try:
        loaded = ctypes.CDLL(find())
        _declare(loaded)
    except (OSError, AttributeError) as error:
        raise Missing(str(error)) from None
    return loaded


def _declare(loaded: ctypes.CDLL) -> None:
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    texts = ctypes.POINTER(ctypes.c_char_p)
    functions = {
        "PQconnectStartParams": (pointer, (texts, texts, number)),
        "PQconnectPoll": (number, (pointer,)),
        "PQconninfo": (ctypes.POINTER(Setting), (pointer,)),
        "PQconninfoFree": (None, (ctypes.POINTER(Setting),)),
        "PQhost": (text, (pointer,)),
        "PQport": (text, (pointer,)),
        "PQfinish": (None, (pointer,)),
        "PQstatus": (number, (pointer,)),
        "PQtransactionStatus": (number, (pointer,)),
        "PQserverVersion": (number, (pointer,)),
        "PQerrorMessage": (text, (pointer,)),
        "PQsocket": (number, (pointer,)),
        "PQsetErrorVerbosity": (number, (pointer, number)),
        "PQsetNoticeReceiver": (pointer, (pointer, NoticeReceiver, pointer)),
        "PQsendQuery": (number, (pointer, text)),
        "PQsendQueryParams": (
            number,
            (pointer, text, number, pointer, texts, pointer, pointer, number),
        ),
        "PQsendPrepare": (number, (pointer, text, text, number, pointer)),
        "PQsendDescribePrepared": (number, (pointer, text)),
        "PQconsumeInput": (number, (pointer,)),
        "PQisBusy": (number, (pointer,)),
        "PQgetResult": (pointer, (pointer,)),
        "PQresultStatus": (number, (pointer,)),
        "PQresultErrorMessage": (text, (pointer,)),
        "PQresultErrorField": (text, (pointer, number)),
        "PQclear": (None, (pointer,)),
        "PQntuples": (number, (pointer,)),
        "PQnfields": (number, (pointer,)),
        "PQnparams": (number, (pointer,)),
        "PQfname": (text, (pointer, number)),
        "PQftype": (ctypes.c_uint, (pointer, number)),
        "PQgetvalue": (text, (pointer, number, number)),
        "PQgetisnull": (number, (pointer, number, number)),
        "PQcmdTuples": (text, (pointer,)),
        "PQgetCopyData": (number, (pointer, ctypes.POINTER(pointer), number)),
        "PQfreemem": (None, (pointer,)),
        "PQgetCancel": (pointer, (pointer,)),
        "PQcancel": (number, (pointer, text, number)),
        "PQfreeCancel": (None, (pointer,)),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    # From version 17 on a request to cancel goes over TLS, too.
    for name, result in (("Create", pointer), ("Blocking", number), ("Finish", None)):
        function = getattr(loaded, f"PQcancel{name}", None)
        if function is not None:
            function.restype, function.argtypes = result, (pointer,)
