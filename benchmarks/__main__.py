"""Run benchmarks and print every figure beside its bound.

Rivals are measured in turn in one run, so that a slow moment of the machine hits all of them; ratios are medians of
the ratios round by round. Each line tells how much the other side, the floor or the peer, varied by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import duckdb

from benchmarks import (
    bill,
    daemon,
    growth,
    io_manager,
    memory,
    partitioned,
    planning,
    plans,
    proving,
    starvation,
    swap,
    versions,
    writers,
)
from benchmarks.measuring import table

_BENCHMARKS = {
    "swap": swap.run,
    "io_manager": io_manager.run,
    "growth": growth.run,
    "writers": writers.run,
    "memory": memory.run,
    "daemon": daemon.run,
    "partitioned": partitioned.run,
    "versions": versions.run,
    "proving": proving.run,
    "starvation": starvation.run,
    "planning": planning.run,
    "plans": plans.run,
    "bill": bill.run,
}


def main() -> int:
    """Run what was asked for; the exit code tells whether every bound was kept."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes: under a minute, less exact")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--folder", type=Path, help="where to put the databases while measuring; default: a temporary one"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(_BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")

    releases = {"duckdb": duckdb.__version__, "python": sys.version.split()[0]}
    if not options.json:
        print(", ".join(f"{name} {version}" for name, version in releases.items()), flush=True)
    figures = []
    for name, run in _BENCHMARKS.items():
        if options.names and name not in options.names:
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="marigold-benchmarks-", dir=options.folder) as folder:
            found = run(Path(folder), quick=options.quick)
        if not options.json:
            print(f"\n{table(found)}\n({name}: {time.monotonic() - begun:.0f} s)", flush=True)
        figures += found
    if options.json:
        print(json.dumps({**releases, "figures": [{**asdict(f), "verdict": f.verdict} for f in figures]}, indent=2))
    return int(any(figure.verdict == "OVER" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
