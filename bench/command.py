"""What the command line offers."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import guard, markdown, overview, plots
from bench.driver import HERE, Driver, find_pythons
from bench.peers import CANDIDATE, LIMIT, PEERS
from bench.scenarios import select, workloads
from bench.summary import Row, row_from_json, row_to_json, summarise
from bench.workloads import Workload

# Some modules of peers end in an underscore, to be told from the libraries.
THEY = {key.rstrip("_"): key for key in PEERS if key not in (CANDIDATE, LIMIT)}
SAVED_RATIOS = HERE / "ratios.json"
DESCRIPTION = """Measures fastopt against the peers that are installed and against the limits of the
machine. Only ratios within one run count, since other programs share the memory: all contestants
take turns, each in a process of its own."""


def _numbers(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def _peers(text: str) -> list[str]:
    names = [name.rstrip("_") for name in text.split(",")]
    unknown = set(names) - set(THEY)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no peer {', '.join(sorted(unknown))}; there are {', '.join(THEY)}"
        )
    return [THEY[name] for name in names]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="bench", description=DESCRIPTION)
    add = made.add_argument
    add("names", nargs="*", metavar="NAME", help="start of a path (sparse/adagrad), or a pattern")
    add("--list", action="store_true", help="print the scenarios and end")
    add("--asides", action="store_true", help="measure what the docs say beside the table, and end")
    add("--quick", action="store_true", help="a few telling scenarios, in about two minutes")
    add("--threads", type=_numbers, default=[1, 2], metavar="N,N", help="default: 1,2")
    add("--rounds", type=int, help="turns of each contestant (default: 5; quick: 3)")
    add("--seconds", type=float, default=0.05, help="least length of a turn (default: 0.05)")
    add("--peers", type=_peers, metavar="P,P", help=f"only these, of {', '.join(THEY)}")
    add("--python", action="append", default=[], metavar="PATH",
        help="another interpreter whose libraries take part (repeatable)")  # fmt: skip
    add("--memory-gb", type=float, help="for all contestants of a scenario (default: half of ours)")
    add("--skip-larger-gb", type=float, default=8.0, metavar="GB",
        help="leave out scenarios of which one contestant needs more (default: 8)")  # fmt: skip
    add("--out", type=Path, default=Path("bench-results"), metavar="DIR",
        help="where tables and plots go (default: bench-results)")  # fmt: skip
    add("--add", action="store_true", help="keep rows of DIR that this run doesn't measure again")
    add("--save-ratios", action="store_true", help="make this run the one to compare with")
    add("--check", action="store_true", help="fail if a ratio fell by more than 20 %%")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        chosen = select(options.names, workloads(options.quick))
    except ValueError as error:
        made.error(str(error))
    if options.asides:
        from bench import asides  # needs fastopt here, where all else has it in the workers

        asides.main()
        return 0
    if options.list:
        for work in chosen:
            print(f"{work.name:44} {work.describe()}")
        return 0
    chosen = [work for work in chosen if work.megabytes <= options.skip_larger_gb * 1024]
    rows, context = _measure(options, chosen)
    earlier = options.out / "table.json"
    if options.add and earlier.exists():
        rows, context = _with_earlier(rows, context, json.loads(earlier.read_text()))
    text = markdown.document(rows, context)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "table.md").write_text(text)
    (options.out / "overview.md").write_text(markdown.short(overview.telling(rows)))
    record = {"context": context, "rows": [row_to_json(row) for row in rows]}
    (options.out / "table.json").write_text(json.dumps(record, indent=1) + "\n")
    drawn = plots.draw(rows, options.out)
    print(text)
    print(f"Written: table.md, overview.md, table.json and {len(drawn)} plots in {options.out}")
    if options.check:
        found = guard.slower(guard.ratios(rows), guard.load(SAVED_RATIOS))
        print("\n".join(["Slower than saved:", *found] if found else ["Not slower than saved."]))
        if found:
            return 1
    if options.save_ratios:
        guard.save(rows, SAVED_RATIOS)
    return 0


def _measure(
    options: argparse.Namespace, chosen: Sequence[Workload]
) -> tuple[list[Row], dict[str, Any]]:
    spec = find_spec("fastopt")
    checkout = spec is not None and Path(str(spec.origin)).is_relative_to(HERE.parent)
    keys = [k for k in PEERS if not options.peers or k in (CANDIDATE, LIMIT, *options.peers)]
    pythons, versions = find_pythons([sys.executable, *options.python], keys, checkout)
    if CANDIDATE not in pythons:
        sys.exit("fastopt is not installed, and not built in the checkout")
    rounds = options.rounds or (3 if options.quick else 5)
    budget = (options.memory_gb or _memory_gb() / 2) * 1024
    load = [os.getloadavg()[0]]
    rows: list[Row] = []
    start = time.monotonic()
    interrupted = contextlib.suppress(KeyboardInterrupt)  # what was measured is written
    with interrupted, Driver(pythons, rounds, options.seconds, budget, checkout) as driver:
        for threads in options.threads:
            for work in chosen:
                row = summarise(work, threads, driver.measure(work, threads))
                rows.append(row)
                load.append(os.getloadavg()[0])
                _tell(row, time.monotonic() - start)
            driver.stop()
    order = {work.name: k for k, work in enumerate(chosen)}
    rows.sort(key=lambda row: (order[row.work.name], row.threads))
    return rows, {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": versions,
        "load": [min(load), max(load)],
        "rounds": rounds,
        "turn_seconds": options.seconds,
        "command": shlex.join(["python", "-m", "bench", *_own_arguments(options)]),
        "date": time.strftime("%Y-%m-%d"),
    }


def _own_arguments(options: argparse.Namespace) -> list[str]:
    """Return what chose the rows: paths of this machine tell a reader nothing."""
    quick = ["--quick"] if options.quick else []
    return [*quick, *options.names]


def _tell(row: Row, seconds: float) -> None:
    ratio, limit = markdown.ratio(row.times_best_peer), markdown.ratio(row.of_limit)
    best = row.peers[0].name if row.peers else "no peer"
    print(
        f"[{seconds:5.0f} s] {row.work.name} @{row.threads}: {ratio} times {best},"
        f" {limit} of limit",
        file=sys.stderr,
        flush=True,
    )
    for entry in row.absent:
        print(f"          {entry.name}: {entry.note}", file=sys.stderr, flush=True)


def _with_earlier(
    rows: Sequence[Row], context: dict[str, Any], record: dict[str, Any]
) -> tuple[list[Row], dict[str, Any]]:
    """Add rows that were measured before; what is said of the run is then said of both."""
    now = {(row.work.name, row.threads) for row in rows}
    earlier = [row_from_json(row) for row in record["rows"]]
    merged = [row for row in earlier if (row.work.name, row.threads) not in now] + list(rows)
    order = {work.name: k for k, work in enumerate(workloads())}
    merged.sort(key=lambda row: (order.get(row.work.name, len(order)), row.threads))
    before = record["context"]
    load = [*before["load"], *context["load"]]
    return merged, context | {
        "load": [min(load), max(load)],
        "versions": before["versions"] | context["versions"],
        "command": "python -m bench",
    }


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())
