"""How fast it would be, and on which machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from unloader.errors import translated
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Request, SeatOptions
from unloader.resolve.resolution import prepared
from unloader.selection.choice import TablesRequest
from unloader.tuning.codec_choice import SampleBudget, report

if TYPE_CHECKING:
    from unloader.placement.survey import Survey
    from unloader.tuning.ceilings import Ceilings
    from unloader.tuning.codec_choice import CodecReport
    from unloader.tuning.preflight_measuring import Budget
    from unloader.tuning.sizing_records import Question, Sizing


def measure_codecs(
    request: Request,
    *,
    budget: SampleBudget,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> CodecReport:
    """Return the size and the speed of each codec on a sample of the rows.

    Args:
        request: As for `unload`; only the disk of its destination is measured, or of the current
            directory where it is empty.
        budget: How much the sample may take.
        observe: Called with each event, in this thread.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """

    asked = TablesRequest.one(request)
    with translated(), prepared(asked, stop=stop, observe=observe) as ready:
        observe(PhaseStarted(phase="measuring"))
        return report(ready.tables[0], budget=budget, stop=stop)


def preflight(
    request: Request,
    budget: Budget,
    *,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Ceilings:
    """Measure what disks, source, encoder and connection of a run can give; nothing is kept.

    Args:
        request: As for `unload`. The kind of its source may be empty, and so may its destination:
            what belongs to them is then left blank.
        budget: The parts to measure, and the largest amounts for them.
        observe: Called with each event, in this thread.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.tuning.preflight_measuring import measure

    with translated():
        return measure(request, budget, observe=observe, stop=stop)


def size(question: Question, *, files: tuple[str, ...], like_record: bool = False) -> Sizing:
    """Return how much machine an unload needs, or how long it takes, with the arithmetic.

    Args:
        question: The table, the time and the machine.
        files: The measurements: manifests, points of a sweep, ceilings.
        like_record: Take the rates of a published record, too.

    Raises:
        UnloaderError: UsageError if something is missing, ConfigError or OutputFailed if a file
            cannot be used.
    """
    from unloader.tuning.sizing_arithmetic import size as reckon
    from unloader.tuning.sizing_basis import basis_of

    with translated():
        return reckon(question, basis_of(files, like_record=like_record))


def topology(
    options: SeatOptions,
    *,
    parallelism: int = 0,
    tree: Path | None = None,
    allowed_cpus: frozenset[int] | None = None,
) -> Survey:
    """Return a machine's NUMA nodes and the seats of a number of workers on it.

    Args:
        options: How workers are placed.
        parallelism: Number of workers; 0 = all CPUs that can be used in parallel.
        tree: Another machine's folder laid out as /sys/devices/system, or a file that
            `recorded_machine` made of one; None = this machine.
        allowed_cpus: Only these CPUs; None = all of the tree, or all that we may use here.

    Raises:
        UnloaderError: ConfigError if the files, the nodes, the CPUs or the device are not there.
    """
    from unloader.placement.survey import survey

    with translated():
        return survey(options, parallelism=parallelism, tree=tree, allowed_cpus=allowed_cpus)


def recorded_machine(tree: Path | None = None) -> str:
    """Return the files that describe a machine as one text, for `topology` to read elsewhere.

    Args:
        tree: As for `topology`.

    Raises:
        UnloaderError: ConfigError if the files are missing.
    """
    from unloader.placement.survey import recording

    with translated():
        return recording(tree)
