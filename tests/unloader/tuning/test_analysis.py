"""The analysis of a sweep: knee, outliers, limits, and the workers to use."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from processes import command
from sweep_curves import PUBLISHED, answer, bent, curve, knee_of, rows, scaled

from unloader.errors import ConfigError

LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def noisy(points: list[tuple[int, float]], seed: int, share: float) -> list[tuple[int, float]]:
    """Return points with random errors of about a share, in random order."""
    chance = random.Random(seed)
    found = [(level, seconds * chance.lognormvariate(0, share)) for level, seconds in points]
    chance.shuffle(found)
    return found


def between(knee: float, found: dict[str, Any]) -> bool:
    """Return whether a knee is in the interval of an answer."""
    interval = found["knee_interval"]
    return (interval["low"] or 0) <= knee <= (interval["high"] or 1e9)


def test_the_published_table() -> None:
    """Its knee is at 8, and 12 and 28 are out of order; 32 workers are recommended, with doubt."""
    found = answer(PUBLISHED)
    assert found["knee"] == 8
    assert found["knee_interval"]["low"] <= 8 <= found["knee_interval"]["high"]
    assert found["outliers"] == (12, 28)
    assert found["recommended"] == 32
    assert found["production"]["seconds"] == pytest.approx(3497 / 0.8, rel=1e-3)
    assert found["sustained"] is None
    (doubt,) = found["doubts"]
    assert doubt.startswith("the levels follow no smooth curve: they scatter around it by ")


def test_the_command_prints_the_analysis() -> None:
    """The JSON of --replay has its fields; the table has the same figures in words."""
    replay = ("sweep", "--replay", str(PUBLISHED))
    assert json.loads(command.run(*replay, "--json")) == json.loads(json.dumps(answer(PUBLISHED)))
    text = command.run(*replay)
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["knee"].split()[1:3] == ["8", "workers"]
    assert lines["outliers"].split(maxsplit=1)[1] == "12, 28"
    assert "32 workers, 3,497 s" in lines["recommended"]
    shown = text.splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("recommended"))
    assert shown[at + 1].startswith("DOUBTFUL")
    assert text.count("OUTLIER") == 2
    assert command.run(*replay, "--quiet") == ""


def test_unsteady_levels_are_a_doubt() -> None:
    """Repeats that differ by more than a tenth are named; steady levels on a curve have none."""
    assert answer(rows(curve(scaled(0.05), LEVELS)))["doubts"] == ()
    wild = [(level, seconds) for level in (1, 2, 3) for seconds in (80 + level, 100, 120 - level)]
    found = answer(rows(wild))
    assert found["recommended"] == 1
    assert found["doubts"][-1] == (
        "3 of 3 levels are unsteady: the repeats of 1, 2, 3 workers differ by more than 10%"
    )


def test_a_spread_that_hides_the_knee_is_the_reason() -> None:
    """Flat levels with a wide spread have no knee, and the note names the spread."""
    points = [(1, 4.2), (1, 3.4), (1, 3.5), (1, 3.95), (2, 2.4), (2, 2.23), (3, 2.28), (3, 2.14)]
    found = answer(rows(points))
    assert found["knee"] is None
    note = found["knee_interval"]["note"]
    assert note.startswith("not known: beyond 2 workers, each added worker added on average less ")
    assert f"differ among each other by {found['spread']['share']:.1%}; " in note
    assert "the repeats of 1 worker differ by more than 10%" in found["doubts"][-1]


@pytest.mark.parametrize(
    ("seconds", "knee"),
    [
        (scaled(0.03), knee_of(0.03)),
        (scaled(0.08), knee_of(0.08)),
        (bent(10, 0.2), 10),
        (bent(6, 0.0), 6),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_knee_of_a_known_curve(seconds: Any, knee: float, seed: int) -> None:
    """Through 1 % of noise it is in the interval, and the knee itself is the level next to it."""
    found = answer(rows(noisy(curve(seconds, LEVELS), seed, 0.01)))
    assert found["outliers"] == ()
    assert between(knee, found)
    at = LEVELS.index(found["knee"])
    assert LEVELS[max(0, at - 1)] <= knee <= LEVELS[min(at + 1, len(LEVELS) - 1)]


@pytest.mark.parametrize(("disturbed", "factor"), [(2, 0.3), (3, 1.6), (8, 1.6), (16, 1.3)])
def test_a_level_out_of_order_is_the_outlier(disturbed: int, factor: float) -> None:
    """A level that breaks the order is named with its reason, and the knee is as without it."""
    exact = curve(scaled(0.05), LEVELS)
    points = [(level, s * (factor if level == disturbed else 1)) for level, s in exact]
    found = answer(rows(points))
    assert found["outliers"] == (disturbed,)
    assert found["outlier_reasons"][0]["reason"]
    (level,) = (each for each in found["levels"] if each["outlier"])
    assert level["parallelism"] == disturbed
    assert any(reason.startswith("outlier:") for reason in level["reasons"])
    others = [(level, seconds) for level, seconds in exact if level != disturbed]
    assert found["knee"] == answer(rows(others))["knee"]


def test_noise_alone_makes_few_outliers() -> None:
    """Of 40 sweeps with 1.5 % of noise nearly none has one."""
    points = curve(scaled(0.03, 0.001), LEVELS)
    found = [answer(rows(noisy(points, seed, 0.015)))["outliers"] for seed in range(40)]
    assert sum(map(bool, found)) <= 2


def test_repeats_are_one_level_and_determine_the_spread() -> None:
    """The median counts, so one bad repeat does not."""
    exact = curve(scaled(0.05), (1, 2, 4, 8, 16))
    points = [(n, s * f) for n, s in exact for f in (0.999, 1.0, 1.001)]
    found = answer(rows([*points, (4, 5000.0), (4, 287.5)]))
    (level,) = (each for each in found["levels"] if each["parallelism"] == 4)
    assert level["repeats"] == 5
    assert level["seconds"] == pytest.approx(287.5)
    assert level["slowest_seconds"] == 5000
    assert found["spread"]["measured"]


@pytest.mark.parametrize(
    ("repeats", "expected"), [(2, 63.657), (3, 9.925), (4, 5.841), (11, 3.169), (12, 3.106)]
)
def test_the_spread_is_by_student_s_t(repeats: int, expected: float) -> None:
    """Of 99 % of pairs, by the tables of its quantiles."""
    seconds = [100 * (1.02 if at % 2 else 1.0) for at in range(repeats)]
    found = answer(rows([(1, each) for each in seconds]))
    logs = [0.0198026 if at % 2 else 0.0 for at in range(repeats)]
    mean = sum(logs) / repeats
    deviation = (sum((each - mean) ** 2 for each in logs) / (repeats - 1)) ** 0.5
    share = 2.718281828 ** (expected * deviation * (2 / repeats) ** 0.5) - 1
    assert found["spread"]["share"] == pytest.approx(share, rel=1e-3)


def test_samples_of_different_sizes_are_compared_by_their_rates() -> None:
    """Points that did half the work in half the time are as fast."""
    exact = curve(scaled(0.05), LEVELS)
    whole = "\n".join(f"{n},{s!r},1000" for n, s in exact)
    mixed = "\n".join(f"{n},{s / (1 + n % 2)!r},{1000 // (1 + n % 2)}" for n, s in exact)
    expected = answer(f"parallelism,seconds,bytes\n{whole}\n")
    found = answer(f"parallelism,seconds,bytes\n{mixed}\n")
    assert found["knee"] == expected["knee"]
    assert found["work"] == {"unit": "bytes", "amount": 1000}


def test_rules_of_a_valid_point() -> None:
    """A queue makes a level invalid, busy CPUs one that cannot be sustained; all stay in sight."""
    text = (
        "parallelism,seconds,cpu,queued\n"
        "1,1000,10,0\n2,505,20,0\n4,260,40,0.2\n8,140,70,0.4\n16,90,88,0.9\n32,60,99,3\n"
    )
    found = answer(text)
    levels = {each["parallelism"]: each for each in found["levels"]}
    assert [level for level in levels if not levels[level]["valid"]] == [32]
    assert [level for level in levels if levels[level]["sustained"]] == [1, 2, 4, 8]
    assert "a stage waited 3 s" in levels[32]["reasons"][0]
    assert levels[16]["reasons"] == ("CPU 88%, above the limit of 75%",)
    assert found["recommended"] == 16
    assert found["sustained"]["parallelism"] == found["production"]["parallelism"] == 8
    assert found["production"]["seconds"] == pytest.approx(140 / 0.8)
    relaxed = answer(text, cpu_limit=0.9, queue_seconds=5, discount=0.1)
    assert relaxed["recommended"] == 32
    assert relaxed["sustained"]["parallelism"] == 16
    assert relaxed["production"]["seconds"] == pytest.approx(90 / 0.9)
    strict = answer(text, cpu_limit=0.05)
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
    column: str, below: int, above: int, expected: list[str]
) -> None:
    """A resource that is used up beyond the knee is named; one that no one measured is not."""
    seconds = bent(8, 0.05)
    text = f"parallelism,seconds,{column}\n" + "".join(
        f"{n},{seconds(n)!r},{below if n <= 8 else above}%\n" for n in LEVELS
    )
    limits = answer(text)["limits"]
    assert limits["above_knee"]["resources"] == tuple(expected)
    assert limits["below_knee"]["resources"] == ()
    assert "the speed of one worker" in limits["below_knee"]["text"]
    assert f"{above}%" in limits["above_knee"]["text"]
    unknown = answer(rows(curve(seconds, LEVELS)))["limits"]
    assert unknown["above_knee"]["resources"] == ()
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
def test_what_workers_wait_for_is_the_limit(figures: dict[str, int], expected: list[str]) -> None:
    """A wait names a resource; that one is busy with what no one waits for does not.

    A throughput that does not grow at all has that limit on both sides of its knee.
    """
    lines = [f"{level},100,{','.join(f'{each}%' for each in figures.values())}" for level in LEVELS]
    limits = answer("\n".join([f"parallelism,seconds,{','.join(figures)}", *lines]))["limits"]
    assert limits["below_knee"]["resources"] == tuple(expected)
    assert limits["above_knee"]["resources"] == tuple(expected)


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
def test_too_few_levels_have_no_knee(points: list[tuple[int, float]]) -> None:
    """One or two levels: the fastest is recommended, and the note names the gap."""
    found = answer(rows(points))
    assert found["knee"] is None
    assert "too few levels for a knee" in found["knee_interval"]["note"]
    assert found["outliers"] == ()
    fastest = min(points, key=lambda point: (point[1], point[0]))
    assert found["recommended"] == fastest[0]


def test_odd_curves_have_an_answer() -> None:
    """Random seconds over nine powers of ten, at random levels: figures that are in order."""
    chance = random.Random(8)
    for _ in range(100):
        levels = chance.sample(range(1, 300), chance.randint(1, 12))
        found = answer(rows([(n, 10 ** chance.uniform(-4, 5)) for n in levels]))
        assert found["recommended"] in levels
        interval = found["knee_interval"]
        known = [each for each in (interval["low"], found["knee"], interval["high"]) if each]
        assert all(before <= after for before, after in pairwise(known))


def test_too_many_levels_are_refused() -> None:
    """One clear error, before anything is computed."""
    with pytest.raises(ConfigError, match="299 levels of parallelism"):
        answer(rows([(n, 10.0) for n in range(1, 300)]))
