"""`python -m marigold_assets.market`: a week of Marigold Market without a user interface."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, cast

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager
from marigold_assets.market.definitions import ASSETS, CHECKS, WAREHOUSE, defs
from marigold_assets.market.orders import END_DAY, FIRST_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A week with everything in it: busy days, refunds, and the closed one.
_DEFAULT_FROM: Final = date(2024, 12, 23)
_DEFAULT_DAYS: Final = 7
_DAILY: Final = ("raw_orders", "daily_sales")
_CHAINS: Final = ("sales_to_date", "customer_tiers")
_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Materialize some days and the report, and print what the warehouse then holds.

    Returns:
        The exit code: 0 when every run and every check passed, otherwise 1.
    """
    days = _days(arguments)
    # With DAGSTER_HOME the runs stand in the history that the user interface shows; without it they leave no
    # trace but the data.
    persistent = bool(os.environ.get("DAGSTER_HOME"))
    with dg.DagsterInstance.get() if persistent else dg.DagsterInstance.ephemeral() as instance:
        problems = list(_build_days(instance, days)) or list(_materialize(instance, None, ["revenue_report"]))
        if not problems:
            _print_report(instance)
    print(f"\nwarehouse: {WAREHOUSE}", flush=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _days(arguments: Sequence[str] | None) -> list[date]:
    parser = argparse.ArgumentParser(
        prog="python -m marigold_assets.market",
        description="Materialize days of Marigold Market, then print the revenue report.",
    )
    parser.add_argument(
        "--from",
        dest="first",
        type=date.fromisoformat,
        default=_DEFAULT_FROM,
        metavar="YYYY-MM-DD",
        help="first day; default: %(default)s",
    )
    parser.add_argument(
        "--days", type=int, default=_DEFAULT_DAYS, metavar="N", help="how many days; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    last = options.first + timedelta(days=options.days - 1)
    if not FIRST_DAY <= options.first <= last < END_DAY:
        parser.error(f"the days have to lie in Marigold Market's calendar [{FIRST_DAY}, {END_DAY})")
    return [options.first + timedelta(days=n) for n in range(options.days)]


def _build_days(instance: dg.DagsterInstance, days: Sequence[date]) -> Iterator[str]:
    """Materialize day by day, and print at once what the warehouse then holds of each; yield what went wrong."""
    names = f"{'day':<12}{'raw_orders':>12}{'daily_sales':>13}{'revenue':>14}"
    print(f"{names}{'sales_to_date':>17}{'silver':>8}{'gold':>6}", flush=True)
    with_chains = _has_past(days[0])
    for day in days:
        problems = list(_materialize(instance, day, [*_DAILY, *(_CHAINS if with_chains else ())]))
        yield from problems
        if not problems:
            raw, sales = (_load(instance, asset, str(day)) for asset in _DAILY)
            shown = f"{day!s:<12}{len(raw):>12,}{len(sales):>13,}{_cents_of(sales):>14}"
            print(shown + (_chains_of(instance, day) if with_chains else f"{'-':>17}{'-':>8}{'-':>6}"), flush=True)
    if not with_chains:
        print(
            f"\n{' and '.join(_CHAINS)} were left out: each of their days needs the day before, and not all days from"
            f" {FIRST_DAY} to {days[0] - timedelta(days=1)} are built. Start at {FIRST_DAY}, or build them in the user"
            " interface.",
            flush=True,
        )


def _has_past(day: date) -> bool:
    """Whether the chains can be built from a day on, which they cannot be without the day before it."""
    if day == FIRST_DAY or not WAREHOUSE.is_file():
        return day == FIRST_DAY
    store = cast("FencedPartitionIOManager", (defs.resources or {})["io_manager"]).store
    before = str(day - timedelta(days=1))
    return {entry.owner for entry in store.ledger() if entry.partition_key == before} >= set(_CHAINS)


def _chains_of(instance: dg.DagsterInstance, day: date) -> str:
    totals, tiers = (_load(instance, asset, str(day)) for asset in _CHAINS)
    valid = tiers[tiers["valid_to"].isna()]["tier"]
    return f"{_cents_of(totals):>17}{int((valid == 'silver').sum()):>8,}{int((valid == 'gold').sum()):>6,}"


def _materialize(instance: dg.DagsterInstance, day: date | None, assets: Sequence[str]) -> Iterator[str]:
    """Materialize assets for one day, or without a day those that have no days; yield what went wrong."""
    what = assets[0] if day is None else str(day)
    result = dg.materialize(
        [*ASSETS, *CHECKS],
        selection=assets,
        partition_key=None if day is None else str(day),
        resources=defs.resources,
        instance=instance,
        run_config=_QUIET,
        raise_on_error=False,
    )
    if not result.success:
        yield f"{what}: run {result.run_id} failed"
    for evaluation in result.get_asset_check_evaluations():
        if not evaluation.passed:
            yield f"{what}: check {evaluation.check_name} failed: {evaluation.metadata}"


def _print_report(instance: dg.DagsterInstance) -> None:
    """Print Nadia's report, one line per month and store."""
    print(f"\n{'month':<9}{'store':<12}{'days':>5}{'orders':>9}{'refunds':>9}{'revenue':>14}")
    report = _load(instance, "revenue_report", None).sort_values(["month", "store"])
    for row in report.to_dict("records"):
        counts = f"{row['days']:>5}{row['orders']:>9,}{row['refunds']:>9,}"
        print(f"{row['month']:<9}{row['store']:<12}{counts}{_money(row['revenue_cents']):>14}")


def _load(instance: dg.DagsterInstance, asset: str, key: str | None) -> pd.DataFrame:
    frame = defs.load_asset_value(asset, python_type=pd.DataFrame, instance=instance, partition_key=key)
    return cast("pd.DataFrame", frame)


def _cents_of(rows: pd.DataFrame) -> str:
    return _money(int(rows["revenue_cents"].sum()))


def _money(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


if __name__ == "__main__":
    sys.exit(main())
