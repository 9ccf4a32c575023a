"""The page of a report: which charts and which template."""

from __future__ import annotations

from msgspec import to_builtins

from unloader.report.charts.of_run import run_charts
from unloader.report.charts.of_sweep import sweep_charts
from unloader.report.model import RunReport
from unloader.report.of_tables import TablesReport
from unloader.report.page import page
from unloader.report.sweep_report import SweepPage

Report = RunReport | TablesReport | SweepPage


def page_of(report: Report) -> str:
    """Return the page of a report.

    Raises:
        ConfigError: A library is missing.
    """
    if isinstance(report, TablesReport):
        return tables_page(report)
    return run_page(report) if isinstance(report, RunReport) else sweep_page(report)


def tables_page(report: TablesReport) -> str:
    """Return the page of a run over several tables.

    Raises:
        ConfigError: A library is missing.
    """
    return page("tables.html", to_builtins(report), ())


def sweep_page(report: SweepPage) -> str:
    """Return the page of a sweep.

    Raises:
        ConfigError: A library is missing.
    """
    return page("sweep.html", to_builtins(report), sweep_charts(report))


def run_page(report: RunReport) -> str:
    """Return the page of a run.

    Raises:
        ConfigError: A library is missing.
    """
    nodes = sorted({node for sample in report.samples for node in sample.cpu_by_node}, key=str)
    columns = [(f"node {node}", f"cpu_by_node.{node}", "share") for node in nodes]
    return page("run.html", to_builtins(report), run_charts(report), {"node_columns": columns})
