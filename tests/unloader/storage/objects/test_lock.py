"""The lock of a place in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server
from processes import command
from publications.storage_promises import write_staged

from unloader.errors import OutputFailed
from unloader.storage.objects import object_lock as lock
from unloader.storage.objects.object_lock import ObjectHolder
from unloader.storage.objects.object_staging import Room
from unloader.storage.objects.object_storage import ObjectRun, ObjectStorage
from unloader.storage.storage_protocol import MANIFEST, Claim, Index, Move
from writers.objects.bucket import Bucket


def claim(place: str, run_id: str, *, overwrite: bool = True) -> Claim:
    """Return what a run asks for."""

    def read_index(data: bytes, home: str) -> Index:
        return Index(run_id=json.loads(data)["run_id"], places=(home,), files=((0, "a.csv"),))

    return Claim(places=(place,), run_id=run_id, overwrite=overwrite, read_index=read_index)


def staged(run: ObjectRun, text: str) -> list[Move]:
    """Stage a file; return how it gets its final name."""
    write_staged(run, 0, "1-a1.csv.part", text.encode())
    return [Move(0, "1-a1.csv.part", "a.csv")]


def manifest(run_id: str) -> bytes:
    """Return a manifest, as far as a storage reads it."""
    return json.dumps({"run_id": run_id}).encode()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all processes as processes of other machines, and watch them for two seconds."""
    real = ObjectHolder.lives
    monkeypatch.setattr(
        ObjectHolder, "lives", lambda self: None if real(self) else real(self), raising=True
    )
    monkeypatch.setattr(lock, "WATCH_SECONDS", 2.0)


@pytest.mark.usefixtures("elsewhere")
def test_a_run_that_gives_signs_of_life_is_left_alone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is renewed while it is watched."""
    monkeypatch.setattr("unloader.storage.objects.object_storage.BEAT_SECONDS", 0.2)
    place = s3.place("lock/alive")
    with ObjectStorage().take(claim(place, "one")) as run:
        with pytest.raises(OutputFailed, match="another run is writing"):
            ObjectStorage().take(claim(place, "two"))
        run.check()
        run.abandon(None)
    assert s3.objects("lock/alive/") == {}


@pytest.mark.usefixtures("elsewhere")
def test_a_run_that_was_cut_off_cannot_publish(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back when another one has its place, which is then the only one that publishes."""
    place = s3.place("lock/cut")
    monkeypatch.setattr("unloader.storage.objects.object_storage.BEAT_SECONDS", 3600.0)
    lost = ObjectStorage().take(claim(place, "lost"))
    moves = staged(lost, "of the lost one")
    with ObjectStorage().take(claim(place, "next")) as following:
        assert any("lost" in text for text in following.notices)
        others = staged(following, "of the next one")
        with pytest.raises((OutputFailed, Exception)) as refused:
            lost.commit(moves, manifest("lost"))
        assert "a.csv" not in s3.objects("lock/cut/"), refused.value
        late = staged(lost, "late")
        with pytest.raises(OutputFailed, match="another process has taken"):
            lost.commit(late, manifest("lost"))
        with pytest.raises(OutputFailed, match="another process has taken"):
            lost.check()
        lost.abandon(None)
        lost.close()
        following.commit(others, manifest("next"))
    assert s3.objects("lock/cut/") == {"a.csv": b"of the next one", MANIFEST: manifest("next")}


def test_a_store_that_ignores_conditions_is_refused(s3: S3Server) -> None:
    """Two runs could not be kept apart there; nothing is left."""
    lock._obeying.clear()
    with (
        faulty(s3, Rule("put", "unconditional", 10**6)) as (ignoring, _),
        pytest.raises(OutputFailed, match="ignores If-None-Match"),
    ):
        ObjectStorage().take(claim(ignoring.place("lock/ignoring"), "one"))
    assert s3.objects("lock/ignoring/") == {}


def test_a_damaged_lock_is_told(s3: S3Server) -> None:
    """It is not taken over."""
    s3.client().put_object(Bucket=s3.bucket, Key="lock/damaged/_run/lock.json", Body=b"{")
    with pytest.raises(OutputFailed, match="is damaged"):
        ObjectStorage().take(claim(s3.place("lock/damaged"), "one"))


