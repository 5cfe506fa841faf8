"""``marigold launch``: a plan becomes a backfill, once it is shown, agreed to, and still what there is to do."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marigold_assets.cli.failing import FOUND, CannotError
from marigold_assets.cli.interrupting import interrupted_when_ended
from marigold_assets.cli.options import location_options
from marigold_assets.cli.plan_options import optional_request_options
from marigold_assets.planning.model import MOST_PARTITIONS

if TYPE_CHECKING:
    from marigold_assets.backfill.launching import Launching
    from marigold_assets.backfill.refusing import Wish
    from marigold_assets.backfill.replanning import Planner
    from marigold_assets.cli.instance import Ledgers
    from marigold_assets.location import LocationOptions
    from marigold_assets.planning.model import BackfillPlan, Request
    from marigold_assets.planning.submitting import Submission

_NOW_WHAT = "Look: marigold status {0} --watch; stop it: marigold cancel {0}"

EXAMPLES = """
\b
Examples:
  marigold launch raw_orders --from 2024-01-01 --to 2024-03-31
  marigold launch 'raw_orders+' --canary 3 --max-failures 5 --watch
  marigold plan raw_orders --save plan.json; marigold launch --plan plan.json --yes
"""


@click.command(epilog=EXAMPLES)
@optional_request_options
@location_options
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A plan that 'marigold plan --save FILE' wrote, instead of SELECTION.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show the plan, and say what would be refused.")
@click.option(
    "--canary",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="First launch N partitions of each asset, and the rest when they and their checks are well. They are spread"
    " over the range and the reasons; with a chain in the plan they are the first ones.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(min=0),
    metavar="N",
    help="Cancel the rest when more than N runs have failed, whoever watches.",
)
@click.option(
    "--max-partitions",
    type=click.IntRange(min=1),
    default=MOST_PARTITIONS,
    show_default=True,
    metavar="N",
    help="Refuse to launch more.",
)
@click.option("--skip-blocked", is_flag=True, help="Launch the rest where partitions lack an input.")
@click.option("--unbounded", metavar="REASON", help="Launch although the instance does not bound backfills.")
@click.option("--without-daemon", is_flag=True, help="Launch although no daemon runs: it begins when one is started.")
@click.option("--title", metavar="TEXT", help="What people read of it in the user interface.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag of its runs; may be repeated.")
@click.option(
    "--watch",
    is_flag=True,
    help="Show how far it is until it is over; exit with 1 if not all is built then, or a check has failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def launch(
    request: Request | None,
    *,
    options: LocationOptions,
    plan_file: Path | None,
    yes: bool,
    dry_run: bool,
    canary: int,
    max_failures: int | None,
    max_partitions: int,
    skip_blocked: bool,
    unbounded: str | None,
    without_daemon: bool,
    title: str | None,
    tags: tuple[str, ...],
    watch: bool,
    as_json: bool,
) -> None:
    """Launch the backfill that 'marigold plan' shows, after showing it and asking.

    It becomes a backfill of Dagster, with its price in the description, and works through whoever closes this window;
    the daemon runs it, oldest partitions first unless told otherwise, behind production. Nothing is launched if the
    ledger has moved so that another plan is due, another backfill is at the same partitions, the instance does not
    bound backfills or no daemon runs.

    Exits with 0 if it was launched or there is nothing to build, 1 if a canary is not well, 2 if it was refused.
    """
    from marigold_assets.backfill.refusing import Wish

    if (request is None) == (plan_file is None):
        raise click.UsageError("Say what to build: SELECTION, or --plan FILE; one of them.")
    if unbounded is not None and not unbounded.strip():
        raise click.UsageError("--unbounded is blank: say why.")
    wish = Wish(
        most_partitions=max_partitions,
        max_failures=max_failures,
        canary=canary,
        title=title,
        tags=_tags(tags),
        skip_blocked=skip_blocked,
        unbounded=unbounded,
        without_daemon=without_daemon,
    )
    _Launch(options, wish, yes=yes, dry_run=dry_run, watch=watch, as_json=as_json).run(request, plan_file)


def _tags(given: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--tag is {text!r}: give NAME=VALUE.")
        found[name] = value
    return found


class _Launch:
    def __init__(
        self, options: LocationOptions, wish: Wish, *, yes: bool, dry_run: bool, watch: bool, as_json: bool
    ) -> None:
        self._options, self._wish = options, wish
        self._yes, self._dry_run, self._watch, self._as_json = yes, dry_run, watch, as_json

    def run(self, request: Request | None, plan_file: Path | None) -> None:
        from marigold_assets.backfill import refusing
        from marigold_assets.backfill.launching import Launching, new_launch
        from marigold_assets.backfill.replanning import Planner
        from marigold_assets.cli.instance import Ledgers, live_instance
        from marigold_assets.location import load
        from marigold_assets.planning.submitting import submissions

        with live_instance() as instance:
            location = load(self._options)
            again = Planner(location, instance, self._options)
            plan = again.make(request) if request is not None else _from_file(plan_file)
            self._show(plan, again.orders(plan))
            refusing.refuse_plan(plan, self._wish)
            if plan.is_empty:
                self._say({"launch": None, "partitions": 0}, "There is nothing to build, and nothing was launched.")
                return
            refusing.refuse_instance(instance, self._wish)
            refusing.refuse_others(instance, plan)
            parts = submissions(plan, canary=self._wish.canary)
            if plan_file is not None:
                again.refuse_changed(plan)
            if self._dry_run:
                self._say({"launch": None, "partitions": plan.size}, "Nothing was launched, as --dry-run says.")
                return
            self._ask(plan)
            again.refuse_moved(plan)
            refusing.refuse_others(instance, plan)
            launching = Launching(
                launch=new_launch(),
                plan=plan,
                wish=self._wish,
                instance=instance,
                location=location,
                options=self._options,
            )
            ledgers = Ledgers(self._options, instance, location=location)
            backfills = self._submit(launching, parts, ledgers, again)
            self._launched(launching, backfills)
            if self._watch:
                self._watch_it(launching, ledgers)

    def _watch_it(self, launching: Launching, ledgers: Ledgers) -> None:
        from marigold_assets.cli.resuming import how_to_go_on
        from marigold_assets.cli.status import watched

        name = launching.launch
        with _named_when_interrupted(f"\nLaunch {name} goes on. {_NOW_WHAT.format(name)}"):
            progress = watched(launching.instance, ledgers, name)
        if not progress.is_well:
            if (said := how_to_go_on(progress, ledgers, self._options)) is not None:
                click.echo(said, err=True)
            raise click.exceptions.Exit(FOUND)

    def _show(self, plan: BackfillPlan, orders: Mapping[str, Sequence[str | None]]) -> None:
        if self._as_json:
            return
        from marigold_assets.cli.plan_report import Page
        from marigold_assets.cli.rendering import MOST, console

        Page(plan, orders=orders, to=console(), most=MOST).show()
        click.echo()

    def _ask(self, plan: BackfillPlan) -> None:
        if self._yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody can be asked here, and nothing was launched: give --yes.")
        click.confirm(f"Launch {plan.size:,} partitions?", abort=True, err=True)

    def _submit(
        self,
        launching: Launching,
        parts: Sequence[Submission],
        ledgers: Ledgers,
        again: Planner,
    ) -> tuple[str, ...]:
        """Launch everything; with a canary, the rest of it once that is well."""
        from marigold_assets.backfill import refusing

        name = launching.launch
        if not parts[0].is_canary or len(parts) == 1:
            with _named_when_interrupted(f"\nLaunch {name} is canceled, as far as it was launched."):
                return launching.submit(parts)
        with _named_when_interrupted(f"\nThe canary of {name} is canceled, if it was launched at all."):
            canary = launching.submit(parts[:1])
        click.echo(f"Launched the canary of {name}: {parts[0].size} partitions ({canary[0]}).", err=True)
        with _named_when_interrupted(
            f"\nOnly the canary is launched, and it goes on. See what comes of it: marigold status {name}; then"
            f" launch the rest: {self._same_again(launching)}"
        ):
            self._await_canary(launching, ledgers)
            again.refuse_gone(launching.plan, parts[1:])
            refusing.refuse_others(launching.instance, launching.plan)
            return canary + launching.submit(parts[1:])

    def _same_again(self, launching: Launching) -> str:
        from marigold_assets.backfill import request, wishing

        asked = [*request.words_of(launching.plan.request), *wishing.words_of(self._wish)]
        return shlex.join(["marigold", "launch", *self._options.arguments(), *asked])

    def _await_canary(self, launching: Launching, ledgers: Ledgers) -> None:
        """Wait until the canary has ended, and stop here if it is not well."""
        from marigold_assets.cli.status import watched

        progress = watched(launching.instance, ledgers, launching.launch)
        wrong = [f"run {one.run_id}, {one.what}: {one.message}" for one in progress.troubles]
        wrong += [f"check {one}" for one in progress.failed_checks]
        if not progress.is_built and not wrong:
            wrong = [f"{progress.total - progress.done} of its partitions were not built"]
        if wrong:
            told = "\n".join(f"  {one}" for one in wrong)
            click.echo(
                f"The canary of launch {launching.launch} is not well, and the rest is not launched:\n{told}", err=True
            )
            raise click.exceptions.Exit(FOUND)

    def _launched(self, launching: Launching, backfills: Sequence[str]) -> None:
        from marigold_assets import dagster_instance
        from marigold_assets.backfill.price import Price
        from marigold_assets.cli.progress_report import of_price

        name = launching.launch
        kept = dagster_instance.backfill(launching.instance, backfills[0])
        price = Price.of_tags({} if kept is None else kept.tags) or Price.of(launching.plan)
        found = {
            "launch": name,
            "partitions": launching.plan.size,
            "backfills": list(backfills),
            "predicted": of_price(price),
        }
        ids = ", ".join(backfills[:4]) + (" ..." if len(backfills) > 4 else "")
        many = f"{len(backfills)} backfills" if len(backfills) > 1 else "backfill"
        self._say(found, f"Launched {name} ({many} {ids}): {price}.\n{_NOW_WHAT.format(name)}")

    def _say(self, found: Mapping[str, Any], text: str) -> None:
        click.echo(json.dumps(found, indent=2) if self._as_json else text)


@contextmanager
def _named_when_interrupted(text: str) -> Iterator[None]:
    """Say what is and what is not launched when somebody interrupts, or ends this process in the usual way."""
    try:
        with interrupted_when_ended():
            yield
    except KeyboardInterrupt:
        click.echo(text, err=True)
        raise


def _from_file(path: Path | None) -> BackfillPlan:
    from marigold_assets.planning.as_json import from_json

    try:
        found = json.loads(Path(str(path)).read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise CannotError(f"{path} holds no plan: {error}. Remedy: write one: marigold plan ... --save FILE.") from None
    return from_json(found)
