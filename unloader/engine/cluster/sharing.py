"""Which Dask worker gets which places of a run, and which seats of its machine. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct


class Home(Struct, frozen=True, kw_only=True):
    """Where an agent is."""

    address: str
    """Of its Dask worker."""
    host: str
    """Name of the machine, as the user knows it."""
    machine: str
    """Tells the machine from others."""
    threads: int
    problem: str = ""
    """Why it does not fit the run."""
    hint: str = ""

    @property
    def label(self) -> str:
        """Both names."""
        return f"{self.host} ({self.address})"


def shared(homes: Sequence[Home], places: int) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Share the places of a run out to Dask workers, over machines and then over their workers.

    So the first places are as many machines as there are, and a run with few workers uses all
    machines alike.

    Args:
        homes: The Dask workers; one takes as many places as it has threads.
        places: How many; not more than there are threads.

    Returns:
        By address, each place with the number of its seat among those of its machine.
    """
    left = {home.address: home.threads for home in homes}
    machines: dict[str, list[Home]] = defaultdict(list)
    for home in sorted(homes, key=lambda each: each.address):
        machines[home.machine].append(home)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    seats: dict[str, int] = defaultdict(int)
    number = 0
    while number < places:
        before = number
        for machine, there in machines.items():
            free = _freest(there, left, found)
            if free is None or number == places:
                continue
            found[free.address].append((number, seats[machine]))
            seats[machine] += 1
            left[free.address] -= 1
            number += 1
        if number == before:
            break
    return {address: tuple(each) for address, each in found.items()}


def _freest(
    homes: Sequence[Home], left: Mapping[str, int], found: Mapping[str, list[tuple[int, int]]]
) -> Home | None:
    able = [home for home in homes if left[home.address] > 0]
    return min(able, key=lambda home: len(found.get(home.address, ())), default=None)


def vacant_for(
    home: Home, vacant: Mapping[int, str], taken: set[int]
) -> tuple[tuple[int, int], ...]:
    """Return the vacant places that a Dask worker takes that has come, with seats on its machine.

    Args:
        home: The Dask worker.
        vacant: The places without an agent, each with the machine that it was on.
        taken: Numbers of the seats of its machine that others have.
    """
    chosen = sorted(vacant, key=lambda place: (vacant[place] != home.machine, place))
    free = (number for number in range(len(taken) + home.threads) if number not in taken)
    return tuple(sorted(zip(chosen[: home.threads], free, strict=False)))
