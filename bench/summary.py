"""From times to numbers: medians, spreads, and ratios of turns that were taken side by side."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from bench.driver import Measured
from bench.peers import CANDIDATE, LIMIT, PEERS
from bench.workloads import Workload, from_json, to_json


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile, interpolated between neighbours."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One contestant in one row of the table.

    Attributes
    ----------
    seconds, low, high : float or None
        Median of a step and its 10 % and 90 % quantiles; None where there is a dash.
    ratio, ratio_low, ratio_high : float or None
        Its time by fastopt's, for the same work: the median and the range over the rounds.
    """

    name: str
    peer: str
    seconds: float | None
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    examples: int | None
    loss: float | None
    peak_extra_mb: float | None
    resident_mb: float | None
    note: str

    @property
    def examples_a_second(self) -> float | None:
        if self.seconds is None or self.examples is None:
            return None
        return self.examples / self.seconds


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload with one number of threads."""

    work: Workload
    threads: int
    entries: tuple[Entry, ...]

    @property
    def ours(self) -> Entry | None:
        return next((e for e in self.entries if e.peer == CANDIDATE), None)

    @property
    def limit(self) -> Entry | None:
        measured = (e for e in self.entries if e.peer == LIMIT and e.seconds is not None)
        return next(measured, None)

    @property
    def peers(self) -> list[Entry]:
        """The peers that were measured, the fastest first."""
        found = [
            e for e in self.entries if e.peer not in (CANDIDATE, LIMIT) and e.seconds is not None
        ]
        return sorted(found, key=lambda e: _cost(e, self.work))

    @property
    def absent(self) -> list[Entry]:
        return [e for e in self.entries if e.seconds is None]

    @property
    def times_best_peer(self) -> float | None:
        """How many times as fast as the best peer."""
        return self.peers[0].ratio if self.peers else None

    def best_by_library(self) -> dict[str, float]:
        """Return for each library the ratio of its fastest way, the limit among them."""
        best: dict[str, float] = {}
        for entry in self.entries:
            if entry.ratio is None or entry.peer == CANDIDATE:
                continue
            if entry.peer == LIMIT and entry.name != "limit":
                continue
            title = PEERS[entry.peer].title
            best[title] = min(entry.ratio, best.get(title, float("inf")))
        return best

    @property
    def undisturbed(self) -> float | None:
        """The same of the quickest tenth of the steps, which other programs disturbed the least."""
        ours, best = self.ours, self.peers[0] if self.peers else None
        if ours is None or best is None or ours.low is None or best.low is None:
            return None
        examples = self.work.examples or 1
        return best.low / (best.examples or examples) / (ours.low / (ours.examples or examples))

    @property
    def of_limit(self) -> float | None:
        """The limit's time by ours: 1 is the limit."""
        return self.limit.ratio if self.limit is not None else None


def _cost(entry: Entry, work: Workload) -> float:
    assert entry.seconds is not None
    return entry.seconds / (entry.examples or work.examples or 1)


def summarise(work: Workload, threads: int, measured: Sequence[Measured]) -> Row:
    """Return the row of a workload."""
    return Row(work, threads, tuple(_entry(work, m) for m in measured))


def _entry(work: Workload, m: Measured) -> Entry:
    times = [t for turn in m.rounds for t in turn]
    examples = m.examples or work.examples
    share = 1.0 if m.examples is None or not work.examples else work.examples / m.examples
    ratios = [
        share * statistics.median(turn) / statistics.median(ours)
        for turn, ours in zip(m.rounds, m.against, strict=True)
        if ours
    ]
    return Entry(
        name=m.name,
        peer=m.peer,
        seconds=statistics.median(times) if times else None,
        low=quantile(times, 0.1) if times else None,
        high=quantile(times, 0.9) if times else None,
        ratio=statistics.median(ratios) if ratios else None,
        ratio_low=min(ratios, default=None),
        ratio_high=max(ratios, default=None),
        examples=examples,
        loss=m.loss,
        peak_extra_mb=m.peak_extra_mb,
        resident_mb=m.resident_mb,
        note=m.note,
    )


def row_to_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON can carry it."""
    return {
        "work": to_json(row.work),
        "threads": row.threads,
        "times_best_peer": row.times_best_peer,
        "undisturbed": row.undisturbed,
        "of_limit": row.of_limit,
        "entries": [dataclasses.asdict(entry) for entry in row.entries],
    }


def row_from_json(record: dict[str, Any]) -> Row:
    """Return the row that `row_to_json` was given."""
    entries = tuple(Entry(**entry) for entry in record["entries"])
    return Row(from_json(record["work"]), record["threads"], entries)
