"""The table, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.overview import Group, kinds
from bench.summary import Entry, Row

DASH = "–"


def duration(seconds: float | None) -> str:
    """Write a time with three digits and a unit that fits."""
    if seconds is None:
        return DASH
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0 or unit == "µs":
            return f"{three_digits(seconds * factor)} {unit}"
    raise AssertionError


def three_digits(value: float) -> str:
    """Write a number with three digits, or all those before its point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else three_digits(value)


def _speed(entry: Entry) -> str:
    rate = entry.examples_a_second
    return duration(entry.seconds) if rate is None else f"{rate / 1e3:,.0f} k/s"


def _spread(entry: Entry | None) -> str:
    if entry is None or entry.seconds is None or entry.low is None or entry.high is None:
        return DASH
    return f"{entry.low / entry.seconds:.2f}–{entry.high / entry.seconds:.2f}"


def _peer(entry: Entry) -> str:
    loss = "" if entry.loss is None else f", loss {entry.loss:.4f}"
    return f"{entry.name} {_speed(entry)} ({ratio(entry.ratio)}x{loss})"


def _line(row: Row) -> list[str]:
    ours, peers = row.ours, row.peers
    name = row.work.name.split("/", 1)[1]
    if ours is None or ours.seconds is None:
        own = DASH
    else:
        own = _speed(ours) + ("" if ours.loss is None else f", loss {ours.loss:.4f}")
    limit = row.limit
    return [
        name,
        str(row.threads),
        own,
        _spread(ours),
        f"{peers[0].name} {_speed(peers[0])}" if peers else DASH,
        f"**{ratio(row.times_best_peer)}**" if row.times_best_peer is not None else DASH,
        ratio(row.undisturbed),
        DASH if limit is None else f"{duration(limit.seconds)}",
        ratio(row.of_limit),
        "; ".join(map(_peer, peers)) or DASH,
    ]


HEAD = (
    "scenario",
    "threads",
    "fastopt",
    "spread",
    "best peer",
    "x best peer",
    "undisturbed",
    "limit",
    "of limit",
    "all peers (times fastopt's time)",
)
ALIGN = ("---", "---:", "---:", "---:", "---", "---:", "---:", "---:", "---:", "---")


def table(rows: Sequence[Row]) -> str:
    """Return one table for rows of one family."""
    lines = [HEAD, ALIGN, *map(_line, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _megabytes(entry: Entry) -> str:
    return DASH if entry.peak_extra_mb is None else f"{entry.peak_extra_mb:,.0f}"


def _memory(rows: Sequence[Row]) -> str:
    """Return what a step takes on top of tables and gradients, for the scaling scenarios."""
    lines: list[Sequence[str]] = [("scenario", "fastopt, MB", "peers, MB"), ("---", "---:", "---")]
    for row in rows:
        if row.threads != min(r.threads for r in rows):
            continue
        ours = row.ours
        own = DASH if ours is None else _megabytes(ours)
        theirs = [f"{entry.name} {_megabytes(entry)}" for entry in row.peers]
        lines.append((row.work.name.split("/", 1)[1], own, "; ".join(theirs) or DASH))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def medians(groups: Sequence[Group]) -> str:
    """Return a table of kinds of scenarios: medians, and the lowest ratios behind them."""
    lines: list[Sequence[str]] = [
        ("scenarios", "how many", "threads", "of limit", "times fastopt's time, median (lowest)"),
        ("---", "---:", "---:", "---:", "---"),
    ]
    for group in groups:
        limit = group.of_limit
        share = f"{ratio(statistics.median(limit))} ({ratio(min(limit))})" if limit else DASH
        theirs = [f"{name} {ratio(mid)} ({ratio(low)})" for name, mid, low in group.libraries]
        count, threads = str(group.scenarios), str(group.threads)
        lines.append((group.label, count, threads, share, "; ".join(theirs) or DASH))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def short(groups: Sequence[Group]) -> str:
    """Return the table that README shows: libraries in columns of threads."""
    threads = sorted({group.threads for group in groups})
    titles = [f"{n} thread{'s' if n > 1 else ''}" for n in threads]
    lines: list[Sequence[str]] = [("", *titles), ("---", *["---" for _ in threads])]
    for label in dict.fromkeys(group.label for group in groups):
        by_threads = {group.threads: group for group in groups if group.label == label}
        cells = []
        for n in threads:
            theirs = by_threads[n].libraries[:3] if n in by_threads else []
            cells.append(", ".join(f"{name} {ratio(mid)}" for name, mid, _ in theirs) or DASH)
        lines.append((label, *cells))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def document(rows: Sequence[Row], context: dict[str, Any]) -> str:
    """Return the tables of all families, and under what they were taken."""
    out = [f"{_context(context)}\n", f"## In short\n\n{medians(kinds(rows))}"]
    for family in dict.fromkeys(row.work.name.split("/", 1)[0] for row in rows):
        chosen = [row for row in rows if row.work.name.startswith(family + "/")]
        out.append(f"## {family.replace('_', ' ').capitalize()}\n\n{table(chosen)}")
        if family == "scaling":
            out.append("Peak memory of a step, on top of what is held between steps:\n")
            out.append(_memory(chosen))
    notes = sorted(
        {
            f"- {entry.name}, {row.work.name}: {entry.note}"
            for row in rows
            for entry in row.absent
            if entry.note
        }
    )
    if notes:
        out.append("## Dashes\n\n" + "\n".join(notes) + "\n")
    return "\n".join(out)


def _context(context: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in context["versions"].items())
    load = " to ".join(f"{value:.1f}" for value in context["load"])
    return (
        f"{context['processor']}, {context['processors']} processors; Python {context['python']};"
        f" {versions}. Load of the machine {load}; {context['rounds']} rounds of"
        f" {context['turn_seconds']} s a contestant. Made with `{context['command']}`.\n"
    )
