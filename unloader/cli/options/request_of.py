"""From the values of options to the request: one table, several outputs, or several tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import astuple, replace

from unloader.cli.options import rules
from unloader.cli.options.command import (
    GIVEN,
    entry_context,
    given,
    on_command_line,
    settings_of,
    shown_value,
)
from unloader.cli.options.rules import has_parquet_key, is_of_several, table_names
from unloader.cli.signals import seen_while_waiting
from unloader.cli.streams import Invocation
from unloader.errors import UnloaderError, UsageError
from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    RetryOptions,
    Route,
    SeatOptions,
    SecretReference,
    Selection,
    SessionOptions,
    Setting,
    SourceSpec,
    TablesOptions,
    ValueOptions,
)
from unloader.redaction import (
    HIDDEN,
    PASSWORD_VARIABLE,
    holds_secret,
    holds_sql_password,
    known_openly,
    learn,
)
from unloader.request.locations import keyring_reference, parse_source, secret_reference
from unloader.request.name_templates import DEFAULT_TABLE_TEMPLATE
from unloader.request.names import parse_table
from unloader.request.option import of_scope
from unloader.request.options import fields_of, options_of
from unloader.request.settings import (
    ADAPTIVE,
    RouteText,
    at_home,
    parse_assignment,
    parse_key_place,
    parse_mask,
    parse_width,
    plain_name,
)
from unloader.resolve.places import directories_of, in_directory_of_part
from unloader.secrets.keys import identity_reference, key_place, parquet_key_reference
from unloader.secrets.secret_places import check_private, credential
from unloader.selection.asked import AskedTables, TablesRequest
from unloader.sources.registry import KINDS, unknown_to, url_form
from unloader.storage.place_names import KEPT, destination_kind, is_kept, is_one_stream
from unloader.transforms.model import DEFAULT_KEY, MaskingKey, Step, TransformOptions
from writers import registry
from writers.encryption.age import IDENTITY, RECIPIENT
from writers.errors import FormatError
from writers.files.checksums import open_digest
from writers.files.regular import read_named
from writers.model import Compression, ParquetFormat, TextFormat
from writers.parquet.options import check_options
from writers.text import dialects

if TYPE_CHECKING:
    from unloader.request.job_files import Entry, Given, JobFile

_NO_DELIMITED_TEXT = {
    "delimiter": "",
    "enclosure": "",
    "enclose": "none",
    "escape": "none",
    "header": False,
    "trailing_delimiter": False,
    "record_length_digits": 0,
}
"""The marks of a dialect in records of fixed width."""


def request_of(
    values: Mapping[str, Any], source: SourceSpec, settings: tuple[Setting, ...] = ()
) -> Request:
    """Return the request that the options make; the rules between them hold already.

    Raises:
        UsageError: The table's name cannot be read, the format contradicts itself, or a value holds
            the password of the source.
    """
    # Values of a route or of a [[table]] were not checked before.
    refuse_repeated(source.location, values)
    places = tuple(values.get("to") or ("",))
    is_parquet, stream = values["format"] == "parquet", is_one_stream(destination_kind(places))
    fixed = None
    if values["fixed"] and not is_parquet:
        fixed = tuple(map(parse_width, values["width"] or ()))

    names = table_names(values)
    # Which of several tables is decided when the source has listed them.
    table = parse_table(names[0]) if len(names) == 1 and not is_of_several(values) else None
    rows = {**fields_of(Selection, values), "table": table}
    if "limit_rows" not in values:
        # The --sample of a command that measures is another option.
        rows.pop("sample", None)
    selection = Selection(**rows)

    output = _output(values, places, fixed=fixed is not None)
    routes: tuple[Route, ...] | None = None
    if output.filter is not None:
        # A filter may look at any column there is.
        columns, exclude = selection.columns, selection.exclude
        only = Route(name="", output=output, columns=columns, exclude=exclude, fixed=fixed)
        selection, fixed, routes = replace(selection, columns=(), exclude=()), None, (only,)

    concurrency, cluster = fields_of(ConcurrencyOptions, values), fields_of(ClusterOptions, values)
    if values["parallelism"] == ADAPTIVE and not stream:
        concurrency["adaptive"] = True
    whole = fields_of(Request, values)
    if stream:
        whole["parallelism"] = 1
        if is_parquet and values["split"] == "auto":
            whole["split"] = "none"  # A Parquet file is written as one unit.
    if values["verify"] == "full" and not is_kept(places):
        # From a variable set for all jobs; an option of this job is refused.
        whole["verify"] = "count"
    asked = Request(
        source=source,
        selection=selection,
        output=output,
        seats=SeatOptions(**fields_of(SeatOptions, values)),
        retry=RetryOptions(**fields_of(RetryOptions, values)),
        values=ValueOptions(**fields_of(ValueOptions, values)),
        fixed=fixed,
        concurrency=ConcurrencyOptions(**concurrency) if concurrency else None,
        cluster=ClusterOptions(**cluster) if cluster else None,
        routes=routes,
        settings=settings,
        **whole,
    )
    return asked if selection.part is None else in_directory_of_part(asked)


def _output(values: Mapping[str, Any], places: tuple[str, ...], *, fixed: bool) -> OutputOptions:
    """Return where the rows go and how they are written.

    The layout of text is a dialect, which single options override.
    """
    layout: TextFormat | ParquetFormat
    if is_parquet := values["format"] == "parquet":
        layout = ParquetFormat(**fields_of(ParquetFormat, values))
    else:
        given = fields_of(TextFormat, values)
        if values["timestamp_format"] is not None or values["timestamp_tz_format"] is not None:
            # The user's format decides which digits are left out.
            given["fractions"] = "mask"
        if values["dialect"] == "mysql" and values["encoding"] == "iso8859-1":
            # MySQL's latin1 is this code page.
            given["encoding"] = "cp1252"
        given.update(_NO_DELIMITED_TEXT if fixed else {})
        layout = replace(dialects.dialect(values["dialect"]), **given)
    codec: Any = "zstd" if is_parquet else "none"
    compression = values["compression"] or Compression(codec=codec)

    found = fields_of(OutputOptions, values)
    per_table, stream = values["file_per"] == "table", not is_kept(places)
    if stream:
        found["file_per"] = "unit"
    if stream or per_table:
        found["file_size_bytes"] = 0
    if per_table and not values["file_name"]:
        found["file_name"] = DEFAULT_TABLE_TEMPLATE
    options = OutputOptions(
        destination=places[0],
        others=places[1:],
        format=layout,
        compression=compression,
        encryption=_encryption(values) if values.get("encrypt_to") or is_parquet else None,
        transform=_transform(values) if any(map(values.get, rules.TRANSFORMING)) else None,
        **found,
    )
    try:
        if isinstance(compression, Compression):
            registry.check(layout, compression)
        open_digest(options.checksum)
        if isinstance(layout, ParquetFormat):
            check_options(layout)
        else:
            # The fields of records of fixed width are decided when the columns are known.
            (dialects.check_fixed if fixed else dialects.check)(layout)
        if options.encoder == "native":
            registry.check_native(layout)
    except FormatError as error:
        # The options alone are wrong.
        raise UsageError(error.message, error.hint) from error
    return options


def _transform(values: Mapping[str, Any]) -> TransformOptions:
    """Return the steps that change the rows, in the order of the options on the help page."""
    pairs = {
        key: [*map(parse_assignment, values.get(key) or ())]
        for key in ("expression", "constant", "cast", "rename")
    }
    steps: list[Step] = [
        *(Step(step="compute", column=name, sql=text) for name, text in pairs["expression"]),
        *(Step(step="constant", column=name, value=text) for name, text in pairs["constant"]),
        *(Step(step="cast", column=name, type=text.strip()) for name, text in pairs["cast"]),
        *map(parse_mask, values.get("mask") or ()),
    ]
    renames = tuple((name, plain_name(text.strip())) for name, text in pairs["rename"])
    if renames:
        steps.append(Step(step="rename", names=renames))
    if kept := values.get("output_columns"):
        steps.append(Step(step="keep", columns=tuple(map(plain_name, kept))))
    found = TransformOptions(steps=tuple(steps))
    known = {each.name: each for each in given_keys(values.get("mask_key") or ())}
    keys = (known.get(name) or key_place(name, "") for name in found.key_names)
    return replace(found, keys=tuple(keys))


def given_keys(items: Iterable[str]) -> tuple[MaskingKey, ...]:
    """Return where the keys are found that `--mask-key` names, each in one place."""
    found: dict[str, str] = {}
    for name, place in map(parse_key_place, items):
        kind, _, path = place.partition(":")
        try:
            # No shell has seen the home directory after `file:`.
            place = f"file:{at_home(path)}" if kind == "file" else place
        except ValueError as error:
            raise UsageError(f"the file of --mask-key: {error}", "write the path in full") from None
        if found.setdefault(name or DEFAULT_KEY, place) != place:
            raise UsageError(
                f"--mask-key names two places for the key {name or DEFAULT_KEY}",
                "give the keys names, such as --mask-key customers=file:PATH",
            )
    return tuple(key_place(name, place) for name, place in found.items())


def _encryption(values: Mapping[str, Any]) -> EncryptionOptions | None:
    """Return how the files are encrypted; None if they are not. The rules between options hold."""
    if "encrypt_to" not in values:
        return None  # A command that writes no rows.
    if values["format"] == "parquet":
        if not has_parquet_key(values["parquet_key_file"]):
            return None
        name = values["parquet_key_name"] or ""
        return EncryptionOptions(key=keys_at(values).key, key_name=name)
    form = "give a public key, which begins with age1, or @FILE"
    found: dict[str, None] = {}
    for written in values["encrypt_to"]:
        texts = [written]
        if written.startswith("@"):
            path = Path(written[1:])
            try:
                lines = [line.strip() for line in read_named(path).decode().splitlines()]
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise UsageError(
                    f"the file of --encrypt-to cannot be read: {reason}", "check its path"
                ) from None
            texts = [line for line in lines if line and not line.startswith("#")]
            if not texts:
                raise UsageError(f"the file {path} of --encrypt-to names no recipient", form)
        for text in map(str.strip, texts):
            if text.upper().startswith(IDENTITY):
                learn(text)
                raise UsageError(
                    "--encrypt-to has a private key, which every user of this machine may have "
                    "seen",
                    "give the public key, which `age-keygen -y FILE` shows, and make a new "
                    "private one",
                )
            if not text.startswith(RECIPIENT):
                raise UsageError(
                    "a value of --encrypt-to is not a public key of age, and is not shown", form
                )
            found[text] = None
    if not found:
        return None
    return EncryptionOptions(recipients=tuple(found), identity=keys_at(values).identity)


def keys_at(values: Mapping[str, Any]) -> EncryptionOptions:
    """Return where the keys of files that are encrypted already are found, if anywhere."""
    key, identity = (
        None if values[name] is None else Path(values[name])
        for name in ("parquet_key_file", "decrypt_with")
    )
    return EncryptionOptions(key=parquet_key_reference(key), identity=identity_reference(identity))


_NEVER_SHOWN = ("session_sql", "on_success", "on_failure")
"""Options in no log and no manifest: a statement may need a password, a command a token."""


def refuse_repeated(location: str, values: Mapping[str, Any]) -> None:
    """Raise UsageError for a value with a secret, which would go into the manifest and the plan.

    Hiding it there would not do: a condition with `***` in it means other rows.
    """
    for name, value in (("the source URL", location), *values.items()):
        if name not in _NEVER_SHOWN and any(map(holds_secret, _texts(value))):
            what = name if name == "the source URL" else "--" + name.replace("_", "-")
            raise UsageError(
                f"{what} holds the password of the source, or another secret that is in a file or "
                "a variable of the environment; it would be shown and recorded",
                "take it out; if it is there by chance, change the secret",
            )


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value, such as the pairs of a step or a route."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        yield from _texts(tuple(value.values()))
    elif isinstance(value, Struct):
        yield from _texts(astuple(value))


_PLACES = ("password_file", "password_keyring", "password_credential", "password_prompt")


def connect_to(url: str, values: Mapping[str, Any], given: frozenset[str]) -> SourceSpec:
    """Return the source of a URL with its password's place, asking for it where that is wanted.

    Raises:
        UsageError: The URL cannot be read or holds a password. The source does not know an option,
            an option repeats the password, or the prompt has no terminal.
        ConfigError: No such source, or the password's place is missing or cannot be read.
    """
    spec = parse_source(url, KINDS, url_form, _password_file(values), values["password_keyring"])
    for name in sorted(given & unknown_to(spec.kind)):
        flag = name.replace("_", "-")
        raise UsageError(f"--{flag} does not apply to {spec.kind} sources", "leave it out")
    if values["password_prompt"]:
        _ask(spec.location)
        spec = parse_source(url, KINDS, url_form)
    for name in table_names(values):
        known_openly(re.split(r'[."]+', name))
    refuse_repeated(spec.location, values)
    return replace(spec, session=SessionOptions(**fields_of(SessionOptions, values)))


def secret_of(source: SourceSpec, values: Mapping[str, Any]) -> SecretReference | None:
    """Return the place of the password of a run's source; None if no place is given."""
    path = _password_file(values)
    if values["password_prompt"]:
        _ask(source.location)
    if values["password_keyring"] is not None:
        return keyring_reference(values["password_keyring"], source.location)
    found = secret_reference(path)
    return None if found.kind == "none" else found


