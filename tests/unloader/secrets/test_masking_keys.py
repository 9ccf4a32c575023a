"""Keys of masks, transforms as data, and tokens of values from each source."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from masking.one_batch import OneBatch
from msgspec import ValidationError, convert
from msgspec.json import encode
from oracle.runs import Natives, Run, create
from oracle_server.database import Database
from oracle_server.model import Type
from oracle_server.server import OracleServer
from routes.runs import OneOutput, batches

from unloader.errors import ConfigError, UsageError
from unloader.redaction import redact, redact_forms
from unloader.secrets.keys import key_place, masking_key, masking_keys, with_proof
from unloader.secrets.secret_places import proof_of
from unloader.transforms.model import MaskingKey, Step, TransformOptions
from writers.model import TextFormat

if TYPE_CHECKING:
    from conftest import PostgresServer


KEY = bytes(range(100, 132))
CODED = base64.b64encode(KEY).decode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("UNLOADER_MASKING_KEY_CUSTOMERS", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return place


def test_a_key_is_found_in_every_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a variable, a credential, and the usual variable and credential."""
    (home / "key").write_text(CODED + "\n")
    assert masking_key(key_place("customers", f"file:{home}/key")) == KEY
    monkeypatch.setenv("OTHER", CODED)
    assert masking_key(key_place("customers", "env:OTHER")) == KEY
    with pytest.raises(ConfigError, match="UNLOADER_MASKING_KEY_CUSTOMERS"):
        key_place("customers")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(home))
    assert masking_key(key_place("customers", "credential:key")) == KEY
    (home / "unloader-masking-key-customers").write_text(CODED)
    assert masking_key(key_place("customers")) == KEY
    monkeypatch.setenv("UNLOADER_MASKING_KEY_CUSTOMERS", base64.b64encode(bytes(16)).decode())
    assert masking_keys([key_place("customers")]) == {"customers": bytes(16)}


def test_a_keyring_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`keyring:SERVICE/USER`, by the package `keyring` and a keyring in a file."""
    import keyring
    from keyrings.alt.file import PlaintextKeyring

    own = PlaintextKeyring()
    own.file_path = str(home / "ring")
    own.set_password("masks", "customers", CODED)
    before = keyring.get_keyring()
    keyring.set_keyring(own)
    try:
        assert masking_key(key_place("customers", "keyring:masks/customers")) == KEY
    finally:
        keyring.set_keyring(before)


def test_an_open_file_is_refused(home: Path) -> None:
    """As with passwords, if no directory keeps others out."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        path = Path(made, "key")
        path.write_text(CODED)
        path.chmod(0o644)
        with pytest.raises(ConfigError, match="chmod 600"):
            masking_key(key_place("customers", f"file:{path}"))


@pytest.mark.parametrize(
    "text", ["", "not base64!", CODED[:-5], base64.b64encode(b"short").decode()]
)
def test_what_is_no_key_is_refused_and_not_shown(home: Path, text: str) -> None:
    """The error has the key's name, and nothing of the file."""
    (home / "key").write_text(text)
    with pytest.raises(ConfigError, match="customers") as raised:
        masking_key(key_place("customers", f"file:{home}/key"))
    assert not text or text not in str(raised.value)


@pytest.mark.parametrize("place", [CODED, "file:", "env:a b", "keyring:x", "credential:a/b"])
def test_a_place_of_another_form_is_refused_and_not_shown(home: Path, place: str) -> None:
    """Who took the option for the key itself does not find the key in the error."""
    with pytest.raises(UsageError) as raised:
        key_place("customers", place)
    assert place == "file:" or place not in str(raised.value)
    with pytest.raises(UsageError, match="lower case") as raised:
        key_place(CODED)
    assert CODED not in str(raised.value)


def test_a_proof_knows_another_key(home: Path) -> None:
    """It is salted, holds nothing of the key, and a key that was replaced is an error."""
    path = home / "key"
    path.write_text(CODED)
    proved = with_proof(key_place("customers", f"file:{path}"))
    assert masking_key(proved) == KEY
    assert with_proof(proved) == proved
    assert proof_of(KEY) != proved.proof
    assert CODED not in repr(proved)
    assert KEY.hex() not in repr(proved)
    path.write_text(base64.b64encode(bytes(32)).decode())
    with pytest.raises(ConfigError, match="not the key that"):
        masking_key(proved)


