"""The commands and the job file of docs/transforms.md work as the page describes."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path

import duckdb
import pytest
from processes import command

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "transforms.md").read_text("utf-8")
ENV = {"UNLOADER_MASKING_KEY_DEFAULT": base64.b64encode(bytes(range(32))).decode()}


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    with duckdb.connect(str(tmp_path / "data" / "shop.db")) as connection:
        connection.execute(
            "CREATE TABLE customers AS SELECT i AS id, 'p' || i || '@mail.example' AS email, "
            "4000000000000000 + i AS card, DATE '1970-01-01' + i::INT AS born FROM range(9) r(i)"
        )
    key = tmp_path / "mask.key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    key.chmod(0o600)
    tmp_path.chmod(0o700)
    page = PAGE.replace("/etc/unloader/mask.key", str(key))
    return page.replace("/extract/", f"{tmp_path}/out/").replace("/data/", f"{tmp_path}/data/")


def test_the_first_command_masks_three_columns(shop: str, tmp_path: Path) -> None:
    """As it is on the page."""
    block = re.search(r"^    (unloader run (?:.*\\\n)*.*)$", shop, re.MULTILINE)
    assert block is not None
    _, *arguments = shlex.split(block[1].replace("\\\n", " "))
    command.run(*arguments, env=ENV)
    head, first, *_ = (tmp_path / "out" / "customers" / "customers.0001.csv").read_text().split()
    assert head == "id,email_token,card,born,domain"
    assert re.fullmatch(r"0,[0-9a-f]{64},\d+,1970-01-01,mail\.example", first)


def test_the_job_file_is_whole(shop: str, tmp_path: Path) -> None:
    """With a source at its top it is checked, and runs."""
    block = re.search(r"```toml\n(.*?)```", shop, re.DOTALL)
    assert block is not None
    job = tmp_path / "job.toml"
    job.write_text(f'source = "duckdb://{tmp_path}/data/shop.db"\n{block[1]}', encoding="utf-8")
    assert "no problem" in command.run("check", str(job))
    command.run("run", str(job))
    written = (tmp_path / "out" / "tests" / "customers" / "customers.0001.csv").read_text()
    head, first, *_ = written.split()
    assert head == "id,email,card,year"
    assert re.fullmatch(r"0,[0-9a-f]{64},\d+,1970", first)