def _password_file(values: Mapping[str, Any]) -> Path | None:
    given = ["--" + key.replace("_", "-") for key in _PLACES if values.get(key)]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other", rules.ONE)
    if values["password_credential"] is not None:
        return credential(values["password_credential"])
    return None if values["password_file"] is None else Path(values["password_file"])


def _ask(whom: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "--password-prompt needs a terminal, and standard input is not one",
            f"set {PASSWORD_VARIABLE}, or use --password-file",
        )
    with seen_while_waiting():
        answer = click.prompt(f"Password for {whom}", hide_input=True, err=True)
    # The workers are other processes, and read the variable of the reference.
    os.environ[PASSWORD_VARIABLE] = answer


_ON_COMMAND_LINE = "--route"


def asked_request(context: click.Context, url: str, values: Mapping[str, Any]) -> Request:
    """Return the request of the options and the routes, after the rules between them."""
    entries = routes_of(context, values)
    if entries:
        request = _request_of_routes(context, url, values, entries)
    else:
        rules.validate(values, given(context))
        source = connect_to(url, values, given(context))
        request = request_of(values, source, settings_of(context, source.kind))
    if request.routes is not None and request.verify == "source":
        raise UsageError(
            "--verify source compares one output without a filter", "use --verify full"
        )
    return request


