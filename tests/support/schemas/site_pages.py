"""Hooks of mkdocs: README.md is the first page, and links to other files of the clone become text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[3] / "README.md"


def on_files(files: Any, *, config: Any) -> Any:
    """Add README.md as the first page."""
    # mkdocs is an optional extra, and only mkdocs imports this module.
    from mkdocs.structure.files import File

    text = README.read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page without the links that lead out of docs/."""
    markdown = markdown.replace("](../README.md", "](index.md")
    out = r"\[([^\]]+)\]\((?:\.\./[^)]*|README\.ja\.md|CONTRIBUTING\.md)\)"
    return re.sub(out, r"\1", markdown)
