"""Counts how often intervals of the analysis cover the truth, over sweeps with random errors.

Reads a JSON list of cases from standard input; writes for each the number of sweeps whose interval
covers the knee, a measured level, a level in between and twice the largest, of how many.
"""

from __future__ import annotations

import json
import math
import random
import sys
from typing import Any

from sweeps.replays import bent, knee_of, scaled
from unloader.tuning.analysis import analyse
from unloader.tuning.points import Point
from unloader.tuning.validity import Rules

LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24)
ASKED = (6, 10, 48)


def _knee(case: dict[str, Any]) -> float:
    """Return the knee by the definition: where throughput grows half as steeply as at first."""
    if "bend" in case:
        return float(case["bend"])
    if not case["coherency"]:
        return knee_of(case["contention"])
    seconds = scaled(case["contention"], case["coherency"])

    def rate(level: float) -> float:
        return 1 / seconds(level)  # type: ignore[arg-type]

    low, high = 1.0, 1000.0
    for _ in range(60):
        level = (low + high) / 2
        slope = (rate(level + 1e-5) - rate(level - 1e-5)) / 2e-5
        low, high = (level, high) if slope > rate(1) / 2 else (low, level)
    return low


def _count(case: dict[str, Any]) -> dict[str, int]:
    if "bend" in case:
        seconds = bent(case["bend"], case["share"])
    else:
        seconds = scaled(case["contention"], case["coherency"])
    knee, noise = _knee(case), case["noise"]
    found = dict.fromkeys(("knee", *map(str, ASKED)), 0)
    for seed in range(case["sweeps"]):
        chance = random.Random(seed)

        def measured(level: int, chance: random.Random = chance) -> float:
            return seconds(level) * math.exp(chance.gauss(0, noise))

        points = [Point(parallelism=level, seconds=measured(level)) for level in LEVELS]
        answer = analyse(points, Rules(), ASKED)
        low, high = answer.knee.low, answer.knee.high
        found["knee"] += (low or 0) <= knee <= (math.inf if high is None else high)
        for each in answer.predictions:
            truth = measured(each.parallelism)
            found[str(each.parallelism)] += (each.low or 0) <= truth <= (each.high or math.inf)
    return found


json.dump([_count(case) for case in json.load(sys.stdin)], sys.stdout)