def _request_of_routes(
    context: click.Context, url: str, values: Mapping[str, Any], entries: Sequence[Entry]
) -> Request:
    names = [each.name or str(each.number) for each in entries]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two routes have the name {name}", "give each its own name")
    source: SourceSpec | None = None
    requests, routes = [], []
    for name, entry in zip(names, entries, strict=True):
        own, set_here, settings = _of_route(context, values, entry)
        try:
            places: tuple[str, ...] = own.get("to") or ()
            if not places and "to" in own:
                raise UsageError("it has no destination", "set the key 'to'")
            if len(entries) > 1 and destination_kind(places) not in (*KEPT, "null"):
                raise UsageError(
                    f"it goes to {', '.join(places)}, and several routes need directories",
                    "give it a directory, or unload it in a separate run",
                )
            rules.validate(own, set_here)
            source = source or connect_to(url, values, given(context))
            asked = request_of(own, source, settings_of(context, source.kind))
        except UnloaderError as error:
            raise type(error)(f"route {name}: {error.message}", error.hint) from error
        (only,) = asked.of_outputs()
        requests.append(asked)
        routes.append(
            Route(
                name=name,
                output=asked.output,
                columns=only.selection.columns,
                exclude=only.selection.exclude,
                fixed=only.fixed,
                settings=settings,
            )
        )
    first = requests[0]
    if any(each.selection.where != first.selection.where for each in requests):
        raise UsageError(
            "routes have different values of where, and the database evaluates where once for all",
            "write the condition of each route as its filter",
        )
    if len(routes) == 1 and first.output.filter is None:
        return first
    selection = replace(first.selection, columns=(), exclude=())
    return replace(first, selection=selection, routes=tuple(routes), fixed=None)


