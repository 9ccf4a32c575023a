"""Documents as `unloader sweep --json` writes them: of a file of points, and of a live sweep."""

from __future__ import annotations

import copy
from typing import Any

PUBLISHED = {
    **{32: 3497, 28: 4740, 24: 4463, 20: 5260, 16: 6298},
    **{12: 7158, 8: 6805, 4: 12841, 3: 18380, 2: 23760},
}
"""Parallelism to seconds of a published sweep, whose points at 28 and 12 are out of line."""

_OUT_OF_LINE = {
    28: "slower than 24 workers by 6 %: more workers never take longer by that much here",
    12: "slower than 8 workers by 5 %",
}


def replay(name: str = "") -> dict[str, Any]:
    """Return the analysis of the published points.

    Args:
        name: Ends every text of it.
    """
    fit = {level: 47_000 * (1 + 0.045 * (level - 1)) / level for level in PUBLISHED}
    return {
        "knee": 8.4,
        "knee_interval": {
            **{"low": 7.1, "high": 9.6, "confidence": 0.95},
            **{"method": "law", "note": f"of seven points {name}"},
        },
        "outliers": list(_OUT_OF_LINE),
        "outlier_reasons": [
            {"parallelism": level, "reason": reason} for level, reason in _OUT_OF_LINE.items()
        ],
        "recommended": 32,
        "sustained": {"parallelism": 24, "seconds": 4463, "text": f"CPU below 75 % {name}"},
        "production": {"parallelism": 24, "seconds": 5356, "text": "with a discount of 20 %"},
        "model": {
            **{"name": "amdahl", "parameters": {"contention": 0.045}},
            **{"one_worker_seconds": 47_000, "deviation": 0.03, "describes_levels": True},
        },
        "models": [],
        "predictions": [
            {
                **{"parallelism": level, "seconds": fit[level], "reason": ""},
                **{"low": fit[level] * 0.9, "high": fit[level] * 1.12},
            }
            for level in sorted(fit)
        ]
        + [
            {
                **{"parallelism": 64, "seconds": None, "low": 1200, "high": None},
                "reason": f"too far beyond the levels {name}",
            }
        ],
        "extrapolation": None,
        "limits": {
            "below_knee": {"resources": ["source"], "text": f"the source {name}"},
            "above_knee": {"resources": ["cpu"], "text": "second threads of the cores"},
        },
        "spread": {"share": 0.03, "measured": False},
        "work": {"unit": "bytes", "amount": 1.65e12},
        "levels": [_level(level, name) for level in sorted(PUBLISHED)],
        "notices": [f"two levels are left out {name}"],
    }


def _level(level: int, name: str) -> dict[str, Any]:
    seconds, outlier = PUBLISHED[level], level in _OUT_OF_LINE
    cpu = round(0.028 * level, 3)
    reasons = [f"CPU {cpu:.0%}, above the limit of 75%"] if cpu > 0.75 else []
    reasons += [f"outlier: {_OUT_OF_LINE[level]} {name}"] if outlier else []
    if level == 3:
        reasons.append(f"a stage waited 2.5 s for its consumer (limit 1 s) {name}")
    return {
        **{"parallelism": level, "seconds": seconds, "repeats": 1},
        **{"fastest_seconds": seconds * 0.98, "slowest_seconds": seconds * 1.03},
        **{"bytes_per_second": 1.65e12 / seconds, "valid": level != 3},
        **{"sustained": cpu <= 0.75 and level != 3, "outlier": outlier, "reasons": reasons},
        "load": {**dict.fromkeys(("node", "disk", "network", "source", "queued")), "cpu": cpu},
    }


