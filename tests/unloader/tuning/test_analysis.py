"""The answer of `unloader sweep --replay`: knee, outliers, what to use, predictions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from sweeps.replays import PUBLISHED, Replays, bent, curve, knee_of, rows, scaled

LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def published(*, up_to: int) -> list[tuple[int, float]]:
    """Return the points of the published table up to a level."""
    lines = PUBLISHED.read_text().splitlines()
    pairs = [line.split(",") for line in lines if line[0].isdigit()]
    return [(int(level), float(seconds)) for level, seconds in pairs if int(level) <= up_to]


def prediction(answer: dict[str, Any], parallelism: int) -> dict[str, Any]:
    """Return the one prediction for a parallelism."""
    (found,) = (each for each in answer["predictions"] if each["parallelism"] == parallelism)
    return dict(found)


def noisy(points: list[tuple[int, float]], seed: int, share: float) -> list[tuple[int, float]]:
    """Return points with random errors of about a share, in random order."""
    chance = random.Random(seed)
    found = [(level, seconds * chance.lognormvariate(0, share)) for level, seconds in points]
    chance.shuffle(found)
    return found


def test_the_published_table(replays: Replays) -> None:
    """Its knee at 8 is found, and 12 and 28 are out of order; its 32 workers are recommended."""
    answer = replays.answer(PUBLISHED)
    assert 7 <= answer["knee"] <= 9
    assert answer["knee_interval"]["low"] <= answer["knee"] <= answer["knee_interval"]["high"]
    assert answer["outliers"] == [12, 28]
    assert answer["recommended"] == 32
    assert not answer["model"]["describes_levels"]
    measured = prediction(answer, 32)
    assert measured["low"] <= 3497 <= measured["high"]
    assert prediction(answer, 64)["seconds"] is None
    assert answer["production"]["seconds"] == pytest.approx(3497 / 0.8, rel=1e-3)
    assert answer["sustained"] is None


def test_a_doubtful_recommendation_says_so(replays: Replays) -> None:
    """Beside it, in JSON and on the terminal: no law describes the levels, or they are unsteady."""
    assert replays.answer(rows(curve(scaled(0.05), LEVELS)))["doubts"] == []
    (law,) = replays.answer(PUBLISHED)["doubts"]
    assert law.startswith("no law describes the levels: they deviate by ")
    wild = [(level, seconds) for level in (1, 2, 3) for seconds in (80 + level, 100, 120 - level)]
    path = replays.file(rows(wild))
    answer = replays.answer(path)
    assert answer["recommended"] == 1
    assert answer["doubts"][-1] == (
        "3 of 3 levels are unsteady: the repeats of 1, 2, 3 workers differ by more than 10%"
    )
    shown = replays.call("sweep", "--replay", str(path)).out.splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("recommended"))
    assert shown[at + 1].startswith("DOUBTFUL")


def test_the_largest_published_level_is_not_predicted_from_the_smaller_ones(
    replays: Replays,
) -> None:
    """No law describes the levels up to 16, so the answer says that it cannot predict 32."""
    answer = replays.answer(rows(published(up_to=16)))
    assert answer["outliers"] == [12]
    assert 7 <= answer["knee"] <= 9
    found = prediction(answer, 32)
    assert found["seconds"] is None
    assert "no law of scaling describes" in found["reason"]
    assert found["low"] < 3497 < found["high"]
    trial = replays.answer(PUBLISHED)["extrapolation"]
    assert (trial["from_levels_up_to"], trial["parallelism"]) == (16, 32)
    assert trial["seconds"] is None
    assert trial["inside"] is None


def test_the_order_of_the_points_changes_nothing(replays: Replays) -> None:
    """Sorted, reversed and shuffled points have the same answer."""
    points = published(up_to=32)
    expected = replays.answer(rows(sorted(points)))
    assert replays.answer(rows(sorted(points, reverse=True))) == expected
    assert replays.answer(rows(noisy(points, 1, 0.0))) == expected


def test_the_unit_of_time_changes_no_level(replays: Replays) -> None:
    """In hours the published table has the same knee, outliers and recommendation."""
    hours = [(level, seconds / 3600) for level, seconds in published(up_to=32)]
    expected, found = replays.answer(PUBLISHED), replays.answer(rows(hours))
    for key in ("knee", "knee_interval", "outliers", "recommended"):
        assert found[key] == expected[key]


@pytest.mark.parametrize("contention", [0.03, 0.08])
def test_amdahl(replays: Replays, contention: float) -> None:
    """The contention, the knee that follows from it and other levels are found through noise."""
    points = noisy(curve(scaled(contention), LEVELS), 1, 0.01)
    answer = replays.answer(rows(points), "--predict", "10,48")
    assert answer["model"]["name"] == "amdahl"
    assert answer["model"]["parameters"]["contention"] == pytest.approx(contention, rel=0.1)
    assert answer["outliers"] == []
    interval = answer["knee_interval"]
    assert interval["low"] < knee_of(contention) < interval["high"]
    assert interval["high"] < 1.6 * interval["low"]
    for level in (10, 48):
        found = prediction(answer, level)
        assert found["low"] < scaled(contention)(level) < found["high"]


def test_throughput_that_falls_is_no_outlier(replays: Replays) -> None:
    """Levels beyond the peak are slower, and that is the law; the peak is recommended."""
    points = curve(scaled(0.03, 0.003), (1, 2, 4, 8, 16, 24, 32))
    answer = replays.answer(rows(points))
    assert answer["outliers"] == []
    assert answer["model"]["name"] == "usl"
    assert answer["model"]["parameters"]["coherency"] == pytest.approx(0.003, rel=0.01)
    assert answer["recommended"] == 16
    assert prediction(answer, 64)["seconds"] == pytest.approx(scaled(0.03, 0.003)(64), rel=0.02)


def test_a_bend(replays: Replays) -> None:
    """Two straight lines have their knee where they meet, between measured levels too."""
    answer = replays.answer(rows(noisy(curve(bent(10, 0.2), LEVELS), 3, 0.01)))
    assert answer["model"]["name"] == "two-lines"
    assert answer["knee"] == pytest.approx(10, rel=0.05)
    assert answer["model"]["parameters"]["share"] == pytest.approx(0.2, abs=0.04)


def test_linear_has_no_knee(replays: Replays) -> None:
    """It is not reached, and that is said; the most workers are recommended."""
    answer = replays.answer(rows(noisy(curve(scaled(0), LEVELS), 3, 0.01)))
    assert answer["knee"] is None
    assert answer["knee_interval"]["high"] is None
    assert "not reached at 24 workers" in answer["knee_interval"]["note"]
    assert answer["model"]["name"] == "linear"
    assert answer["recommended"] == 24


def test_a_plateau(replays: Replays) -> None:
    """Where more workers bring nothing, the fewest that are as fast are recommended."""
    answer = replays.answer(rows(noisy(curve(bent(6, 0.0), LEVELS), 5, 0.004)))
    assert answer["knee"] == pytest.approx(6, rel=0.05)
    assert answer["recommended"] == 6
    assert answer["outliers"] == []


@pytest.mark.parametrize(
    ("disturbed", "factor"), [(1, 0.4), (2, 0.3), (6, 1.2), (8, 1.6), (16, 1.3), (6, 0.8)]
)
def test_one_disturbed_level_is_the_outlier(
    replays: Replays, disturbed: int, factor: float
) -> None:
    """A level that was slowed, or that was too fast, is named, and the law is as without it."""
    points = [
        (level, seconds * (factor if level == disturbed else 1))
        for level, seconds in noisy(curve(scaled(0.05), LEVELS), 6, 0.005)
    ]
    answer = replays.answer(rows(points))
    assert answer["outliers"] == [disturbed]
    assert answer["outlier_reasons"][0]["reason"]
    assert answer["model"]["parameters"]["contention"] == pytest.approx(0.05, rel=0.1)
    (level,) = (each for each in answer["levels"] if each["outlier"])
    assert level["parallelism"] == disturbed
    assert any(reason.startswith("outlier:") for reason in level["reasons"])


@pytest.mark.long("simulated sweeps")
def test_noise_alone_makes_few_outliers(replays: Replays) -> None:
    """Of 15 sweeps with 1.5 % of noise nearly none has one."""
    points = curve(scaled(0.03, 0.001), LEVELS)
    found = [replays.answer(rows(noisy(points, seed, 0.015)))["outliers"] for seed in range(15)]
    assert sum(map(bool, found)) <= 1


def test_points_that_scatter_are_told(replays: Replays) -> None:
    """Nothing is named where everything is out of order, and nothing is predicted."""
    scattered = [(1, 5.0), (2, 9.0), (3, 4.0), (4, 11.0), (5, 3.0), (6, 12.0), (7, 8.0)]
    answer = replays.answer(rows(scattered))
    assert answer["outliers"] == []
    assert answer["knee"] is None
    assert "scatter" in answer["notices"][0]
    assert all(each["seconds"] is None for each in answer["predictions"])
    assert all(each["reason"] for each in answer["predictions"])


def test_repeats_are_one_level_and_tell_the_spread(replays: Replays) -> None:
    """The median counts, so one bad repeat does not; close repeats make small dips count."""
    exact = curve(scaled(0.05), (1, 2, 4, 8, 16))
    points = [(n, s * f) for n, s in exact for f in (0.999, 1.0, 1.001)]
    answer = replays.answer(rows([*points, (4, 5000.0), (4, 287.5)]))
    (level,) = (each for each in answer["levels"] if each["parallelism"] == 4)
    assert level["repeats"] == 5
    assert level["seconds"] == pytest.approx(287.5)
    assert level["slowest_seconds"] == 5000
    assert answer["spread"]["measured"]


def test_a_small_dip_counts_where_repeats_are_close(replays: Replays) -> None:
    """1.5 % on a plateau is nothing for single points, and an outlier for repeats within 0.1 %."""
    points = [(n, s * (1.015 if n == 12 else 1)) for n, s in curve(bent(6, 0.0), LEVELS)]
    single = replays.answer(rows(points))
    assert (single["spread"], single["outliers"]) == ({"share": 0.03, "measured": False}, [])
    repeats = [(n, s * factor) for n, s in points for factor in (0.9995, 1.0, 1.0005)]
    repeated = replays.answer(rows(repeats))
    assert (repeated["spread"], repeated["outliers"]) == ({"share": 0.01, "measured": True}, [12])
    assert replays.answer(rows(points), "--spread", "1%")["outliers"] == [12]


def test_samples_of_different_sizes_are_compared_by_their_rates(replays: Replays) -> None:
    """Points that did half the work in half the time are as fast."""
    exact = curve(scaled(0.05), LEVELS)
    whole = "\n".join(f"{n},{s!r},1000" for n, s in exact)
    mixed = "\n".join(f"{n},{s / (1 + n % 2)!r},{1000 // (1 + n % 2)}" for n, s in exact)
    expected = replays.answer(f"parallelism,seconds,bytes\n{whole}\n")
    found = replays.answer(f"parallelism,seconds,bytes\n{mixed}\n")
    assert found["knee"] == expected["knee"] == pytest.approx(knee_of(0.05), rel=0.001)
    assert found["predictions"] == expected["predictions"]
    assert found["work"] == {"unit": "bytes", "amount": 1000}


def test_rules_of_a_valid_point(replays: Replays) -> None:
    """A queue makes a level invalid, busy CPUs one that cannot be sustained; all stay in sight."""
    text = (
        "parallelism,seconds,cpu,queued\n"
        "1,1000,10,0\n2,505,20,0\n4,260,40,0.2\n8,140,70,0.4\n16,90,88,0.9\n32,60,99,3\n"
    )
    answer = replays.answer(text)
    levels = {each["parallelism"]: each for each in answer["levels"]}
    assert [level for level in levels if not levels[level]["valid"]] == [32]
    assert [level for level in levels if levels[level]["sustained"]] == [1, 2, 4, 8]
    assert "a stage waited 3 s" in levels[32]["reasons"][0]
    assert levels[16]["reasons"] == ["CPU 88%, above the limit of 75%"]
    assert answer["recommended"] == 16
    assert answer["sustained"]["parallelism"] == answer["production"]["parallelism"] == 8
    assert answer["production"]["seconds"] == pytest.approx(140 / 0.8)
    options = ("--cpu-limit", "90%", "--queue-limit", "5", "--discount", "10%")
    relaxed = replays.answer(text, *options)
    assert relaxed["recommended"] == 32
    assert relaxed["sustained"]["parallelism"] == 16
    assert relaxed["production"]["seconds"] == pytest.approx(90 / 0.9)
    strict = replays.answer(text, "--cpu-limit", "5%")
    assert strict["sustained"] is None
    assert strict["production"] is None


@pytest.mark.parametrize(
    ("column", "below", "above", "expected"),
    [
        ("cpu", 50, 97, ["cpu"]),
        ("node", 60, 100, ["node"]),
        ("disk", 30, 95, ["disk"]),
        ("network", 40, 93, ["network"]),
        ("source", 20, 60, ["source"]),
        ("cpu", 20, 30, []),
    ],
)
def test_what_limits_each_side_of_the_knee(
    replays: Replays, column: str, below: int, above: int, expected: list[str]
) -> None:
    """A resource that is used up beyond the knee is named; one that nobody measured is not."""
    seconds = bent(8, 0.05)
    text = f"parallelism,seconds,{column}\n" + "".join(
        f"{n},{seconds(n)!r},{below if n <= 8 else above}%\n" for n in LEVELS
    )
    limits = replays.answer(text)["limits"]
    assert limits["above_knee"]["resources"] == expected
    assert limits["below_knee"]["resources"] == []
    assert "the speed of one worker" in limits["below_knee"]["text"]
    assert f"{above}%" in limits["above_knee"]["text"]
    unknown = replays.answer(rows(curve(seconds, LEVELS)))["limits"]
    assert unknown["above_knee"]["resources"] == []
    assert "unknown" in unknown["above_knee"]["text"]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"output": 88, "disk": 4, "cpu": 99, "delay": 5}, ["disk"]),
        ({"output": 60, "delay": 40, "cpu": 99}, ["disk", "cpu"]),
        ({"output": 10, "disk": 97}, []),
        ({"source": 80, "cpu": 99, "delay": 5, "database": 3}, ["source"]),
        ({"source": 60, "cpu": 99, "delay": 5, "database": 50}, ["source", "cpu"]),
        ({"source": 80, "network": 95, "cpu": 20}, ["source", "network"]),
        ({"throttled": 97, "delay": 70, "cpu": 30}, ["cpu"]),
        ({"throttled": 97, "delay": 2, "cpu": 30}, []),
        ({"delay": 70, "cpu": 80}, ["cpu"]),
    ],
)
def test_what_workers_wait_for_is_the_limit(
    replays: Replays, figures: dict[str, int], expected: list[str]
) -> None:
    """A wait names a resource; that one is busy with what nobody waits for does not.

    A throughput that does not grow at all has that limit on both sides of its knee.
    """
    lines = [f"{level},100,{','.join(f'{each}%' for each in figures.values())}" for level in LEVELS]
    limits = replays.answer("\n".join([f"parallelism,seconds,{','.join(figures)}", *lines]))[
        "limits"
    ]
    assert limits["below_knee"]["resources"] == expected
    assert limits["above_knee"]["resources"] == expected


def test_far_levels_are_not_predicted(replays: Replays) -> None:
    """Twice the largest level is, with an interval that widens; more is too far."""
    points = rows(noisy(curve(scaled(0.05), LEVELS), 7, 0.01))
    answer = replays.answer(points, "--predict", "24..96:24")
    assert [each["parallelism"] for each in answer["predictions"]] == [24, 48, 72, 96]
    known, twice, far, _ = answer["predictions"]
    assert known["high"] / known["low"] < twice["high"] / twice["low"]
    assert (known["reason"], twice["reason"]) == ("", "")
    assert far["seconds"] is None
    assert "too far from the measured levels (1 to 24)" in far["reason"]


@pytest.mark.parametrize(
    "points",
    [
        [(4, 10.0)],
        [(4, 10.0), (4, 11.0), (4, 10.5)],
        [(1, 10.0), (2, 5.2)],
        [(1, 1e-6), (2, 1e9)],
        [(1, 1000.0), (65535, 1.0)],
        [(1, 10.0), (2, 10.0)],
    ],
)
def test_too_few_levels_have_no_knee(replays: Replays, points: list[tuple[int, float]]) -> None:
    """One or two levels: the fastest is recommended, and what is missing is said."""
    answer = replays.answer(rows(points))
    assert answer["knee"] is None
    assert "too few levels for a knee" in answer["knee_interval"]["note"]
    assert answer["outliers"] == []
    fastest = min(points, key=lambda point: (point[1], point[0]))
    assert answer["recommended"] == fastest[0]
    assert all(each["reason"] or each["high"] > each["low"] for each in answer["predictions"])


def test_levels_that_are_all_alike(replays: Replays) -> None:
    """More workers bring nothing from the first one on: the knee is 1, and so is the advice."""
    answer = replays.answer(rows([(n, 10.0) for n in LEVELS]))
    assert answer["knee"] == 1
    assert answer["recommended"] == 1
    assert answer["outliers"] == []


@pytest.mark.long("simulated sweeps")
def test_odd_curves_have_an_answer(replays: Replays) -> None:
    """Random seconds over nine powers of ten, at random levels: figures that are in order."""
    chance = random.Random(8)
    for _ in range(15):
        levels = chance.sample(range(1, 300), chance.randint(1, 12))
        answer = replays.answer(rows([(n, 10 ** chance.uniform(-4, 5)) for n in levels]))
        assert answer["recommended"] in levels
        for each in answer["predictions"]:
            if each["seconds"] is not None:
                assert each["low"] <= each["seconds"] <= each["high"]
            else:
                assert each["reason"]
        interval = answer["knee_interval"]
        known = [each for each in (interval["low"], answer["knee"], interval["high"]) if each]
        assert all(before <= after for before, after in pairwise(known))


def test_too_many_levels_are_refused(replays: Replays) -> None:
    """One clear error, before anything is computed."""
    points = rows([(n, 10.0) for n in range(1, 300)])
    assert "299 levels of parallelism" in replays.error(points)


def test_the_page_has_the_fields_of_the_json(replays: Replays) -> None:
    """docs/tuning.md names every key of an answer that has all of them, and no other."""
    text = "parallelism,seconds,cpu\n" + "".join(
        f"{n},{bent(8, 0.1)(n) * (2 if n == 6 else 1)!r},{n}\n" for n in LEVELS
    )
    found = set(keys(replays.answer(text)))
    page = (PUBLISHED.parents[1] / "docs" / "tuning.md").read_text()
    table = page.partition("## The answer in JSON")[2].partition("\n## ")[0]
    lines = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([^`]+)`", "".join(lines))) == found


def keys(value: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of an answer's fields, as the page writes them."""
    for key, item in value.items():
        path = prefix + key
        if path in ("models", "model.parameters", "levels[].load"):
            yield path
        elif isinstance(item, dict):
            if path in ("sustained", "production", "extrapolation"):
                yield path
            yield from keys(item, f"{path}.")
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            yield from keys(item[0], f"{path}[].")
        else:
            yield path


