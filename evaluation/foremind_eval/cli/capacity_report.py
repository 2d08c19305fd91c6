"""`foremind bench capacity`: what a number of players costs."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from foremind.domain.settings.settings import Settings
from foremind_eval.benchmarks.figures import Say
from foremind_eval.capacity.check import Check, check_model
from foremind_eval.capacity.model import (
    Cost,
    Deployment,
    Prices,
    UnitCosts,
    Workload,
    deployment_for,
    negative_costs,
)
from foremind_eval.capacity.unit_costs import measure_unit_costs

_PLAYERS = (1_000, 5_000, 50_000, 500_000)


class CapacityReport(msgspec.Struct, frozen=True):
    """Unit costs as measured, what follows from them, and how far the model was off."""

    unit_costs: UnitCosts
    prices: Prices
    deployments: list[Deployment]
    checks: list[Check]


async def measure_capacity(
    settings: Settings,
    scratch: Path,
    prices: Prices,
    interval_s: float,
    memories: int,
    say: Say,
    *,
    check: bool,
) -> CapacityReport:
    """Measure unit costs, and compute what players need who send a message every `interval_s`."""
    costs = await measure_unit_costs(settings.in_scratch(scratch / "costs"), interval_s, say)
    checks = []
    if check:
        checks = await check_model(settings.in_scratch(scratch / "check"), costs, say)
    deployments = [
        deployment_for(Workload(players, interval_s, memories), costs, prices)
        for players in _PLAYERS
    ]
    return CapacityReport(costs, prices, deployments, checks)


def print_report(report: CapacityReport) -> None:
    """Print the report as tables."""
    console = Console()
    costs = Table("unit", "gateway CPU", "database CPU", "round trips", "database", "client")
    for name, cost in msgspec.structs.asdict(report.unit_costs).items():
        if not isinstance(cost, Cost):
            continue
        costs.add_row(
            name,
            f"{cost.gateway_cpu_ms:.2f} ms",
            f"{cost.database_cpu_ms:.2f} ms",
            f"{cost.database_round_trips:.1f}",
            f"{cost.database_bytes:,.0f} B",
            f"{cost.client_bytes:,.0f} B",
        )
    console.print(costs)
    unit = report.unit_costs
    if negative := negative_costs(unit):
        console.print(f"Below zero, which is an error of measurement: {', '.join(negative)}.")
    console.print(
        f"Of a keystroke, a server that only parses it takes {unit.bare_keystroke_cpu_ms:.2f} ms. "
        f"{unit.prefetches_per_message:.1f} prefetches for a message of "
        f"{unit.chars_per_message} characters. Memory: {unit.process_mib:.0f} MiB for a "
        f"gateway, {unit.idle_session_kib:.0f} KiB for an idle session, "
        f"{unit.typing_session_kib:.0f} KiB for a typing one, {unit.memory_kib:.1f} KiB for a "
        "memory that is loaded."
    )
    needs = Table("players", "gateways", "memory", "database cores", "nodes", "commits", "a month")
    for deployment in report.deployments:
        needs.add_row(
            f"{deployment.workload.players:,}",
            f"{deployment.gateways:,}",
            f"{deployment.gateway_gib:,.1f} GiB",
            f"{deployment.load.database_cores:,.1f}",
            f"{deployment.database_nodes:,}",
            f"{deployment.load.commits_per_s:,.0f}/s",
            f"{deployment.price:,.0f}",
        )
    console.print(needs)
    if report.checks:
        console.print(_checks(report.checks))


def _checks(checks: list[Check]) -> Table:
    table = Table("gateways", "players", "cores", "predicted", "error", "GiB", "predicted", "error")
    for check in checks:
        table.add_row(
            str(check.gateways),
            f"{check.players:,}",
            f"{check.cores:.2f}",
            f"{check.predicted_cores:.2f}",
            f"{check.cores_error:+.0%}",
            f"{check.gib:.2f}",
            f"{check.predicted_gib:.2f}",
            f"{check.gib_error:+.0%}",
        )
    return table
