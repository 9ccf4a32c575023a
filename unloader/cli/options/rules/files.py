"""Rules on how files are written: formats, sizes, names, encryption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unloader.cli.options.encryption import check_variables, has_parquet_key
from unloader.cli.options.rules.flags import flag
from unloader.errors import UsageError
from unloader.request.file_names import check_template
from unloader.request.job_options import TRANSFORMING
from unloader.request.option import Circumstance, Option, of_command
from unloader.request.options import every_option


def check_formats(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that each option is of the format."""
    for option in of_command(every_option(), "run"):
        if option.key in given and not option.knows(values["format"]):
            raise UsageError(
                f"--{option.name} does not apply to --format {values['format']}",
                f"leave it out, or use --format {option.formats[0]}",
            )


def check_fixed(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check what records of fixed width have and lack."""
    if not values["fixed"]:
        if "width" in given:
            raise UsageError(
                "--width does not apply without --fixed", "give --fixed, or leave --width out"
            )
        if values["eol"] == "":
            raise UsageError(
                "--eol is empty, and only records of fixed width have no end of line",
                "give it at least one character, or --fixed",
            )
        return
    for option in out_of_place("fixed", given):
        if values[option.key] not in (False, 0):
            raise UsageError(
                f"--{option.name} does not apply to --fixed: such records have no "
                f"{option.not_for['fixed']}",
                "leave one of the two out",
            )


def out_of_place(where: Circumstance, given: frozenset[str]) -> Iterator[Option]:
    """Yield the given options that do not apply somewhere."""
    for option in of_command(every_option(), "run"):
        if option.key in given and where in option.not_for:
            yield option


def check_file_sizes(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that sizes of files are asked for where there are several."""
    if values["file_per"] == "table" and values["file_size"] and "file_size" in given:
        raise UsageError(
            "--file-size does not apply to --file-per table, which is one file of any size",
            "leave one of the two out",
        )


def check_file_names(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that names of files tell the files apart."""
    template = values["file_name"]
    if template is None:
        return
    per_unit = values["file_per"] == "unit"
    check_template(template, per_unit=per_unit, parts=per_unit and bool(values["file_size"]))
    for field in () if per_unit else ("{unit}", "{partition}"):
        if field in template:
            raise UsageError(
                f"--file-name {template} names a work unit, and --file-per table has one file",
                f"leave {field} out",
            )


def check_transforms(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that changed values are not compared with those of the source."""
    changed = [flag(key) for key in TRANSFORMING if values.get(key)]
    if changed and values["verify"] == "source":
        raise UsageError(
            f"--verify source compares with the source's own columns, and {changed[0]} changes "
            "them",
            "use --verify full, which compares the files with the values to be written",
        )


def check_encryption(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Check that files are encrypted as their format is."""
    # Unlike other options, a variable that does not apply is not let pass here: what somebody
    # wants to be encrypted must not be written in the open.
    if "encrypt_to" not in values:
        return
    check_variables()
    text, keyed = values["format"] != "parquet", has_parquet_key(values["parquet_key_file"])
    if text and keyed and not values["encrypt_to"]:
        raise UsageError(
            "a Parquet key is given, and text is not encrypted with it",
            "give --encrypt-to as well, or --format parquet, or no key",
        )
    if not text and values["encrypt_to"] and not keyed:
        raise UsageError(
            "--encrypt-to is for text, and Parquet is encrypted with a key",
            "give --parquet-key-file as well, or leave --encrypt-to out",
        )
    if values["parquet_key_name"] is not None and not keyed:
        raise UsageError("--parquet-key-name needs a key", "give --parquet-key-file")
    if "decrypt_with" in given and values["decrypt_with"] and not values["encrypt_to"]:
        raise UsageError(
            "--decrypt-with needs an output of encrypted text",
            "give --encrypt-to, or leave --decrypt-with out",
        )
