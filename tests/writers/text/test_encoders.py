"""Which text encoder is taken, and what happens where the native one is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.encoders import open_encoder

SCHEMA = pa.schema([("a", pa.string())])
ROOT = Path(__file__).parents[3]

WITHOUT = """
import os, sys
os.environ["UNLOADER_NATIVE_LIBRARY"] = ""
"""
"""The beginning of a process without the library of the text encoder."""


def told(code: str) -> str:
    """Return what a fresh process without a library prints."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_an_impossible_format_is_refused_in_the_same_words() -> None:
    """Before anything is encoded."""
    words = []
    for choice in ("auto", "plain"):
        with pytest.raises(FormatError) as caught:
            open_encoder(SCHEMA, TextFormat(delimiter=""), choice)
        words.append(str(caught.value))
    assert words[0] == words[1]


def test_auto_is_the_plain_encoder_without_a_library_and_native_is_refused() -> None:
    """The refusal says why, and what to do next."""
    lines = told(
        "import pyarrow as pa\n"
        "from writers.text.encoders import open_encoder\n"
        "from writers.errors import FormatError\n"
        "from writers.model import TextFormat\n"
        "schema = pa.schema([('a', pa.string())])\n"
        "print(type(open_encoder(schema, TextFormat())).__name__)\n"
        "try:\n    open_encoder(schema, TextFormat(), 'native')\n"
        "except FormatError as error:\n    print(error)\n"
    ).splitlines()
    assert lines[0] == "PlainEncoder"
    assert "switches it off" in lines[1]
    assert "Next: install a C++ compiler" in lines[1]


def test_help_loads_neither_the_library_nor_pyarrow() -> None:
    """It stays instant."""
    code = (
        "import sys\nfrom unloader.cli import main\n"
        "try:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([n for n in sys.modules if n == 'pyarrow' or n.startswith('writers.native')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
