"""Options on what is done to rows between reading and writing: transforms and masks."""

from __future__ import annotations

from unloader.request.options.kinds import (
    CASTS,
    CONSTANTS,
    EXPRESSIONS,
    KEY_PLACES,
    MASKS,
    NAMES,
    RENAMES,
)
from unloader.request.options.option import Option

TRANSFORMS = "Transforms and masks"

_COMMANDS = ("codecs", "plan", "run", "preflight", "sweep")
"""Those that write rows anywhere, if only to measure it: none writes what is to be masked."""

TRANSFORMING = (
    Option(
        name="expression",
        scope="route",
        kind=EXPRESSIONS,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="changes",
        planned=True,
        help="Set a column to an expression of DuckDB's SQL over the row. A column that is not "
        "there is added behind the last. Repeated for more; each sees those before it.",
    ),
    Option(
        name="constant",
        scope="route",
        kind=CONSTANTS,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="changes",
        planned=True,
        help="Set a column to one text in every row; --cast gives it another type. Repeated for "
        "more.",
    ),
    Option(
        name="cast",
        scope="route",
        kind=CASTS,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="changes",
        planned=True,
        help="Give a column another type, such as int64, decimal(12,2), date, timestamp[us] or "
        "string. A value that the type does not hold exactly stops the run. Repeated for more.",
    ),
    Option(
        name="mask",
        scope="route",
        kind=MASKS,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="changes",
        planned=True,
        help="Mask a column by hmac, tokenize, redact, truncate, truncate-date, shift-date or ff1, "
        "such as EMAIL=hmac or 'CARD=ff1,others=keep'. Repeated for more.",
    ),
    Option(
        name="rename",
        scope="route",
        kind=RENAMES,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="changes",
        planned=True,
        help="Give a column another name in the files; all options above know it by its old one. "
        "Repeated for more.",
    ),
    Option(
        name="output-columns",
        scope="route",
        kind=NAMES,
        multiple=True,
        section=TRANSFORMS,
        commands=_COMMANDS,
        effect="selects",
        planned=True,
        help="Write only these columns, in this order, by their names in the files. Those that "
        "are left out can still be used by the options above. Separated by commas, or repeated.",
    ),
)
"""In the order in which they are done."""

MASK_KEY = Option(
    name="mask-key",
    scope="route",
    kind=KEY_PLACES,
    multiple=True,
    section=TRANSFORMS,
    commands=(*_COMMANDS, "resume"),
    effect="unrecorded",
    default_text="UNLOADER_MASKING_KEY_NAME, or the systemd credential unloader-masking-key-NAME",
    help="Where the key of masks is found: file:PATH, env:VARIABLE, keyring:SERVICE/USER or "
    "credential:NAME. With NAME= in front it is the key that a mask names by key=NAME; without it "
    "the key default, which masks use that name none. Repeated for more.",
)

OPTIONS = (*TRANSFORMING, MASK_KEY)
