"""The arrays of a workload: the same in every process, cheap to make."""

from __future__ import annotations

import math

import numpy as np

from bench.workloads import Sparse

ZIPF_EXPONENT = 1.05
LINE = 16  # float32 numbers of a cache line


def numbers(shape: tuple[int, ...], seed: int = 0, scale: float = 0.01) -> np.ndarray:
    """Return normal float32 numbers; a block is repeated, since their values don't matter.

    They begin at a cache line, as what libraries make in their own backward passes does. NumPy's
    large arrays begin 16 bytes behind one.
    """
    size = math.prod(shape)
    block = np.random.default_rng(seed).standard_normal(min(size, 1 << 20), dtype=np.float32)
    block *= np.float32(scale)
    whole = np.empty(size + LINE, np.float32)
    first = -(whole.ctypes.data // whole.itemsize) % LINE
    made = whole[first : first + size]
    for lo in range(0, size, 1 << 20):
        made[lo : lo + (1 << 20)] = block[: size - lo]
    return made.reshape(shape)


def ids(kind: str, n_rows: int, n: int, seed: int = 1) -> np.ndarray:
    """Return int64 ids, uniform or Zipf-like with the frequent rows scattered over the table."""
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.integers(0, n_rows, n, dtype=np.int64)
    if kind != "zipf":
        raise ValueError(f"kind of ids must be 'uniform' or 'zipf', got {kind!r}")
    return scattered(zipf_ranks(rng, n_rows, n), n_rows)


def batches_of_ids(work: Sparse) -> list[np.ndarray]:
    """Return the ids that the steps of an update take in turn."""
    return [ids(work.ids, work.rows, work.lookups, seed) for seed in work.seeds]


def zipf_ranks(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Return ranks 0 ... n_rows - 1 of which rank r is about (r + 1) ** -1.05 as frequent."""
    power = 1.0 - ZIPF_EXPONENT
    x = ((n_rows**power - 1.0) * rng.random(n) + 1.0) ** (1.0 / power)
    return np.minimum(x.astype(np.int64) - 1, n_rows - 1)


def scattered(ranks: np.ndarray, n_rows: int) -> np.ndarray:
    """Permute ranks over the table: multiplication by a number without a factor of n_rows."""
    factor = int(n_rows * 0.6180339887) | 1
    while math.gcd(factor, n_rows) != 1:
        factor += 2
    return (ranks * factor + n_rows // 3) % n_rows
