"""The laws of scaling: seconds as a function of parallelism, up to a factor; and their knees.

A law has parameters that are searched in a box, most of them by their logarithm. Its form is the
logarithm of the seconds of a level relative to those of one worker:

- linear: n workers take an nth of the time.
- amdahl: a share of the work (contention) is done by one worker at a time.
- usl, the universal scalability law (Gunther 1993): beside that, each worker waits for each other
  one (coherency), so that throughput falls from some point on.
- two-lines: throughput is linear up to a bend, and from there on each worker adds a share of what
  one added before, as where cores run out and second threads are left.

Parameters and levels are arrays of numpy, so that many curves are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

KNEE_SHARE = 0.5
"""Of what the first worker brings: beyond the knee, another worker brings less."""

_NOTHING = 1e-6
"""A parameter that is searched by its logarithm and is no larger has no effect."""


class Law(Struct, frozen=True, kw_only=True):
    """A law of scaling."""

    name: str
    parameters: tuple[str, ...]
    form: Callable[[Any, Any], Any]
    """Of parameters in the last axis, and of levels, which become that axis."""
    knee: Callable[[Any], Any]
    """Of the same parameters; infinite where there is none."""
    box: Callable[[Any], tuple[tuple[float, float], ...]]
    """Least and largest value of each parameter, as searched, for these levels."""

    @property
    def freedom(self) -> int:
        """How many numbers are fitted, the factor included."""
        return len(self.parameters) + 1

    def shown(self, parameters: Any) -> dict[str, float]:
        """Return the values of parameters by their names."""
        pairs = zip(self.parameters, map(float, parameters), strict=True)
        return {name: _plain(name, value) for name, value in pairs}


def _plain(name: str, value: float) -> float:
    if name not in ("contention", "coherency"):
        return value
    return float(np.exp(value)) if np.exp(value) > _NOTHING else 0.0


def _linear(parameters: Any, levels: Any) -> Any:
    return np.broadcast_to(-np.log(levels), (*parameters.shape[:-1], len(levels)))


def _two(parameters: Any) -> tuple[Any, Any]:
    return parameters[..., :1], parameters[..., 1:2]


def _usl(parameters: Any, levels: Any) -> Any:
    contention, coherency = _two(parameters)
    waits = np.exp(contention) * (levels - 1) + np.exp(coherency) * levels * (levels - 1)
    return np.log1p(waits) - np.log(levels)


def _amdahl(parameters: Any, levels: Any) -> Any:
    return np.log1p(np.exp(parameters[..., :1]) * (levels - 1)) - np.log(levels)


def _two_lines(parameters: Any, levels: Any) -> Any:
    bend, share = _two(parameters)
    return -np.log(np.minimum(levels, bend) + share * np.maximum(levels - bend, 0))


def _no_knee(parameters: Any) -> Any:
    return np.full(parameters.shape[:-1], np.inf)


def _usl_knee(parameters: Any) -> Any:
    return _knee_of(np.exp(parameters[..., 0]), np.exp(parameters[..., 1]))


def _amdahl_knee(parameters: Any) -> Any:
    contention = np.exp(parameters[..., 0])
    return _knee_of(contention, np.zeros_like(contention))


def _knee_of(contention: Any, coherency: Any) -> Any:
    """Return where the slope of throughput falls below the share of the first worker's."""
    low, high = np.zeros_like(contention), np.full_like(contention, 24.0)
    # By halves of the logarithm, as the slope falls from its first value without a turn.
    for _ in range(40):
        middle = (low + high) / 2
        level = np.exp(middle)
        waits = 1 + contention * (level - 1) + coherency * level * (level - 1)
        slope = (1 - contention - coherency * level**2) / waits**2
        low = np.where(slope >= KNEE_SHARE, middle, low)
        high = np.where(slope >= KNEE_SHARE, high, middle)
    return np.exp(low)


def _two_lines_knee(parameters: Any) -> Any:
    return np.where(parameters[..., 1] < KNEE_SHARE, parameters[..., 0], np.inf)


_SHARES = (float(np.log(_NOTHING / 10)), 0.0)
_PAIRS = (float(np.log(_NOTHING / 1000)), 0.0)

LAWS = (
    Law(name="linear", parameters=(), form=_linear, knee=_no_knee, box=lambda levels: ()),
    Law(
        name="amdahl",
        parameters=("contention",),
        form=_amdahl,
        knee=_amdahl_knee,
        box=lambda levels: (_SHARES,),
    ),
    Law(
        name="usl",
        parameters=("contention", "coherency"),
        form=_usl,
        knee=_usl_knee,
        box=lambda levels: (_SHARES, _PAIRS),
    ),
    Law(
        name="two-lines",
        parameters=("bend", "share"),
        form=_two_lines,
        knee=_two_lines_knee,
        box=lambda levels: ((float(levels.min()), float(levels.max())), (0.0, 1.0)),
    ),
)
"""From the one with the fewest parameters; linear is a special case of each of the others."""
