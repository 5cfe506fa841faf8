"""``marigold doctor``: whether the live instance is really bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from marigold_assets.cli.failing import FOUND, CannotError
from marigold_assets.cli.finite import LONGEST_SECONDS, FiniteRange
from marigold_assets.cli.interrupting import interrupted_when_ended
from marigold_assets.cli.options import location_options

if TYPE_CHECKING:
    import dagster as dg

    from marigold_assets.location import LocationOptions
    from marigold_assets.preflight.findings import Finding
    from marigold_assets.preflight.proving import Proof
    from marigold_assets.preflight.settings import InstanceSettings

_NO_BOUND = "Nothing was launched to prove a bound: there is none."
EXAMPLES = """
\b
Examples:
  marigold doctor                 what is well with the instance, and what is not
  marigold doctor --strict        for CI: warnings count as well
  marigold doctor --prove --yes   launch some runs that do nothing, and watch
"""


@click.command(epilog=EXAMPLES)
@location_options
@click.option("--instance-only", is_flag=True, help="Do not look at a code location.")
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning, too.")
@click.option("--prove", is_flag=True, help="Launch sentinels, which only sleep, and watch whether the limit holds.")
@click.option("--yes", is_flag=True, help="With --prove: do not ask.")
@click.option(
    "--timeout",
    default=240.0,
    show_default=True,
    type=FiniteRange(min=1, max=LONGEST_SECONDS),
    metavar="SECONDS",
    help="With --prove: how long to watch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    *,
    options: LocationOptions,
    instance_only: bool,
    strict: bool,
    prove: bool,
    yes: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Look whether the instance bounds every backfill and leaves room for production, and what else may go wrong.

    It looks at the instance that DAGSTER_HOME names, and at the databases of the code location. What cannot be found
    out counts as an error.

    Exits with 1 if there is an error, with 2 if it cannot look, or prove. Interrupted or terminated, --prove ends what
    it has launched; killed, each sentinel ends half a minute after it has started or was last watched.
    """
    from marigold_assets.cli.instance import live_instance
    from marigold_assets.errors import MarigoldError
    from marigold_assets.preflight.findings import Level, bounds, errors
    from marigold_assets.preflight.live import examine
    from marigold_assets.preflight.settings import read_settings

    with live_instance() as instance:
        settings = read_settings(instance)
        findings = examine(instance, settings, None if instance_only else options)
        if not as_json:
            _tell(findings, settings)
        proof: Proof | None = None
        if prove and not errors(bounds(settings)):
            try:
                with interrupted_when_ended():
                    proof = _prove(instance, settings, options, yes=yes, timeout=timeout)
            except (CannotError, MarigoldError) as failure:
                if as_json:
                    told = failure.message if isinstance(failure, CannotError) else str(failure)
                    _print_json(findings, settings, None, problem=told)
                raise
    if as_json:
        _print_json(findings, settings, proof, problem=_NO_BOUND if prove and proof is None else None)
    elif prove:
        _tell_proof(proof)
    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    if any(one.level in bad for one in findings) or (prove and (proof is None or not proof.holds)):
        raise click.exceptions.Exit(FOUND)


def _prove(
    instance: dg.DagsterInstance, settings: InstanceSettings, options: LocationOptions, *, yes: bool, timeout: float
) -> Proof:
    from marigold_assets import dagster_instance
    from marigold_assets.preflight.findings import Level
    from marigold_assets.preflight.live import examine_daemon
    from marigold_assets.preflight.proving import prove

    daemon = examine_daemon(instance)
    if daemon.level is not Level.OK:
        raise CannotError(f"Nothing can be proven. {daemon.message}. Remedy: {daemon.remedy}.")
    if not yes:
        click.confirm("Launch some runs that only sleep, and watch them for about a minute?", abort=True, err=True)
    workspace = list(options.workspace)
    with dagster_instance.api(
        instance,
        python_file=options.python_file,
        module_name=options.module_name,
        attribute=options.attribute,
        working_directory=options.working_directory,
        workspace=workspace,
    ) as api:
        return prove(instance, api, settings, timeout_seconds=timeout, say=lambda text: click.echo(text, err=True))


def _tell(findings: Sequence[Finding], settings: InstanceSettings) -> None:
    from rich.text import Text

    from marigold_assets.cli.columns import plain
    from marigold_assets.cli.rendering import console
    from marigold_assets.preflight.findings import Level

    to = console()
    words = {Level.OK: ("ok", "green"), Level.WARNING: ("warning", "yellow"), Level.ERROR: ("ERROR", "bold red")}
    to.print(Text(f"Instance {plain(settings.home or 'that keeps nothing')}", style="bold"))
    wide = max(len(one.code) for one in findings)
    told: set[str] = set()
    for one in findings:
        word, style = words[one.level]
        line = Text("  ", overflow="ignore", no_wrap=True)
        line.append(f"{word:<8}", style=style)
        line.append(f"{one.code:<{wide}}  {plain(one.message)}")
        to.print(line)
        if one.remedy:
            to.print(Text(f"{'':<{wide + 12}}Remedy: {plain(one.remedy)}", overflow="ignore", no_wrap=True))
        if one.lines and one.lines not in told:
            told.add(one.lines)
            for each in one.lines.splitlines():
                to.print(Text(f"{'':<{wide + 14}}{plain(each)}", overflow="ignore", no_wrap=True))
    counts = {level: sum(one.level is level for one in findings) for level in (Level.ERROR, Level.WARNING)}
    to.print(Text(_verdict(counts[Level.ERROR], counts[Level.WARNING]), style="bold"))


def _verdict(errors: int, warnings: int) -> str:
    told = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in ((errors, "error"), (warnings, "warning"))]
    if errors:
        return f"Not well: {', '.join(told)}."
    return f"Well, with {told[1]}." if warnings else "All is well."


def _tell_proof(proof: Proof | None) -> None:
    if proof is None:
        click.echo(_NO_BOUND)
        return
    click.echo(
        f"{'Proven' if proof.holds else 'NOT TRUE'}: of {proof.launched} runs of a backfill {proof.peak} ran at once,"
        f" and {proof.limit} may. Meanwhile a run that is no backfill's started within"
        f" {proof.production_seconds:.0f} s. (backfill {proof.backfill_id}, {proof.seconds:.0f} s)"
    )
    if not proof.holds:
        click.echo("Remedy: restart the daemon, which reads dagster.yaml only when it starts, and prove again.")


def _print_json(
    findings: Sequence[Finding], settings: InstanceSettings, proof: Proof | None, *, problem: str | None
) -> None:
    click.echo(json.dumps(_as_json(findings, settings, proof, problem), indent=2))


def _as_json(
    findings: Sequence[Finding], settings: InstanceSettings, proof: Proof | None, problem: str | None
) -> dict[str, Any]:
    from dataclasses import asdict

    from marigold_assets.preflight.findings import errors, is_bounded
    from marigold_assets.preflight.settings import backfill_slots

    return {
        "instance": settings.home,
        "is_well": not errors(findings),
        "is_bounded": is_bounded(settings),
        "backfill_slots": backfill_slots(settings),
        "findings": [{**asdict(one), "level": one.level.value} for one in findings],
        "proof": None if proof is None else {**asdict(proof), "holds": proof.holds},
        "not_proven": problem,
    }
