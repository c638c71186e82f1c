"""Updates with dense gradients: in cache, in memory, and many small variables."""

from __future__ import annotations

from bench.workloads import DENSE_STATES, Dense

SIZES = {"1e4": (10_000, 1), "200x1e3": (1_000, 200), "1e6": (1_000_000, 1)}
LARGE = {"1e8": (100_000_000, 1)}


def _make(rules: tuple[str, ...], sizes: dict[str, tuple[int, int]]) -> list[Dense]:
    return [
        Dense(f"dense/{rule}/{label}", rule, size, count)
        for label, (size, count) in sizes.items()
        for rule in rules
    ]


def full() -> list[Dense]:
    return _make(tuple(DENSE_STATES), SIZES | LARGE)


def quick() -> list[Dense]:
    return _make(("sgd", "adam"), {k: SIZES[k] for k in ("200x1e3", "1e6")})