def routes_of(context: click.Context, values: Mapping[str, Any]) -> Sequence[Entry]:
    """Return the routes of the command line, or else of the job file."""
    written = values.get("route")
    if not written:
        found: Sequence[Entry] = context.obj.routes
        return found
    if context.obj.planned:
        raise UsageError(
            f"--route cannot change the finished plan {context.obj.job_file}",
            "make a new plan with --route, or leave it out",
        )
    return routes_at(_ON_COMMAND_LINE, written)


def routes_at(path: str, routes: Iterable[RouteText]) -> list[Entry]:
    from unloader.request.job_files import Entry, Given, Place

    place = Place(path=path)
    return [
        Entry(
            kind="route",
            number=number,
            name=name,
            place=place,
            values=tuple(Given(key=key, value=value, place=place) for key, value in pairs),
        )
        for number, (name, pairs) in enumerate(routes, 1)
    ]


def _of_route(
    context: click.Context, values: Mapping[str, Any], entry: Entry
) -> tuple[dict[str, Any], frozenset[str], tuple[Setting, ...]]:
    """Return all options for a route, the names of the options that it sets, and its settings.

    The keys above the routes are defaults for each route: they are ignored where they do not
    apply. The command line counts more than a route of a job file.
    """
    options = {each.key: each for each in of_scope(options_of("run"), "route")}
    here = entry.place.path == _ON_COMMAND_LINE
    over = frozenset() if here else on_command_line(context)
    file = f"{'plan' if context.obj.planned else 'job'} file {entry.place.path}"
    origin = f"route {entry.name or entry.number}, {'command line' if here else file}"
    own, settings = dict[str, Any](), []
    for each in entry.values:
        option = options.get(each.key)
        if option is None:
            name = each.key.replace("_", "-")
            near = get_close_matches(name, [known.name for known in options.values()], 1, 0.5)
            raise UsageError(
                f"route {entry.name}: {name} is not an option of a route",
                f"did you mean {near[0]}?"
                if near
                else f"give it outside of the route, as --{name}",
            )
        if each.key not in over:
            own[each.key] = each.meaning(option)
        if option.effect != "unrecorded":
            value = shown_value(option, each.value)
            settings.append(
                Setting(name=option.name, value=value, origin=origin, effect=option.effect)
            )
    none = {"columns": (), "exclude": ()} if "columns" in own or "exclude" in own else {}
    above = {key for key in given(context) if key not in options}
    return {**values, **none, **own}, frozenset({*own, *above}), tuple(settings)


