"""Print a digest of everything the kernels compute: run once a level, and compared.

A program and not a test: the instruction-set level is chosen when the kernels are imported.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from typing import Any

import numpy as np

from fastopt._kernels import _lists
from fastopt._kernels._aggregate import add_n
from fastopt._kernels._dots import row_dots
from fastopt._kernels._grouping import Grouping
from fastopt._kernels._losses import sigmoid_cross_entropy, squared_error
from fastopt._kernels._row_set import RowSet
from fastopt._kernels._rows import gather, pooled_gather, scatter_add
from fastopt._kernels._transpose import sum_by_row
from tests.kernels.support import CASES, Slices, apply, kernel_of, state, takes, threads


def skewed(rng: np.random.Generator, n_rows: int, n: int) -> Any:
    """Look-ups of which many meet in few rows."""
    return np.minimum((n_rows * rng.random(n) ** 6).astype(np.int64), n_rows - 1)


@cache
def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Gradients; the same for every rule."""
    return np.asarray(np.random.default_rng(seed).normal(size=shape)).astype(dtype)


@cache
def look_ups(n_rows: int, n: int, seed: int) -> Any:
    """Row numbers; the same for every rule."""
    return skewed(np.random.default_rng(seed), n_rows, n)


def digests() -> dict[str, str]:
    """Digest of the arrays of each part."""
    found = {}
    for rule, hyper in CASES:
        name = kernel_of(rule, hyper)
        digest = hashlib.sha256()
        for dtype in (np.float32, np.float64):
            rng = np.random.default_rng(6)
            for shape in ((3,), (70_001,), (999, 65)):
                w, slots = state(name, shape, dtype, rng)
                for seed in range(2):
                    apply(rule, hyper, w, slots, numbers(shape, dtype, seed), decay=seed * 0.01)
                digest.update(b"".join(a.tobytes() for a in (w, *slots.values())))
            for row in ((), (3,), (70,)):
                for n_rows, n in ((50, 7), (3000, 40_000)):
                    for untouched in ("skip", "update"):
                        if not takes(name, untouched):
                            continue
                        w, slots = state(name, (n_rows, *row), dtype, rng)
                        for seed in range(2):
                            gradient = Slices(
                                numbers((n, *row), dtype, seed), look_ups(n_rows, n, seed)
                            )
                            apply(rule, hyper, w, slots, gradient, untouched)
                        digest.update(b"".join(a.tobytes() for a in (w, *slots.values())))
        found[name] = digest.hexdigest()
    digest = hashlib.sha256()
    for dtype in (np.float32, np.float64):
        rng = np.random.default_rng(7)
        arrays = [rng.normal(size=100_003).astype(dtype) for _ in range(4)]
        out = np.empty_like(arrays[0])
        add_n(arrays, out)
        digest.update(out.tobytes() + repr(_lists.sum_of_squares([out])).encode())
        for width in (1, 2, 3, 5, 12, 40, 64, 150):
            table = rng.normal(size=(2000, width)).astype(dtype)
            ids = skewed(rng, 2000, 30_000)
            values = rng.normal(size=(30_000, width)).astype(dtype)
            offsets = np.arange(0, 30_001, 10)
            pooled = np.empty((3000, width), dtype)
            weights, scales = rng.random(30_000).astype(dtype), rng.random(3000).astype(dtype)
            pooled_gather(table, ids, offsets, weights, scales, pooled)
            gather(table, ids, values)
            digest.update(values.tobytes())
            scatter_add(table, ids, values)
            dots = np.empty(30_000, dtype)
            row_dots(pooled, np.ascontiguousarray(ids[::10]), table, ids, dots)
            grouping = Grouping(ids, 2000)
            sums, unique = grouping.sum_rows(values)
            digest.update(repr(grouping.squares_of_sums(values)).encode())
            digest.update(b"".join(a.tobytes() for a in (pooled, table, sums, unique, dots)))
            turned = sum_by_row(values[:3000], offsets, ids, weights, 2000)
            assert turned is not None
            digest.update(b"".join(a.tobytes() for a in turned))
            turned = sum_by_row(values[:2000], offsets, ids, weights, 2000, ids[::10].copy())
            assert turned is not None
            digest.update(b"".join(a.tobytes() for a in turned))
        rows = RowSet(ids, 2000)
        single = rng.normal(size=rows.rows.size).astype(dtype)
        digest.update(rows.products(single, offsets, weights).tobytes())
    logits, labels = rng.normal(0.0, 9.0, 30_007).astype(np.float32), rng.random(30_007, np.float32)
    costs, slopes = np.empty_like(logits), np.empty_like(logits)
    sigmoid_cross_entropy(labels, logits, costs, slopes)
    digest.update(costs.tobytes() + slopes.tobytes())
    digest.update(repr(squared_error(labels, logits, costs)).encode())
    found["sums"] = digest.hexdigest()
    digest = hashlib.sha256()
    rng = np.random.default_rng(8)
    arrays = [rng.normal(size=40_003).astype(t) for t in (np.float16, np.float32, np.float64)]
    made = [*_lists.times(arrays, 0.3), *_lists.times(arrays, 1e-42)]
    for widen in (False, True):
        made += _lists.unscaled(arrays, 0.3, widen)[0]
    made += [_lists.bounded(array, -0.5, 0.7) for array in arrays]
    averages = [array.astype(np.float32) for array in arrays[:2]] + [arrays[2].copy()]
    _lists.follow(averages, arrays[::-1][2:] + arrays[1:], 0.1)
    for dtype in (np.float32, np.float64):
        rows = [rng.normal(size=(500, 21)).astype(dtype) for _ in range(2)]
        ids = np.arange(0, 500, 3)
        _lists.catch_up_rows(rows[0], rows[1], ids, rng.random(ids.size))
        _lists.follow_rows(rows[0], rows[1], ids, rows[1][ids] + dtype(1), 0.1)
        made += rows
    digest.update(b"".join(a.tobytes() for a in made + averages))
    digest.update(repr((_lists.sum_of_squares(arrays), _lists.largest(arrays))).encode())
    found["lists"] = digest.hexdigest()
    return found


if __name__ == "__main__":
    with threads(int(sys.argv[1])):
        for name, value in digests().items():
            print(name, value)
