"""What a manifest says of the options of a run: those that decided what was written."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from unloader.manifest.asked import EncryptionRecord, OptionsRecord
from unloader.model import ConcurrencyOptions, EncryptionOptions
from unloader.request.options.fields import recorded
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.options import every_option
from writers.codecs.libraries import codec_library
from writers.model import TextFormat


def options_record(run: ResolvedRun) -> OptionsRecord:
    """Return the options that decided what was written, by the names of the command line."""
    output, shape = run.output.options, run.output.spec("").format
    compression, choice = run.output.spec("").compression, run.output.choice
    name = "csv" if isinstance(shape, TextFormat) else "parquet"
    steps = None if run.output.transform is None else run.output.transform.options.steps
    found = recorded(every_option(), run.request)
    options = {
        **found,
        "to": output.destinations if output.others else output.destination,
        "format": name,
        "compression": compression,
        "compression_library": codec_library(name, compression),
        "compression_choice": choice,
        "parallelism": found["parallelism"] or 0,
        **_concurrency(run.request.concurrency, found),
        "dialect": shape,
        "encryption": _encryption(output.encryption),
        "transform": steps,
    }
    return convert(options, OptionsRecord)


def _concurrency(known: ConcurrencyOptions | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked of the number of workers."""
    if known is None:
        return {}
    slow = found["slow_parallelism"] if known.slow_between else None
    return {"adaptive": known.adaptive or None, "slow_parallelism": slow}


def _encryption(options: EncryptionOptions | None) -> EncryptionRecord | None:
    if options is None:
        return None
    return EncryptionRecord(
        method="parquet" if options.keyed else "age",
        recipients=options.recipients,
        key_name=options.key_name,
        key_proof=options.key_proof,
    )
