"""What is done to the rows of an output, from the options that say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unloader.errors import UsageError
from unloader.request.masks import parse_key_place, parse_mask
from unloader.request.settings import at_home, parse_assignment
from unloader.transforms.masking_keys import key_place
from unloader.transforms.model import (
    DEFAULT_KEY,
    CastColumn,
    ComputeColumn,
    ConstantColumn,
    KeepColumns,
    MaskingKey,
    RenameColumns,
    Step,
    Transform,
    TransformOptions,
)


def transform_of(values: Mapping[str, Any]) -> TransformOptions:
    """Return what is done to the rows: by the options in their order on the help page.

    Raises:
        UsageError: A key has two places, or a place is none.
        ConfigError: A key is nowhere.
    """
    steps = tuple(_steps(values))
    names = Transform(steps=steps).key_names
    return TransformOptions(
        steps=steps,
        keys=keys_of(values.get("mask_key") or (), names),
    )


def keys_of(items: Iterable[str], names: Iterable[str]) -> tuple[MaskingKey, ...]:
    """Return where keys are found.

    Args:
        items: What `--mask-key` says; of a key that no mask has nothing is looked for.
        names: Of the keys that masks have.

    Raises:
        UsageError: A key has two places, or a place is none.
        ConfigError: A key is nowhere.
    """
    places = _places(items)
    return tuple(key_place(name, places.get(name, "")) for name in names)


def given_keys(items: Iterable[str]) -> tuple[MaskingKey, ...]:
    """Return where the keys are found that `--mask-key` names.

    Raises:
        UsageError: A key has two places, or a place is none.
        ConfigError: There is no such credential.
    """
    return tuple(key_place(name, place) for name, place in _places(items).items())


def _places(items: Iterable[str]) -> dict[str, str]:
    """Return the places of keys by their names."""
    found: dict[str, str] = {}
    for name, place in map(parse_key_place, items):
        place = _expanded(place)
        if found.setdefault(name or DEFAULT_KEY, place) != place:
            raise UsageError(
                f"--mask-key names two places for the key {name or DEFAULT_KEY}",
                "give the keys names, such as --mask-key customers=file:PATH",
            )
    return found


def _steps(values: Mapping[str, Any]) -> Iterator[Step]:
    for name, text in _pairs(values, "expression"):
        yield ComputeColumn(compute=name, sql=text)
    for name, text in _pairs(values, "constant"):
        yield ConstantColumn(constant=name, value=text)
    for name, text in _pairs(values, "cast"):
        yield CastColumn(cast=name, to=text.strip())
    yield from map(parse_mask, values.get("mask") or ())
    renames = tuple((name, _plain(text.strip())) for name, text in _pairs(values, "rename"))
    if renames:
        yield RenameColumns(rename=renames)
    kept = values.get("output_columns")
    if kept:
        yield KeepColumns(keep=tuple(map(_plain, kept)))


def _pairs(values: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    return map(parse_assignment, values.get(key) or ())


def _plain(name: str) -> str:
    """Return a name without its quotes."""
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        return name[1:-1].replace('""', '"')
    return name


def _expanded(place: str) -> str:
    """Return a place with the home directory in it, which no shell has seen behind `file:`."""
    kind, _, path = place.partition(":")
    try:
        return f"file:{at_home(path)}" if kind == "file" else place
    except ValueError as error:
        raise UsageError(f"the file of --mask-key: {error}", "write the path in full") from None
