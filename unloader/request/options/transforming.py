"""Options on transforms and masks: changes of rows between reading and writing."""

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

TRANSFORMS = "Transforms"

_MASK_KEY = (
    "unloader run duckdb:///data/sales.db --table ORDERS --to orders \\\n"
    "    --mask EMAIL=hmac --mask-key file:mask.key"
)

_COMMANDS = ("codecs", "plan", "run", "preflight", "sweep")
"""The commands that write rows, also to measure: none of them writes a clear value to be masked."""

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
        help=(
            "Set a column to an expression over the row, in the SQL of DuckDB. A new column is "
            "added after the last one. Repeat the option for more columns. An expression can "
            "also use the columns that earlier expressions have set."
        ),
        example="'TOTAL=AMOUNT * 1.19'",
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
        help="Set a column to one text in every row. --cast changes its type. Can be repeated.",
        example="SITE=berlin",
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
        help=(
            "Change the type of a column, such as int64, decimal(12,2), date, timestamp[us] or "
            "string. A value that the type cannot hold exactly stops the run. Can be repeated."
        ),
        example="'AMOUNT=decimal(12,2)'",
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
        help=(
            "Mask a column, such as EMAIL=hmac or 'CARD=ff1,others=keep'. Methods with their "
            "parameters: hmac (key, encoding, length), tokenize (key, form, domain), redact "
            "(value), truncate (characters), truncate-date (to), shift-date (by, days, key, "
            "domain), ff1 (key, alphabet, digits, others, tweak). Can be repeated."
        ),
        example="EMAIL=hmac",
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
        help=(
            "Change the name of a column in the files. All options above use the old name. Can be "
            "repeated."
        ),
        example="CUST=CUSTOMER_ID",
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
        help=(
            "Write only these columns, in this order, by their names in the files. The options "
            "above can still use the other columns. Separate several with commas, or repeat the "
            "option."
        ),
        example="ID,AMOUNT",
    ),
)
"""In the order in which they are applied."""

MASK_KEY = Option(
    name="mask-key",
    scope="route",
    kind=KEY_PLACES,
    multiple=True,
    section=TRANSFORMS,
    commands=(*_COMMANDS, "resume"),
    effect="unrecorded",
    default_text="UNLOADER_MASKING_KEY_NAME, or the systemd credential unloader-masking-key-NAME",
    help=(
        "Place of the key of masks: file:PATH, env:VARIABLE, keyring:SERVICE/USER or "
        "credential:NAME. NAME=PLACE is the key for masks with key=NAME. PLACE alone is the "
        "key for masks without key=. Can be repeated."
    ),
    example=_MASK_KEY,
)

OPTIONS = (*TRANSFORMING, MASK_KEY)
