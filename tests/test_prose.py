"""Plain English in the docs, the help and the messages: few habits that make a reader start again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = ("unloader", "writers", "numa", "partition_planner", "examples")
MOST_IN_1000_WORDS = 2
FEWEST_WORDS = 4
"""Shorter strings are names, keys and pieces of SQL."""

HABITS = {
    "a clause without a noun": r"those of|that of|those that|of which|in which case|as what"
    r"|all that (?:is|was)|what (?:is|was|are|were|has|had|comes|it|they|the)",
    "told and said for report, record, specify": r"(?:is|are|was|were) (?:told|said)"
    r"|tells? (?:of|that|how|what|whether|which)|told (?:of|by|how|what|to)"
    r"|says? (?:so|of|how|what|whether|which|that)|said (?:of|to)",
    "'is none', 'is no X'": r"(?:is|are|was|were) (?:none|no (?!longer|more)\w+)|has none",
    "stands and lies for is": r"(?:stands?|stood|lies|lay) (?:in|on|at|for|by|beside|behind|below"
    r"|above|still|there|between|under)",
    "nobody in particular": r"somebody|nobody|whoever|whatever|whichever",
    "by itself, at once, of its own, anew": r"by (?:itself|themselves)|at once"
    r"|of (?:its|their|our) own|anew",
    "gone on with, broken off": r"gone? on|goes on|went on|broken? off|breaks off|cut short"
    r"|(?:brought to|comes to) its end|begins anew",
    "behind and in front of for an order": r"behind (?:it|the|a|each|every|its)|in front",
    "so many and so long for a quantity": r"so (?:many|much|long|often)",
    "but for, others than": r"but for|others? than|all but|nothing but|no other",
}
"""What to avoid, and the words that show it."""
PATTERN = re.compile("|".join(rf"\b(?:{words})\b" for words in HABITS.values()), re.IGNORECASE)
REFERENCE = re.compile(
    r"(?:^|\. )(?:As (?:there|everywhere|above|the library|in `|`)|See `|Likewise|Do the same"
    r"|The same (?:as|for|in))",
    re.MULTILINE,
)
"""A reference in the place of a statement."""


def docs() -> Iterator[tuple[str, str]]:
    """Yield each line of the pages with its place, without examples."""
    for page in PAGES:
        is_example = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            is_example ^= line.startswith("```")
            if not is_example and not line.startswith("    "):
                yield f"{page.relative_to(ROOT)}:{number}", line


def strings() -> Iterator[tuple[str, str]]:
    """Yield each string of several words in the code with its place; docstrings are left out."""
    for path in sorted(each for room in ROOMS for each in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) not in statements and len(node.value.split()) >= FEWEST_WORDS:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


@pytest.mark.parametrize("texts", [docs, strings])
def test_the_docs_and_the_messages_have_few_such_habits(texts) -> None:
    """At most 2 in 1,000 words; the failure names each place."""
    words, found = 0, []
    for place, text in texts():
        words += len(text.split())
        hits = [*PATTERN.finditer(text), *REFERENCE.finditer(text)]
        found += [f"{place}: ...{text[max(0, hit.start() - 30) : hit.end() + 30]}" for hit in hits]
    assert words > 1000
    assert len(found) * 1000 <= MOST_IN_1000_WORDS * words, "\n".join(found)
