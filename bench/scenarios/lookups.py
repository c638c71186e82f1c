"""Look-ups: single rows, pooled with weights, and what a step makes of these."""

from __future__ import annotations

from bench.scenarios.sparse import IDS, LOOKUPS, TABLES
from bench.workloads import Lookup


def full() -> list[Lookup]:
    singles = [
        Lookup(f"lookups/gather/{table}/{n}/{ids}", "gather", *TABLES[table], LOOKUPS[n], ids)
        for table in TABLES
        for n in LOOKUPS
        for ids in IDS
    ]
    pooled = [
        Lookup(f"lookups/{task}/{table}/65k/zipf", task, *TABLES[table], 65_536, "zipf", bag=16)
        for task in ("pooled", "pooled_gradient", "pooled_update")
        for table in TABLES
    ]
    return singles + pooled


def quick() -> list[Lookup]:
    wanted = ("lookups/gather/1e6x64/65k/zipf", "lookups/pooled_gradient/1e6x64/65k/zipf")
    return [work for work in full() if work.name in wanted]
