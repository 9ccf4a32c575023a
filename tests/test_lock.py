"""The lock file: all that the project asks for, in one version each, and nothing else about it."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"([a-z0-9-]+)==([A-Za-z0-9.+!]+)")


def locked() -> dict[str, str]:
    """Return the versions by name; each line of the file is one, or a remark."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert None not in matches, "a line is neither NAME==VERSION nor a remark"
    return {match[1]: match[2] for match in matches if match}


def asked() -> list[Requirement]:
    """Return the requirements of the project and of all its extras."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    return [Requirement(line) for text in texts for line in text.splitlines() if line.strip()]


def test_every_requirement_is_locked_in_a_version_that_it_allows() -> None:
    """An extra that is added, or a bound that is raised, needs a new lock file."""
    versions = locked()
    wanted = [each for each in asked() if each.marker is None]
    assert len(wanted) > 20
    missing = [
        str(each)
        for each in wanted
        if not each.specifier.contains(
            versions.get(re.sub(r"[-_.]+", "-", each.name).lower(), "0"), prereleases=True
        )
    ]
    assert missing == [], "run .venv-test/bin/python tests/lock.py"


def test_it_names_no_place_to_install_from() -> None:
    """Where packages come from is decided by anyone who installs."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|^-|@", text, re.MULTILINE)