def test_another_manifest_that_came_meanwhile_is_not_replaced(s3: S3Server) -> None:
    """The user did not agree to replace it."""
    place = s3.place("lock/meanwhile")
    with ObjectStorage().take(claim(place, "one")) as run:
        moves = staged(run, "mine")
        s3.client().put_object(
            Bucket=s3.bucket, Key=f"lock/meanwhile/{MANIFEST}", Body=manifest("other")
        )
        with pytest.raises(OutputFailed, match="was published into"):
            run.commit(moves, manifest("one"))
        run.abandon(None)
    assert s3.objects("lock/meanwhile/") == {MANIFEST: manifest("other")}


def dead_publication(s3: S3Server, key: str, **changes: object) -> str:
    """Leave a run that died while it was published, with a changed record."""
    place = s3.place(key)
    with ObjectStorage().take(claim(place, "dead")) as run:
        moves = staged(run, "mine")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unloader.storage.objects.object_storage.carry_out", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.commit(moves, manifest("dead"))
    (name,) = [name for name in s3.objects(f"{key}/") if name.endswith("publication.json")]
    record = json.loads(s3.objects(f"{key}/")[name]) | changes
    data = json.dumps(record).encode()
    s3.client().put_object(Bucket=s3.bucket, Key=f"{key}/{name}", Body=data)
    return place


@pytest.mark.parametrize("what", ["final", "replaced", *also(OTHER_ROUTES, "staged", "places")])
def test_a_record_that_was_tampered_with_does_not_reach_out(s3: S3Server, what: str) -> None:
    """Who may write into one prefix does not make others copy, replace or remove elsewhere."""
    key = f"lock/tampered-{what}"
    s3.client().put_object(Bucket=s3.bucket, Key="elsewhere/secret.csv", Body=b"secret")
    changes: dict[str, object] = {
        "staged": {"files": [[0, "elsewhere/secret.csv", 6, "a.csv"]]},
        "final": {"files": [[0, f"{key}/_run/x/staged/a", 4, "../../elsewhere/secret.csv"]]},
        "replaced": {"replaced": [["../../elsewhere/secret.csv"]]},
        "places": {
            "places": [s3.place(key), s3.place("elsewhere")],
            "replaced": [[], ["secret.csv"]],
        },
    }[what]
    place = dead_publication(s3, key, **changes)
    with pytest.raises(OutputFailed, match="is damaged"):
        ObjectStorage().complete(place)
    ObjectStorage().clear([place], dry_run=False)
    assert s3.objects("elsewhere/") == {"secret.csv": b"secret"}
    assert s3.objects(f"{key}/") == {}


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("deletions", [1, 2, 3, 4, 5, 6])
def test_a_run_that_died_while_it_was_cleared(s3: S3Server, several: int, deletions: int) -> None:
    """All is published: the next command removes the rest, and loses nothing."""
    key = f"lock/clearing-{several}-{deletions}"
    places = tuple(s3.place(f"{key}/{number}") for number in range(several))
    run = ObjectStorage().take(replace(claim(places[0], "dead"), places=places))
    moves = staged(run, "mine")
    left = [None] * deletions
    real = Bucket.delete

    def dying(bucket: Bucket, keys: Iterable[str]) -> None:
        chosen = list(keys)
        if chosen and f"{MANIFEST}" in "".join(s3.objects(f"{key}/0/")):
            if not left:
                raise KeyboardInterrupt
            left.pop()
        real(bucket, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bucket, "delete", dying)
        with suppress(KeyboardInterrupt):
            run.commit(moves, manifest("dead"))
    run.close()
    ObjectStorage().complete(places[0])
    for place in places:
        with ObjectStorage().take(claim(place, "next")) as following:
            following.abandon(None)
    assert s3.objects(f"{key}/") == {"0/a.csv": b"mine", f"0/{MANIFEST}": manifest("dead")}


@pytest.mark.parametrize("run_id", ["early", *also(OTHER_ROUTES, "")], ids=["run", "clean"])
def test_a_lock_is_all_that_is_left(s3: S3Server, run_id: str) -> None:
    """Of `clean` that was killed, or of a run that had no record yet: nothing keeps the next out."""
    place = s3.place(f"lock/alone/{run_id or 'clean'}")
    dead = replace(ObjectHolder.here(run_id, (place,)), pid_since="0")
    lock.Lock(Room(place), dead).take()
    error = command.error_of("resume", place, status=6)
    expected = "which was interrupted in" if run_id else "has no interrupted run"
    assert expected in error
    command.run("clean", place)
    assert s3.objects("lock/alone/") == {}