def test_a_key_that_was_read_is_hidden(home: Path) -> None:
    """In every text that leaves the program."""
    (home / "key").write_text(CODED)
    masking_key(MaskingKey(name="customers", kind="file", place=str(home / "key")))
    assert CODED not in redact(f"it is {CODED}!")


EVERY_STEP = TransformOptions(
    steps=(
        Step(step="keep", columns=("a", 'b"')),
        Step(step="rename", names=(("a", "b"),)),
        Step(step="cast", column="a", type="int64"),
        Step(step="constant", column="a", value=None, type="date"),
        Step(step="compute", column="a", sql="b + 1"),
        Step(step="hmac", column="a", key="k", encoding="base64", length=20),
        Step(step="tokenize", column="a", key="other", form="uuid", domain="customer"),
        Step(step="redact", column="a", value="x"),
        Step(step="truncate", column="a", characters=3),
        Step(step="truncate-date", column="a", to="year"),
        Step(step="shift-date", column="a", by="b", key="k", days=30),
        Step(step="ff1", column="a", key="k", alphabet="digits-lower", tweak="t"),
    )
)


def test_a_transform_passes_the_filter_for_secrets_unchanged() -> None:
    """No field has a name after which a password would be looked for."""
    text = encode(EVERY_STEP).decode()
    assert redact_forms(text) == text


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"step": "hsah", "column": "A"}, "'hsah' - at `$.steps[0].step`"),
        ({"step": "hmac", "column": "A", "length": 8, "size": 9}, "unknown field `size`"),
        ({"column": "A"}, "missing required field `step`"),
        ({"step": "hmac"}, "hmac needs column=... - at `$.steps[0]`"),
        ({"step": "hmac", "column": "A", "days": 3}, "hmac has no days - at `$.steps[0]`"),
        ({"step": "truncate", "column": "A", "characters": 0}, "truncate needs characters=..."),
    ],
)
def test_an_unknown_field_is_an_error(step: dict[str, object], words: str) -> None:
    """A mask that is misspelt is never skipped."""
    with pytest.raises(ValidationError, match=re.escape(words)):
        convert({"steps": [step]}, TransformOptions)


KEYS = {"k": bytes(range(32))}
OUTPUTS = [OneOutput(text=None), OneOutput(text=TextFormat(), batches_only=True)]
NUMBERS: Natives = {
    "A": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0)),
    "B": ("NUMBER(10,2)", Type(name="NUMBER", precision=10, scale=2)),
    "C": ("NUMBER", Type(name="NUMBER")),
    "D": ("VARCHAR2(10)", Type(name="VARCHAR2", length=10)),
}


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Iterator[OracleServer]:
    """A server with one row of 42 in four types."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database) as running:
        create(running, NUMBERS, [(42, Decimal("42.00"), 42, "42")])
        yield running


def tokens(schema: pa.Schema, found: list[pa.RecordBatch]) -> set[Any]:
    """Return the tokens of all values of all columns."""
    steps = tuple(
        Step(step="tokenize", column=name, key="k", domain="customer") for name in schema.names
    )
    transformer = OneBatch(TransformOptions(steps=steps), schema, KEYS)
    masked = [transformer.one(batch) for batch in found]
    return {value for batch in masked for column in batch.columns for value in column.to_pylist()}


@pytest.mark.parametrize("output", OUTPUTS, ids=["parquet", "text"])
def test_42_has_one_token_in_every_database(
    tmp_path: Path, postgres: PostgresServer, oracle: OracleServer, output: OneOutput
) -> None:
    """In all types that numbers have there, for Parquet as for text."""
    with duckdb.connect(str(tmp_path / "d.db")) as file:
        file.execute("CREATE TABLE t (x INTEGER)")
    queries = {
        postgres.url: "SELECT 42::int2 a, 42::int8 b, 42::numeric c, 42.00::numeric(60,2) d,"
        " 42.0::numeric(9,1) e, '42'::text f",
        f"duckdb://{tmp_path}/d.db": "SELECT 42::UTINYINT a, 42::HUGEINT b, 42.00::DECIMAL(9,2) c,"
        " '42' d, 42::BIGINT e",
    }
    seen: set[Any] = set()
    for url, query in queries.items():
        with batches(url, query, output) as (schema, found):
            seen |= tokens(schema, list(found))
    run = Run(oracle, NUMBERS, target=output)
    seen |= tokens(run.schema, run.table().to_batches())
    assert len(seen) == 1
    assert None not in seen