def tables_request(
    context: click.Context, url: str, job: JobFile | None, values: Mapping[str, Any]
) -> TablesRequest:
    """Return the run over several tables that options and a job file ask for.

    `values` are the options of the first entry. Errors name the entry.
    """
    entries = [_asked(context, url, values)] if job is None else [*_entries(context, job, url)]
    first: dict[str, str] = {}
    outputs = [(each, one.output) for each in entries for one in each.request.of_outputs()]
    for entry, output in outputs:
        for place in directories_of(output):
            if "{table}" not in place and first.setdefault(place, entry.label) != entry.label:
                raise UsageError(
                    f"{first[place]} and {entry.label} go to the same directory, {place}",
                    "add {table} to it, or give each entry a separate to",
                )
    if len({destination_kind(output.destinations) for _, output in outputs}) > 1:
        raise UsageError(
            "some tables go to directories, and other tables are dropped",
            "give all tables the same --to",
        )
    # Settings of the first entry alone are not settings of the run.
    of_entry = {
        known.key
        for known in context.obj.job_values.values()
        if known.entry and context.get_parameter_source(known.key) is GIVEN[1]
    }
    whole = settings_of(context, entries[0].request.source.kind)
    options = TablesOptions(
        destination=common_place(job, entries),
        overwrite=values.get("overwrite", False),
        publish=values["publish"],
        on_failure=values["on_table_failure"],
        settings=tuple(each for each in whole if each.name.replace("-", "_") not in of_entry),
    )
    return TablesRequest(entries=tuple(entries), options=options)


