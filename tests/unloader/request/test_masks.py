"""The syntax of masks, of the places of their keys, and of assignments: accepted and refused."""

from __future__ import annotations

from typing import Any

import pytest

from unloader.request import value_types as kinds
from unloader.request.settings import parse_assignment, parse_key_place, parse_mask
from unloader.transforms.model import Step


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("A=hmac", Step(step="hmac", column="A")),
        (" A = hmac , length = 16,key=k ", Step(step="hmac", column="A", key="k", length=16)),
        ('"a=""b"=tokenize,form=uuid', Step(step="tokenize", column='a="b', form="uuid")),
        ("A=redact", Step(step="redact", column="A")),
        ('A=redact,value="x, ""y"""', Step(step="redact", column="A", value='x, "y"')),
        ("A=redact,value=", Step(step="redact", column="A", value="")),
        ("A=truncate,characters=3", Step(step="truncate", column="A", characters=3)),
        ("A=truncate-date,to=month", Step(step="truncate-date", column="A", to="month")),
        ("A=shift-date,by=B,days=9", Step(step="shift-date", column="A", by="B", days=9)),
        ("Ä b=ff1,others=keep", Step(step="ff1", column="Ä b", others="keep")),
    ],
)
def test_a_mask_is_read(text: str, mask: object) -> None:
    """Names as they are, blanks around words apart; values with commas in quotes."""
    assert parse_mask(text) == mask


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A", "NAME="),
        ("=hmac", "NAME="),
        ("A=", "has no value"),
        ("A=sha256", "'sha256'"),
        ("A=hmac=x", "does not begin with a method"),
        ("A=hmac,", "not METHOD"),
        ("A=hmac,length", "without a value"),
        ("A=hmac,length=1,length=2", "twice"),
        ("A=hmac,length=x", "whole number"),
        ("A=hmac,encoding=base32", "hex, base64"),
        ("A=hmac,column=B", "'column'"),
        ("A=hmac,hmac=B", "'hmac'"),
        ("A=shift-date,by=B", "days="),
        ('A=redact,value="open', "double quotes"),
    ],
)
def test_a_mask_that_is_none_is_refused(text: str, words: str) -> None:
    """The error has the fault and the known masks."""
    with pytest.raises(ValueError, match=words):
        parse_mask(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("file:/a b", ("", "file:/a b")),
        ("k-1=env:X", ("k-1", "env:X")),
        ("k=file:/a=b", ("k", "file:/a=b")),
    ],
)
def test_a_place_of_a_key_is_read(text: str, place: tuple[str, str]) -> None:
    """With or without the name of the key."""
    assert parse_key_place(text) == place


@pytest.mark.parametrize(
    "text", ["", "Zm9vYmFyYmF6Zm9vYmFyYmF6==", "k=Zm9v", "K=file:/a", "file: "]
)
def test_what_is_no_place_may_be_the_key_and_is_not_shown(text: str) -> None:
    """Neither in the message nor in its cause."""
    with pytest.raises(ValueError, match="not shown") as raised:
        parse_key_place(text)
    assert not text or text not in str(raised.value)


def test_a_name_in_quotes_may_have_any_character() -> None:
    """And the text after it is unchanged: SQL contains = and blanks."""
    assert parse_assignment('"a = ""b"""= x = 1 ') == ('a = "b"', " x = 1 ")
    assert parse_assignment("a = x=1") == ("a", " x=1")


@pytest.mark.parametrize(
    ("kind", "table", "items"),
    [
        (kinds.CASTS, {"A b": "int8", "c": "date"}, ('"A b"=int8', "c=date")),
        (kinds.CONSTANTS, {"A=B": 7}, ('"A=B"=7',)),
        (
            kinds.MASKS,
            {"A": "redact", "B": {"method": "redact", "value": 'a, "b"'}},
            ("A=redact", 'B=redact,value="a, ""b"""'),
        ),
        (kinds.KEY_PLACES, {"k": "env:X"}, ("k=env:X",)),
    ],
)
def test_a_table_of_a_job_file_is_the_same_items(
    kind: kinds.Kind, table: dict[str, Any], items: tuple[str, ...]
) -> None:
    """So that plan files and settings have one form."""
    assert kind.read(table) == items
    assert kind.read(items) == items