def live(name: str = "") -> dict[str, Any]:
    """Return a live sweep of two codecs over four parallelisms, the last point having failed."""
    points = [_point(level, codec, name) for codec in ("none", "zstd") for level in (1, 2, 4, 8)]
    points[-1].update(
        measurements=[],
        rows_per_second=None,
        spread=None,
        state="failed",
        problem=f"no room {name}",
    )
    return {
        **{"source": "oracle://scott@db01/SALES", "subject": f"SCOTT.ORDERS{name}"},
        **{"destination": "/extract/sweep", "sample": None, "interrupted": False},
        **{"caches": f"as the warm-up left them {name}", "points": points},
        "curves": [
            {
                "settings": {"compression": codec},
                "levels": [
                    {**_level(4, name), "parallelism": level, "sustained": level < 4}
                    for level in (1, 2, 4, 8)
                ],
            }
            for codec in ("none", "zstd")
        ],
        "recommended_options": {"parallelism": "4", "compression": f"none{name}"},
        "whole_table": {"parallelism": 4, "rows": 9e9, "seconds": 9200, "low": 8700, "high": 9900},
        "notices": [f"one point failed {name}"],
        "options": {"repeats": 3},
        "order": [],
    }


def analysed(name: str = "") -> dict[str, Any]:
    """Return a live sweep of one axis with its analysis and the ceilings beside it."""
    found = live(name)
    found["points"] = found["points"][:4]
    for point in found["points"]:
        point["settings"] = {"parallelism": str(point["parallelism"])}
    analysis = copy.deepcopy(replay(name))
    rows = 50e6
    analysis["work"] = {"unit": "rows", "amount": rows}
    analysis["levels"] = [
        {
            **_level(4, name),
            **{"parallelism": point["parallelism"], "repeats": 3, "sustained": True},
            **{"seconds": rows / point["rows_per_second"], "reasons": []},
            "fastest_seconds": rows / (point["rows_per_second"] * 1.04),
            "slowest_seconds": rows / (point["rows_per_second"] * 0.97),
        }
        for point in found["points"]
    ]
    analysis.update(recommended=8, knee=5.0, predictions=[])
    analysis["knee_interval"].update(low=3.5, high=None)
    analysis["model"].update(parameters={"contention": 0.08}, one_worker_seconds=rows / 3e5)
    return {
        **found,
        "analysis": analysis,
        "ceilings": {
            "disks": [{"bytes_per_second": 4.1e8}],
            "together": None,
            "source": {"levels": [{"parallelism": 8, "rows_per_second": 1.9e6}]},
        },
    }


def _point(level: int, codec: str, name: str) -> dict[str, Any]:
    speed = 300_000 * level / (1 + 0.08 * (level - 1)) * (0.9 if codec == "zstd" else 1)
    runs = [
        _measurement(number, level, speed * (0.98 + 0.02 * number), name) for number in range(3)
    ]
    return {
        "settings": {"parallelism": str(level), "compression": codec},
        **{"parallelism": level, "state": "steady", "problem": "", "measurements": runs},
        **{"rows_per_second": speed, "spread": 0.04},
    }


def _measurement(number: int, level: int, speed: float, name: str) -> dict[str, Any]:
    rows = 5_000_000
    seconds = rows / speed
    each = seconds / 6
    return {
        **{"number": number + 1, "seconds": seconds, "whole_seconds": seconds + 1, "rows": rows},
        **{"bytes": rows * 137, "complete": True, "units": 6 * level, "failed_attempts": 0},
        "costs": {
            **{"fetch": 1.1, "encode": 0.6, "compress": 0.25 if level % 2 else None},
            **{"write": 0.15, "rest": 0.3, "total": 2.4},
        },
        "queueing": {
            **{"for_source": 0.5, "for_encoder": 0.1, "for_writer": 0.05},
            "longest_seconds": 0.02,
        },
        "machine": {
            "cpu": {"user": 0.5, "system": 0.1, "iowait": 0.05, "idle": 0.35, "stolen": 0.0},
            "processes": {"workers": 0.4, "parent": 0.01, "database": None, "rest": 0.24},
        },
        **{"rows_per_second": speed, "bytes_per_second": speed * 137},
        "moments": [
            {
                "at_seconds": at * seconds / 10,
                "nodes": [{"node": node, "busy": 0.1 * level / (node + 1)} for node in range(2)],
            }
            for at in range(11)
        ],
        "timeline": [
            {
                **{"worker": worker, "unit": f"{worker + unit * level + 1:04d}{name}"},
                **{"began_seconds": unit * each, "seconds": each * 0.98},
                **{"rows": rows // (6 * level), "bytes": rows // (6 * level) * 137},
            }
            for unit in range(6)
            for worker in range(level)
        ],
    }