def _asked(
    context: click.Context, url: str, values: Mapping[str, Any], label: str = ""
) -> AskedTables:
    request, choice = asked_request(context, url, values), rules.choice_of(values)
    request = replace(request, selection=replace(request.selection, table=None))
    return AskedTables(request=request, choice=choice, label=label)


def _entries(context: click.Context, job: JobFile, url: str) -> Iterator[AskedTables]:
    """Yield the entries of a job file, each with the options of the command line."""
    from unloader.request.job_files import SUBJECT

    for key in SUBJECT:
        place = context.get_parameter_source(key)
        if place in (click.core.ParameterSource.ENVIRONMENT, GIVEN[0]):
            raise UsageError(
                f"--{key.replace('_', '-')} does not apply to the {len(job.tables)} [[table]] "
                f"entries of {job.path}, which name the tables",
                "leave it out; --exclude-table excludes some of their tables",
            )
    for number, table in enumerate(job.tables):
        try:
            routes = job.routes_of(table)
            values = job.values_of(table, job.only_route(table))
            check_statements(values)
            several = routes if len(routes) > 1 else ()
            known = Invocation(job_file=job.path, job_values=values, routes=several)
            inner = entry_context(context, known)
            inner.params[rules.ONE_OF_SEVERAL] = True
            if number:
                # It was asked for already.
                inner.params["password_prompt"] = False
            if context.command.name == "run" and not (inner.params["to"] or several):
                raise UsageError("the output has no destination", "set the key 'to'")
            yield _asked(inner, url, inner.params, table.label)
        except UnloaderError as error:
            where = f"{table.place}: {table.label}"
            raise type(error)(f"{where}: {error.message}", error.hint) from error


def common_place(job: JobFile | None, entries: Sequence[AskedTables]) -> str:
    """Return the directory of the manifest of all, with fields; empty where nothing says it."""
    places = {entry.request.output.destination for entry in entries}
    if len(places) == 1:
        return places.pop()
    top = None if job is None else job.values_of().get("to")
    option = next(each for each in options_of("run") if each.key == "to")
    return "" if top is None else str(top.meaning(option)[0])


def check_statements(values: Mapping[str, Given]) -> None:
    """Check that a job file with a password in a statement is private to its user, or ConfigError.

    Such as SET ROLE ... IDENTIFIED BY ...
    """
    from unloader.request.job_files import FORM

    given = values.get("session_sql")
    # A password that is in a variable is not in the file.
    written = [] if given is None else given.written
    texts = written if isinstance(written, list) else [written]
    if given is not None and any(holds_sql_password(FORM.sub(HIDDEN, str(each))) for each in texts):
        check_private(Path(given.place.path), "job file, which holds a password,")
