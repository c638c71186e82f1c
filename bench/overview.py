"""The table in short: the median, over the scenarios of a kind, of the ratio to each library."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from bench.peers import LIMIT, PEERS
from bench.summary import Row

TELLING = {  # what README shows, and what it calls it
    "dense/*/200x1e3": "200 dense variables of 1,000",
    "dense/*/1e6": "a dense variable of 1,000,000",
    "sparse/sgd/*": "sparse plain descent",
    "sparse/momentum/*": "sparse momentum",
    "sparse/adagrad/*": "sparse Adagrad",
    "sparse/rowwise_adagrad/*": "sparse row-wise Adagrad",
    "sparse/adam/*": "Adam on sparse gradients, all rows",
    "sparse/ftrl/*": "sparse FTRL",
    "lookups/gather/*": "look-ups",
    "lookups/pooled_update/*": "pooled look-ups with update",
    "end_to_end/clicks/*": "click model, end to end",
    "end_to_end/linear/*": "logistic regression on sparse rows",
    "end_to_end/factorisation/*": "matrix factorisation",
    "end_to_end/word2vec": "word2vec",
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Scenarios of a kind, with one number of threads.

    Attributes
    ----------
    ratios : mapping of str to list of float
        For each library, and for the limit, its time by fastopt's, one number a scenario; a
        library counts by its fastest way.
    """

    label: str
    threads: int
    scenarios: int
    ratios: Mapping[str, list[float]]

    @property
    def of_limit(self) -> list[float]:
        return list(self.ratios.get(PEERS[LIMIT].title, []))

    @property
    def libraries(self) -> list[tuple[str, float, float]]:
        """Name, median and lowest ratio of each library, the fastest library first."""
        found = [
            (title, statistics.median(ratios), min(ratios))
            for title, ratios in self.ratios.items()
            if title != PEERS[LIMIT].title
        ]
        return sorted(found, key=lambda entry: entry[1])


def kind(name: str) -> str:
    """Return the kind of a scenario: dense ones by their size, others by rule or task."""
    parts = name.split("/")
    return f"{parts[0]}/*/{parts[2]}" if parts[0] == "dense" else "/".join(parts[:2])


def kinds(rows: Iterable[Row]) -> list[Group]:
    """Return all kinds but those of scaling, in the order of the rows."""
    labels = dict.fromkeys(
        kind(row.work.name) for row in rows if not row.work.name.startswith("scaling/")
    )
    return [
        group
        for label in labels
        for group in _groups(label, [row for row in rows if kind(row.work.name) == label])
    ]


def telling(rows: Sequence[Row]) -> list[Group]:
    """Return the kinds that README shows."""
    return [
        group
        for pattern, label in TELLING.items()
        for group in _groups(label, [row for row in rows if fnmatchcase(row.work.name, pattern)])
    ]


def _groups(label: str, rows: Sequence[Row]) -> list[Group]:
    made = []
    for threads in sorted({row.threads for row in rows}):
        members = [row for row in rows if row.threads == threads]
        ratios: dict[str, list[float]] = {}
        for row in members:
            for title, ratio in row.best_by_library().items():
                ratios.setdefault(title, []).append(ratio)
        made.append(Group(label, threads, len(members), ratios))
    return made
