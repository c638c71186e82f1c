"""What is measured: one step of the same work, by fastopt and by the peers that are installed.

A scenario is a function that returns, for each library, a callable that does one step. Each peer
runs the way its documentation calls fastest; one that is absent is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fastopt as fo

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Steps = dict[str, Callable[[], Any]]


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0.0, 0.01, shape).astype(np.float32)


def _zipf_ids(n_rows: int, n_ids: int) -> np.ndarray:
    """Ids of a skewed distribution, spread over the table."""
    rng = np.random.default_rng(1)
    rank = rng.zipf(1.1, 3 * n_ids)
    rank = rank[rank <= n_rows][:n_ids]
    return rng.permutation(n_rows)[rank - 1].astype(np.int64)


def _dense_adam(shapes: list[tuple[int, ...]]) -> Steps:
    with fo.Graph().as_default():
        variables = [fo.Variable(_numbers(*shape)) for shape in shapes]
    gradients = [_numbers(*shape) for shape in shapes]
    optimizer = fo.AdamOptimizer(1e-3)
    pairs = list(zip(gradients, variables, strict=True))
    steps: Steps = {"fastopt": lambda: optimizer.apply_gradients(pairs)}

    weights = [_numbers(*shape) for shape in shapes]
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]

    def numpy_step() -> None:
        for k, g in enumerate(gradients):
            m[k] *= np.float32(0.9)
            m[k] += np.float32(0.1) * g
            v[k] *= np.float32(0.999)
            v[k] += np.float32(0.001) * g * g
            weights[k] -= np.float32(1e-3) * m[k] / (np.sqrt(v[k]) + np.float32(1e-8))

    steps["NumPy"] = numpy_step
    if torch is not None:
        parameters = [torch.nn.Parameter(torch.from_numpy(_numbers(*s))) for s in shapes]
        for parameter, g in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(g)
        steps["PyTorch fused"] = torch.optim.Adam(parameters, 1e-3, fused=True).step
    return steps


def dense_adam_small() -> Steps:
    """Adam, 200 variables of 1,000."""
    return _dense_adam([(1_000,)] * 200)


def dense_adam_cache() -> Steps:
    """Adam, one variable of 10,000."""
    return _dense_adam([(10_000,)])


def dense_adam_large() -> Steps:
    """Adam, one variable of 1,000,000."""
    return _dense_adam([(1_000, 1_000)])


def _sparse(n_rows: int, width: int, n_ids: int, rule: str) -> Steps:
    ids = _zipf_ids(n_rows, n_ids)
    values = _numbers(n_ids, width)
    with fo.Graph().as_default():
        table = fo.Variable(_numbers(n_rows, width))
    ours: fo.Optimizer
    ours = fo.AdagradOptimizer(0.1) if rule == "adagrad" else fo.LazyAdamOptimizer(1e-3)

    def step() -> None:
        # New slices at every step, as a training loop makes them: nothing is grouped beforehand.
        ours.apply_gradients([(fo.IndexedSlices(values, ids, (n_rows, width)), table)])

    steps: Steps = {"fastopt": step}
    if torch is not None:
        parameter = torch.nn.Parameter(torch.from_numpy(_numbers(n_rows, width)))
        make = torch.optim.Adagrad if rule == "adagrad" else torch.optim.SparseAdam
        theirs = make([parameter], lr=0.1 if rule == "adagrad" else 1e-3)
        positions, rows = torch.from_numpy(ids)[None], torch.from_numpy(values)

        def torch_step() -> None:
            parameter.grad = torch.sparse_coo_tensor(
                positions, rows, (n_rows, width), check_invariants=False
            )
            theirs.step()

        steps["PyTorch sparse"] = torch_step
    return steps


def sparse_adagrad() -> Steps:
    """Adagrad, 65,536 Zipf look-ups, table 1,000,000 x 64."""
    return _sparse(1_000_000, 64, 65_536, "adagrad")


def sparse_lazy_adam() -> Steps:
    """LazyAdam, 65,536 Zipf look-ups, table 1,000,000 x 64."""
    return _sparse(1_000_000, 64, 65_536, "lazy_adam")


def lookup() -> Steps:
    """Look-up of 65,536 Zipf ids, table 1,000,000 x 64."""
    ids = _zipf_ids(1_000_000, 65_536)
    values = _numbers(1_000_000, 64)
    with fo.Graph().as_default():
        table = fo.Variable(values, trainable=False)

    def step() -> None:
        with fo.eager_mode():
            fo.embedding_lookup(table, ids)

    steps: Steps = {"fastopt": step, "NumPy": lambda: np.take(values, ids, axis=0)}
    if torch is not None:
        tensor, positions = torch.from_numpy(values), torch.from_numpy(ids)
        steps["PyTorch"] = lambda: torch.nn.functional.embedding(positions, tensor)
    return steps


SCENARIOS: dict[str, Callable[[], Steps]] = {
    scenario.__name__: scenario
    for scenario in (
        dense_adam_small,
        dense_adam_cache,
        dense_adam_large,
        sparse_adagrad,
        sparse_lazy_adam,
        lookup,
    )
}