def test_the_table_has_the_figures_of_the_json(replays: Replays) -> None:
    """Without --json the same is shown in words, outliers marked; --quiet shows nothing."""
    done = replays.call("sweep", "--replay", str(PUBLISHED))
    assert (done.status, done.err) == (0, "")
    lines = {line.split()[0]: line for line in done.out.splitlines() if line}
    assert lines["knee"].split()[1:3] == ["8", "workers"]
    assert lines["outliers"].split(maxsplit=1)[1] == "12, 28"
    assert "32 workers, 3,497 s" in lines["recommended"]
    assert "cannot be predicted" in lines["64"]
    assert done.out.count("OUTLIER") == 2
    quiet = replays.call("sweep", "--replay", str(PUBLISHED), "--quiet")
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--predict", "8..1:2"), "does not lead from 8 to 1"),
        (("--predict", "0"), "0 is not a number of workers"),
        (("--spread", "150%"), "more than 100 %"),
        (("--spread", "100%"), "not below 100 %"),
        (("--cpu-limit", "most"), "the value is not a percentage"),
        (("--discount", "-20"), "is not a percentage"),
        (("--queue-limit", "long"), "the value is not a duration"),
    ],
)
def test_options_that_mean_nothing(
    replays: Replays, options: tuple[str, ...], message: str
) -> None:
    """Each has one error that quotes what was written."""
    assert message in replays.error(PUBLISHED, *options, status=2)
