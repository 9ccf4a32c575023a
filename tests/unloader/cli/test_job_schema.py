"""The schema of job files, as editors have it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from schemas.json_schema import problems
from schemas.option_pages import job_schema

from unloader.request.option import of_scope
from unloader.request.options import options_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "job.schema.json"
BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)


def wrong(text: str) -> list[str]:
    """Return what of a job file is not as the schema says."""
    page = json.loads(PAGE.read_text("utf-8"))
    return problems(tomllib.loads(text), page, page["definitions"])


def test_the_page_is_made_from_the_options() -> None:
    """Make it again after a change: option_pages.py job > docs/job.schema.json."""
    assert PAGE.read_text("utf-8") == job_schema()


def test_every_job_file_of_docs_and_examples_is_as_the_schema_says() -> None:
    """What we show to people is what their editors take."""
    shown = [path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.toml")]
    shown = [text for text in shown if "[build-system]" not in text]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text("utf-8"))]
    shown += [block for block in blocks if "[build-system]" not in block]
    assert len(shown) > 1
    assert [found for text in shown for found in wrong(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "tabel = 'A'",
        "format = 'pdf'",
        "file-size = '5 parsecs'",
        "retries = -1",
        "header = 'yes'",
        "columns = [1]",
        "include = 1",
        "[table]\ntable = 'A'",
        "[[table]]\nparallelism = 2",
        "[[route]]\npartition = 'P'",
        "[[route]]\nname = 'a b'",
        "[[table]]\ntable = 'A'\n[[table.route]]\nforma = 'csv'",
        "[defaults]\nsource = 'duckdb:///x.db'",
    ],
)
def test_what_the_program_refuses_the_schema_refuses(text: str) -> None:
    """Unknown keys, wrong kinds of values, words and forms, and keys where they do not belong."""
    assert wrong(text)


@pytest.mark.parametrize(
    "text",
    [
        "shown-variables = ['FORMAT', 'N', 'SIZE']\nformat = '${FORMAT:-csv}'\nretries = '${N}'\nfile-size = '${SIZE}'",
        "file-size = 0\nfetch-memory = '1.5 GiB'\nretry-delay = '500ms'\nstall-timeout = 2.5",
        "width = {A = 20, B = '30'}\nnuma-nodes = [0, 1]\nnear = 'eth0'\ncompression = 'zstd:3'",
        "table = 'A'\nno-header = true\nto = ['/a', '/b']",
        "include = ['a.toml']\n[defaults]\nnull = '-'\n[[table]]\nquery = 'SELECT 1'\n"
        "[[table.route]]\nname = 'x'\nwhere = 'a > 1'\n[[route]]\nto = '/y'",
    ],
)
def test_what_the_program_takes_the_schema_takes(text: str) -> None:
    """Variables, sizes, lists, tables of widths, entries."""
    assert wrong(text) == []


def test_every_default_is_a_value_that_the_key_takes() -> None:
    """By the schema, and by the option itself."""
    page: dict[str, Any] = json.loads(PAGE.read_text("utf-8"))
    for option in of_scope(options_of("run"), "run"):
        key = page["definitions"][option.name]
        assert key["description"].startswith(option.help)
        if "default" in key:
            assert problems(key["default"], key, {}) == [], option.name
            option.kind.read(key["default"])
