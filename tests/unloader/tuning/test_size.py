"""`unloader size`: the answer to a question, from measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from processes import command
from reports.sweeps import ceilings as reported_ceilings
from reports.sweeps import source_level as level

from unloader.errors import ConfigError, OutputFailed
from unloader.tuning.ceilings import CodecCeiling, EncoderCeiling, SourceLevel, save_ceilings
from unloader.tuning.sizing_basis import basis_of

QUESTION = ("--rows", "10G", "--row-bytes", "165", "--window", "1h", "--cores", "16")
PUBLISHED = (
    *("--from", str(Path(__file__).parents[3] / "examples" / "published_points.csv")),
    *("--measured-cores", "16"),
)


def sized(*arguments: str) -> dict[str, Any]:
    """Return the answer as JSON."""
    found: dict[str, Any] = json.loads(command.run("size", *arguments, "--json"))
    return found


def points(tmp_path: Path, text: str, name: str = "points.csv") -> str:
    """Return the path of a file of points."""
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def ceilings(tmp_path: Path, *levels: SourceLevel, disk: float = 500e6) -> str:
    """Return the path of ceilings: 8 cores, an encoder of 100 MB/s, zstd to a quarter."""
    path = tmp_path / "ceilings.json"
    known = reported_ceilings(disk)
    assert known.source is not None
    found = replace(
        known,
        source=replace(known.source, levels=levels),
        encoder=EncoderCeiling(
            format="csv",
            sample_rows=10_000,
            sample_bytes=1_000_000,
            row_bytes=100.0,
            fetch_cpu_seconds=0.02,
            encode_cpu_seconds=0.01,
            bytes_per_cpu_second=100e6,
            codecs=(
                CodecCeiling(codec="none", level=None, ratio=1.0, bytes_per_cpu_second=None),
                CodecCeiling(codec="zstd", level=3, ratio=4.0, bytes_per_cpu_second=200e6),
            ),
        ),
    )
    save_ceilings(path, found)
    return str(path)


def test_the_published_question_has_an_answer() -> None:
    """Ten billion rows in an hour on 16 cores: not with a discount, which costs 4 cores more."""
    found = sized(*QUESTION, *PUBLISHED, "--disk-rate", "521MB")
    assert found["answer"].startswith("No: 10,000,000,000 rows, 1,650,000,000,000 bytes take")
    there = found["on_cores"]
    assert there["fits"] is False
    assert there["seconds"] == pytest.approx(3497 / 0.8, rel=1e-5)
    assert there["rows_per_second"] == pytest.approx(1e10 * 0.8 / 3497, rel=1e-5)
    assert "limited by: cores" in found["answer"]
    full = sized(*QUESTION, *PUBLISHED, "--discount", "0")
    assert full["on_cores"]["seconds"] == pytest.approx(3497, rel=1e-5)
    assert full["answer"].startswith("Yes: ")
    assert (found["needed"]["workers"], found["needed"]["cores"]) == (39, 20)
    assert found["space"][0]["disks"] == 2


def test_the_fastest_settings_of_a_sweep_count(tmp_path: Path) -> None:
    """Points of other settings are left out, and compressed bytes are not taken for text."""
    text = (
        "parallelism,seconds,bytes,rows,cpu,compression\n"
        "1,80,1e8,1e6,50,none\n2,50,1e8,1e6,90,none\n1,60,1e7,1e6,50,lz4\n2,40,1e7,1e6,90,lz4\n"
    )
    asked = ("--rows", "1M", "--row-bytes", "100", "--cores", "2", "--discount", "0", "--from")
    found = sized(*asked, points(tmp_path, text))
    assert found["on_cores"]["seconds"] == 40
    assert any("compression lz4" in each for each in found["assumptions"])


@pytest.mark.parametrize(
    ("options", "seconds", "limit"),
    [
        (("--discount", "0%"), 100, "cores"),
        (("--discount", "0", "--cpu-ratio", "2"), 50, "cores"),
        (("--discount", "25%"), 100 / 0.75, "cores"),
        (("--discount", "0", "--disks", "2", "--disk-rate", "250kB"), 200, "disks"),
    ],
)
def test_the_slowest_part_decides(
    tmp_path: Path, options: tuple[str, ...], seconds: float, limit: str
) -> None:
    """Cores of twice the score need half the time, and a discount adds to it."""
    path = points(tmp_path, "parallelism,seconds,rows,bytes\n4,100,1e6,1e8\n")
    found = sized("--rows", "1M", "--cores", "4", "--from", path, *options)["on_cores"]
    assert (found["seconds"], found["limited_by"]) == (pytest.approx(seconds, rel=1e-5), limit)


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    """More cores than any point had are taken in proportion, and the page has a note."""
    path = points(tmp_path, "parallelism,seconds,rows,bytes\n4,100,1e6,1e8\n")
    found = sized("--rows", "1M", "--cores", "8", "--discount", "0", "--from", path)
    assert found["on_cores"]["seconds"] == 50
    assert any("more than 4 cores were not measured" in each for each in found["assumptions"])
    assert any("other codecs are unknown" in each for each in found["assumptions"])
    assert any("speed of a disk is unknown" in each for each in found["assumptions"])
    assert found["space"][0]["disks"] is None


def test_ceilings_give_space_and_disks_for_each_codec(tmp_path: Path) -> None:
    """Text of 360 GB in an hour is 100 MB/s: one disk of 50 MB/s with zstd, three without."""
    path = ceilings(tmp_path, level(1, 1e5), level(8, 7e5), disk=50e6)
    found = sized("--rows", "3600M", "--window", "1h", "--from", path)
    plain, small = found["space"]
    assert (plain["codec"], plain["bytes"], plain["disks"]) == ("none", 3.6e11, 3)
    assert (small["codec"], small["bytes"], small["disks"]) == ("zstd:3", 9e10, 1)
    assert small["extra_cores"] == pytest.approx(3.6e11 / 200e6 / 3600 / 0.75, rel=1e-4)
    assert any("no run was measured" in each for each in found["assumptions"])


def test_a_source_that_levels_off_is_a_limit(tmp_path: Path) -> None:
    """Further cores do not help where twice the workers fetched hardly more; else they may."""
    asked = ("--rows", "3600M", "--window", "1h", "--cores", "64", "--from")
    flat = sized(*asked, ceilings(tmp_path, level(4, 2e5), level(8, 2.1e5)))
    assert flat["on_cores"]["limited_by"] == "source"
    assert "more cores do not help" in flat["answer"]
    rising = sized(*asked, ceilings(tmp_path, level(4, 2e5), level(8, 3.9e5)))
    assert rising["on_cores"]["limited_by"] != "source"


def test_a_finished_run_is_enough(tmp_path: Path) -> None:
    """Rows, their width, the codec and the CPU time come from the manifest."""
    path = tmp_path / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'abcdef' AS name FROM range(5000) r(i)"
        )
    to = tmp_path / "out"
    command.run(
        *("run", f"duckdb://{path}", "--table", "t", "--to", str(to), "--parallelism", "1"),
        *("--compression", "zstd:3"),
    )
    found = sized("--window", "1h", "--cores", "1", "--from", str(to))
    totals = command.manifest_of(to)["totals"]
    assert found["answer"].startswith(f"Yes: 5,000 rows, {totals['uncompressed_bytes']:,} bytes")
    plain = found["space"][0]
    assert (plain["codec"], plain["bytes"]) == ("none", totals["uncompressed_bytes"])
    assert found["on_cores"]["fits"] is True
    assert {each["codec"] for each in found["space"]} == {"none", "zstd:3"}
    same = sized("--window", "1h", "--cores", "1", "--from", str(to / "_manifest.json"))
    assert same["on_cores"] == found["on_cores"]


HOSTILE = {
    "no head": "1,2\n3,4\n",
    "head alone": "parallelism,seconds\n",
    "nothing": "",
    "a word": "parallelism,seconds\ntwo,3\n",
    "zero seconds": "parallelism,seconds\n2,0\n",
    "negative": "parallelism,seconds\n2,-5\n",
    "not a number": "parallelism,seconds\n2,nan\n",
    "no end": "parallelism,seconds\n2,inf\n",
    "half a worker": "parallelism,seconds\n2.5,10\n",
    "no worker": "parallelism,seconds\n0,10\n",
    "a million workers": "parallelism,seconds\n1000000,10\n",
    "too long": "parallelism,seconds\n2,10,3\n",
    "no width": "parallelism,seconds,rows,row_bytes\n2,10,5,wide\n",
    "no seconds": "parallelism,seconds\n2,\n",
    "an open quote": 'parallelism,seconds\n"2,10\n',
    "twice": "parallelism,parallelism,seconds\n2,2,10\n",
    "JSON of something": '{"a": 1}',
    "JSON cut off": '{"points": [',
    "JSON of no points": '{"points": []}',
    "JSON of numbers": '{"points": [1, 2]}',
    "JSON of booleans": '{"points": [{"parallelism": true, "seconds": 1}]}',
    "JSON of measurements": '{"points": [{"parallelism": 1, "measurements": {"seconds": 1}}]}',
    "JSON of settings": '{"points": [{"parallelism": 1, "seconds": 1, "settings": 5}]}',
    "JSON of lists": '{"points": [{"parallelism": [1], "seconds": 1}]}',
    "JSON of ceilings": '{"format_version": 1, "disks": [], "machine": {}}',
    "JSON of a manifest": '{"units": [], "totals": {}}',
    "a long number": f"parallelism,seconds\n2,{'9' * 400}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_says_nothing_is_one_clear_error(tmp_path: Path, name: str) -> None:
    """For any content of the file the error names it and the next step."""
    path = points(tmp_path, HOSTILE[name], "file")
    with pytest.raises((ConfigError, OutputFailed)) as found:
        basis_of((path,))
    assert str(tmp_path) in found.value.message
    assert found.value.hint


def test_a_sweep_is_taken_as_it_was_saved(tmp_path: Path) -> None:
    """The JSON and the CSV of a real sweep give the same answer: width, cores and CPU are in both."""
    path = tmp_path / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'abcde' AS name FROM range(40000) r(i)"
        )
    saved, listed = tmp_path / "sweep.json", tmp_path / "sweep.csv"
    text = command.run(
        *("sweep", f"duckdb://{path}", "--table", "t", "--to", "null:", "--compression", "zstd"),
        *("--parallelism", "1", "--repeats", "1", "--warm-up", "0", "--json", "--csv", str(listed)),
    )
    saved.write_text(text)
    (measured,) = json.loads(text)["points"][0]["measurements"]
    asked = ("--window", "1h", "--cores", "1", "--from")
    found = sized(*asked, str(saved))
    text_bytes = len("id,name\n") + sum(len(f"{i},abcde\n") for i in range(40000))
    width = text_bytes / 40000
    assert found["answer"].startswith(f"Yes: 40,000 rows, {text_bytes:,} bytes")
    limits = found["on_cores"]["limits"]
    assert limits["cores"] == pytest.approx(0.8 * 40000 * width / measured["seconds"], rel=1e-4)
    of_cpu = 0.75e6 * width / measured["costs"]["total"]
    assert limits["CPU limit"] == pytest.approx(of_cpu, rel=1e-4)
    assert any("null:" in each for each in found["assumptions"])
    assert not any("one core for each worker" in each for each in found["assumptions"])
    again = sized("--rows", "40k", *asked, str(listed))
    assert again["on_cores"] == found["on_cores"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rows", "1e400"),
        ("--row-bytes", "inf"),
        ("--window", "0"),
        ("--cpu-ratio", "nan"),
        ("--discount", "0.2"),
        ("--from", ""),
        *also(
            OTHER_ROUTES,
            (("--rows", "0"),),
            (("--row-bytes", "0"),),
            (("--window", "-1h"),),
            (("--cores", "0"),),
            (("--cpu-ratio", "0"),),
            (("--discount", "100%"),),
            (("--discount", "120%"),),
            (("--cpu-limit", "0%"),),
            (("--disk-rate", "0"),),
        ),
    ],
)
def test_an_impossible_figure_is_refused(arguments: tuple[str, ...]) -> None:
    """A wrong option is a wrong call, told in one line."""
    command.error_of("size", *QUESTION, *PUBLISHED, *arguments, status=2)


@pytest.mark.parametrize(
    ("missing", "hint"),
    [("--rows", "--rows"), ("--row-bytes", "--row-bytes"), ("--window", "--cores")],
)
def test_what_is_missing_is_named(tmp_path: Path, missing: str, hint: str) -> None:
    """A question that lacks something names the missing part."""
    given = {"--rows": "1M", "--row-bytes": "100", "--window": "1h"}
    del given[missing]
    path = points(tmp_path, "parallelism,seconds\n4,100\n")
    rest = [each for pair in given.items() for each in pair]
    assert hint in command.error_of("size", *rest, "--from", path, status=2)
