"""Between the backward pass and the update: sums, coalescing, conversion, clipping."""

from __future__ import annotations

from bench.workloads import Aggregation


def full() -> list[Aggregation]:
    return [
        *[Aggregation(f"aggregation/add_n/{k}x1e6", "add_n", 1_000_000, k) for k in (2, 4, 16)],
        *[
            Aggregation(f"aggregation/coalesce/{n}/{ids}", "coalesce", 1_000_000, count, 64, ids)
            for n, count in (("65k", 65_536), ("1M", 1_000_000))
            for ids in ("zipf", "uniform")
        ],
        Aggregation("aggregation/csr/65k", "csr", 1_000_000, 65_536, 16, "uniform"),
        Aggregation("aggregation/clip/1x1e6", "clip", 1_000_000, 1),
        Aggregation("aggregation/clip/200x1e3", "clip", 1_000, 200),
    ]


def quick() -> list[Aggregation]:
    return [work for work in full() if work.name == "aggregation/coalesce/65k/zipf"]
