"""Updates with sparse gradients, from raw slices to the updated table."""

from __future__ import annotations

from collections.abc import Iterable

from bench.workloads import SPARSE_STATES, Sparse

TABLES = {"1e6x64": (1_000_000, 64), "1e7x16": (10_000_000, 16), "2e5x128": (200_000, 128)}
LOOKUPS = {"65k": 65_536, "1M": 1_000_000}
IDS = ("zipf", "uniform")


def _make(
    rules: Iterable[str], tables: Iterable[str], lookups: Iterable[str], ids: Iterable[str]
) -> list[Sparse]:
    return [
        Sparse(f"sparse/{rule}/{table}/{n}/{kind}", rule, *TABLES[table], LOOKUPS[n], kind)
        for table in tables
        for n in lookups
        for kind in ids
        for rule in rules
    ]


def full() -> list[Sparse]:
    return _make(SPARSE_STATES, TABLES, LOOKUPS, IDS)


def quick() -> list[Sparse]:
    return _make(("sgd", "adagrad", "rowwise_adagrad"), ["1e6x64"], ["65k"], ["zipf"])
